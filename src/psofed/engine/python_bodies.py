"""Plain Python inside a kernel: hooks of bodies that Numba cannot compile."""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numba
import numpy as np
from numba import types

# The frames that run as Python, by token, with the errors they raised.
PYTHON_FRAMES: dict[int, tuple[Callable[..., Any], list[BaseException]]] = {}

# A C function cannot hand arrays to Python, so their addresses and shapes are written into two buffers.
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@cache
def python_call(signature: Any) -> Any:
    """Return a hook of the given signature that calls the frame of its token as plain Python."""
    lines, names = [], [f"a{place}" for place in range(len(signature.args))]
    integers, numbers = 0, 0

    def write(kind: Any, text: str) -> None:
        nonlocal integers, numbers
        if _is_tuple(kind):
            for field, member in zip(kind.fields, kind.types, strict=True):
                write(member, f"{text}.{field}")
        elif isinstance(kind, types.Array):
            lines.append(f"    integers[{integers}] = {text}.ctypes.data")
            lines.extend(f"    integers[{integers + 1 + d}] = {text}.shape[{d}]" for d in range(kind.ndim))
            integers += 1 + kind.ndim
        elif isinstance(kind, types.Float):
            lines.append(f"    numbers[{numbers}] = {text}")
            numbers += 1
        else:
            lines.append(f"    integers[{integers}] = {text}")
            integers += 1

    for kind, name in zip(signature.args, names, strict=True):
        write(kind, name)

    def receive(token: int, integer_address: int, number_address: int) -> None:
        frame, errors = PYTHON_FRAMES[token]
        if errors:
            return
        try:
            whole = iter(_view(integer_address, (max(integers, 1),), np.int64).tolist())
            real = iter(_view(number_address, (max(numbers, 1),), np.float64).tolist())
            frame(*(_read(kind, whole, real) for kind in signature.args))
        except BaseException as error:
            errors.append(error)

    callback = _CALLBACK(receive)
    _KEPT_ALIVE.append(callback)
    source = "\n".join(
        [
            f"def frame({', '.join(names)}):",
            f"    integers, numbers = np.empty({max(integers, 1)}, np.int64), np.empty({max(numbers, 1)})",
            *lines,
            "    callback(a0, integers.ctypes.data, numbers.ctypes.data)",
        ]
    )
    space: dict[str, Any] = {"np": np, "callback": callback}
    exec(source, space)
    return numba.cfunc(signature)(space["frame"])


_KEPT_ALIVE: list[Any] = []


def _is_tuple(kind: Any) -> bool:
    return isinstance(kind, types.BaseNamedTuple)


def _read(kind: Any, integers: Any, numbers: Any) -> Any:
    if _is_tuple(kind):
        return kind.instance_class(*(_read(member, integers, numbers) for member in kind.types))
    if isinstance(kind, types.Array):
        address = next(integers)
        return _view(address, tuple(next(integers) for _ in range(kind.ndim)), _dtype(kind.dtype))
    return next(numbers) if isinstance(kind, types.Float) else next(integers)


def _view(address: int, shape: tuple[int, ...], dtype: Any) -> Any:
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if size == 0:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_byte * size).from_address(address), dtype).reshape(shape)


def _dtype(kind: Any) -> Any:
    return np.bool_ if isinstance(kind, types.Boolean) else np.dtype(str(kind))
