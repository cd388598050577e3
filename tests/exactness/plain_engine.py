"""The engine as plain Python: kernels are run as they are written, and hooks are the frames themselves.

Vectors of lanes are arrays here, and every address of one is looked at. Memory that nobody has written yet is full of
ones in every bit: NaN, or −1.
"""

import importlib
import pkgutil
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

import psofed.engine
from psofed import Scenario, draw_fleet
from psofed.engine import bodies
from psofed.engine.bodies import Frame, Hook
from psofed.engine.pso_fed import PsoFedRun
from psofed.engine.server_model import ServerModelRun

# Lanes in a vector; few, since most loops over lanes are run one by one.
WIDTH = 2

# All are imported before any is changed, since they take names from each other.
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(psofed.engine.__path__, "psofed.engine.")
]


def part_of_lanes(array: np.ndarray, index: int) -> np.ndarray:
    """The vector that begins at a flat index."""
    assert array.flags.c_contiguous
    if array.dtype == np.uint8 and array.base is not None:
        # Flags of who is available have one more vector of values behind them.
        assert 0 <= index < array.size
        index += array.ctypes.data - array.base.ctypes.data
        array = array.base.reshape(-1).view(np.uint8)
    assert 0 <= index <= array.size - WIDTH
    return array.reshape(-1)[index : index + WIDTH]


def store(array: np.ndarray, index: int, vector: np.ndarray) -> None:
    assert vector.shape == (WIDTH,)
    assert vector.dtype == array.dtype
    part_of_lanes(array, index)[:] = vector


def fma(a: Any, b: Any, c: Any) -> Any:
    """Single precision is rounded once; double precision twice, which is as near as it gets here."""
    kind = (
        np.result_type(*(x for x in (a, b, c) if np.ndim(x)))
        if any(map(np.ndim, (a, b, c)))
        else np.asarray(c).dtype
    )
    return (np.multiply(a, b, dtype=np.float64) + c).astype(kind)


def halves(word: Any) -> tuple[Any, Any]:
    low = (word & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return (word >> np.uint64(32)).astype(np.uint32), low.view(np.int32)


INSTRUCTIONS: dict[str, Callable] = {
    "load": lambda array, index: part_of_lanes(array, index).copy(),
    "store": store,
    "fma": fma,
    "square_root": np.sqrt,
    "bits_of": lambda x: x.view(np.int32),
    "float_of": lambda bits: bits.view(np.float32),
    "to_float32": lambda x: x.astype(np.float32),
    "to_float64": lambda x: x.astype(np.float64),
    "subtract_bits": np.subtract,
    "exponent_of": lambda bits: bits >> np.int32(23),
    "exponent_bits": lambda exponent: exponent << np.int32(23),
    "halves": halves,
    "spread": lambda x: np.full(WIDTH, x),
    "pick_if_equal": lambda a, b, yes, no: np.where(a == b, yes, no),
}


def unwritten(shape: Any, dtype: Any = np.float64) -> np.ndarray:
    """An array that nobody has written yet."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[:] = 255
    return array


class UnwrittenNumPy:
    """NumPy, but for memory that nobody has written yet."""

    empty = staticmethod(unwritten)

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def run_as_python(patch: pytest.MonkeyPatch) -> None:
    """Replace what is compiled, in every module of the engine."""
    frames: dict[int, Frame] = {}
    addresses = count(1)

    def make_hook(part: Any, body: str, signature: Any, make_frame: Callable, *extra: float) -> Hook:
        function, address = getattr(type(part), body), next(addresses)
        frames[address] = make_frame(bodies._make_unpack(type(part), function), function)
        return Hook(address, 0, np.array([*bodies._numbers_of(part), *extra], dtype=np.float64))

    for module in MODULES:
        for name, value in list(vars(module).items()):
            if isinstance(value, Dispatcher):
                patch.setattr(module, name, value.py_func)
            elif isinstance(value, _Intrinsic) and name.startswith("take_"):
                patch.setattr(module, name, frames.get)
            elif isinstance(value, _Intrinsic) and name in INSTRUCTIONS:
                patch.setattr(module, name, INSTRUCTIONS[name])
            elif name == "make_hook":
                patch.setattr(module, name, make_hook)
            elif name == "WIDTH":
                patch.setattr(module, name, WIDTH)
            elif value is np:
                patch.setattr(module, name, UnwrittenNumPy())


def advance_as_python(
    scenario: Scenario, seed: int, iterations: int, trials: range = range(WIDTH), **more: Any
) -> tuple[np.ndarray, Any]:
    """Return the metrics (iterations, 3, trials) of a scenario that the engine runs as plain Python, and the run.

    For kernels that no other test needs, each of which would take seconds to compile.
    """
    fleet, found = draw_fleet(scenario), np.empty((iterations, 3, len(trials)))
    kind = PsoFedRun if scenario.algorithm.holds_models else ServerModelRun
    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        run_as_python(patch)
        run = kind(scenario, fleet, seed, trials, **more)
        run.advance(0, found)
    return found, run
