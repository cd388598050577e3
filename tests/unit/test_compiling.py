"""Where kernels are kept, and whether there are any."""

from pathlib import Path

import pytest

from psofed.common.errors import PsofedError
from psofed.engine import compiling
from psofed.engine.bodies import _explained


def test_a_folder_without_kernels_is_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling.numba_config, "CACHE_DIR", str(tmp_path))
    with compiling.own_cache() as folder:
        (folder / "engine_1234").mkdir(parents=True)
    assert compiling.is_cold()
    (folder / "engine_1234" / "kernel.nbi").touch()
    assert not compiling.is_cold()


def test_kernels_are_kept_where_the_user_keeps_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = compiling._cache_folder.__wrapped__
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "given"))
    assert find().parent == tmp_path / "given" / "psofed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert find().parent == tmp_path / ".cache" / "psofed"
    assert find().name.startswith("kernels-")


@pytest.mark.parametrize("error", [PsofedError("no agreement"), KeyboardInterrupt()])
def test_what_a_body_says_itself_is_passed_on_as_it_is(error: BaseException) -> None:
    assert _explained(error) is error


def test_what_fails_in_a_body_is_said_to_be_a_parts_own() -> None:
    try:
        raise ValueError("no mask")
    except ValueError as error:
        told = _explained(error)
    assert isinstance(told, PsofedError)
    assert "a part's own code failed with ValueError: no mask (test_compiling.py, line" in str(told)
