"""Where kernels are kept, and whether there are any."""

from pathlib import Path

import pytest

from psofed.engine import compiling


def test_a_folder_without_kernels_is_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.numba_config, "CACHE_DIR", str(tmp_path))
    with compiling.own_cache() as folder:
        (folder / "engine_1234").mkdir(parents=True)
    assert compiling.is_cold()
    (folder / "engine_1234" / "kernel.nbi").touch()
    assert not compiling.is_cold()
