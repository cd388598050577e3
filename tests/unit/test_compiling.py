"""Where kernels are kept, and whether there are any; what becomes of bodies that are not compiled."""

from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba import types
from numba.core.typing.templates import Signature
from numba.np.numpy_support import as_dtype

from psofed.common.errors import PsofedError
from psofed.engine import compiling, hooks, signatures
from psofed.engine.hooks import explained
from psofed.engine.iteration import advance
from psofed.engine.normals import fill_standard_normal, mix_word
from psofed.engine.participants import fill_participants
from psofed.engine.tables import TableType

pytestmark = pytest.mark.engine


def test_a_folder_without_kernels_is_cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
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


def test_kernels_let_other_threads_run_and_are_kept_on_disk() -> None:
    for kernel in (fill_standard_normal, fill_participants, advance):
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


SIGNATURES = {
    name: getattr(signatures, name)
    for name in dir(signatures)
    if isinstance(getattr(signatures, name), Signature)
}


def make_arguments(kinds: Iterable[Any], numbers: Iterator[int]) -> Iterator[Any]:
    """Arguments of these types, no two of which are the same."""
    for kind in kinds:
        if isinstance(kind, types.BaseNamedTuple | TableType):
            yield kind.instance_class(*make_arguments(kind.types, numbers))
        elif isinstance(kind, types.Array):
            shape = [2 + next(numbers) % 3 for _ in range(kind.ndim)]
            yield np.full(shape, next(numbers), as_dtype(kind.dtype))
        elif kind is types.boolean:
            yield bool(next(numbers) % 2)
        else:
            yield 0.5 + next(numbers) if isinstance(kind, types.Float) else next(numbers)


def leaves(values: Any) -> list[Any]:
    return [leaf for value in values for leaf in (leaves(value) if isinstance(value, tuple) else [value])]


@pytest.mark.parametrize("name", SIGNATURES)
def test_what_a_kernel_hands_to_a_python_body_arrives_as_it_is(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """What is written down for it in compiled code is plain Python as well."""
    signature, received = SIGNATURES[name], []
    monkeypatch.setattr(numba, "cfunc", lambda _: lambda function: function)
    hand_over = hooks._python_call.__wrapped__(signature)
    arguments = [np.full(1, 7.0), *make_arguments(signature.args[1:], count(1))]
    monkeypatch.setitem(hooks._PYTHON_FRAMES, 7, (lambda *given: received.extend(given), []))
    hand_over(*arguments)
    assert not hooks._PYTHON_FRAMES[7][1]
    assert [type(value) for value in received if isinstance(value, tuple)] == [
        type(value) for value in arguments if isinstance(value, tuple)
    ]
    for found, given in zip(leaves(received), leaves(arguments), strict=True):
        assert np.array_equal(found, given)
        if isinstance(given, np.ndarray):
            assert found.dtype == given.dtype
            assert found.ctypes.data == given.ctypes.data, "it is the same memory"


def test_python_can_call_what_kernels_call() -> None:
    """A frame that runs as plain Python does; the machine code is made then."""
    with np.errstate(over="ignore"):
        assert mix_word(np.uint64(1)) == mix_word.py_func(np.uint64(1))
