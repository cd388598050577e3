"""Where kernels are kept, and whether there are any; what becomes of bodies that are not compiled."""

from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from psofed.common.errors import PsofedError
from psofed.engine import compiling, hooks
from psofed.engine.draws import _fill
from psofed.engine.hooks import explained
from psofed.engine.iteration import advance
from psofed.engine.normals import fill_standard_normal, mix_word
from psofed.engine.tables import STAGE, KernelTable, TableData
from psofed.parts.attacks import ConstantBias

pytestmark = pytest.mark.engine


def test_a_folder_without_kernels_is_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    with compiling.own_cache() as folder:
        (folder / "engine_1234").mkdir(parents=True)
    assert compiling.is_cold()
    (folder / "engine_1234" / "kernel.nbi").touch()
    assert not compiling.is_cold()


def test_kernels_are_kept_where_the_user_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = compiling._cache_folder.__wrapped__
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "given"))
    assert find().parent == tmp_path / "given" / "psofed"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert find().parent == tmp_path / ".cache" / "psofed"
    assert find().name.startswith("kernels-")


def test_kernels_let_other_threads_run_and_are_kept_on_disk() -> None:
    for kernel in (fill_standard_normal, _fill, advance):
        assert kernel.targetoptions["nogil"]
        assert kernel.targetoptions["error_model"] == "numpy", "division by zero is IEEE's"
        assert Path(kernel.stats.cache_path).parent.name.startswith("kernels-")


@pytest.mark.parametrize("error", [PsofedError("no agreement"), KeyboardInterrupt()])
def test_what_a_body_says_itself_is_passed_on_as_it_is(error: BaseException) -> None:
    assert explained(error) is error


def test_what_fails_in_a_body_is_said_to_be_a_parts_own() -> None:
    try:
        raise ValueError("no mask")
    except ValueError as error:
        told = explained(error)
    assert isinstance(told, PsofedError)
    assert "a part's own code failed with ValueError: no mask (test_compiling.py, line" in str(told)


class Numbers(TableData):
    """What a stage is shown."""

    def __init__(self, *values: float) -> None:
        self.options, self.values = np.ones(1), np.array(values)


def test_what_a_python_method_is_shown_is_the_memory_of_the_kernel() -> None:
    """The object itself: nothing is copied on the way through a C function."""
    values, seen, stage_hooks = Numbers(0.0, 1.0, 2.0), [], hooks.Hooks()

    def frame(method: Any, *arguments: Any) -> None:
        seen.append(arguments)

    part = ConstantBias(num_byzantine=1)
    with hooks.run_as_python(part):
        address = stage_hooks.add(part, "corrupt", frame, values)
    table = KernelTable(values)
    STAGE(address)(3, 4, 5, table.address)
    stage_hooks.check()
    assert seen[0][:3] == (3, 4, 5)
    assert seen[0][3] is values


def test_the_first_error_of_a_python_method_ends_the_run() -> None:
    def frame(method: Any, n: int, k: int, g: int, table: Numbers) -> None:
        raise ValueError(f"iteration {n}")

    part, stage_hooks = ConstantBias(num_byzantine=1), hooks.Hooks()
    table = KernelTable(Numbers(1.0, 1.0))
    with hooks.run_as_python(part):
        address = stage_hooks.add(part, "corrupt", frame, table.values)
    STAGE(address)(3, 0, 0, table.address)
    STAGE(address)(4, 0, 0, table.address)
    with pytest.raises(PsofedError, match="failed with ValueError: iteration 3"):
        stage_hooks.check()


def test_python_can_call_what_kernels_call() -> None:
    """A frame that runs as plain Python does; the machine code is made then."""
    with np.errstate(over="ignore"):
        assert mix_word(np.uint64(1)) == mix_word.py_func(np.uint64(1))
