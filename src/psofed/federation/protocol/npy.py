"""NumPy arrays as the bytes of ``.npy`` files, which is how Flower's ``Array`` carries them, without parsing headers.

NumPy writes a header as a Python expression and reads it with Python's parser, which takes longer than all the rest of
a small array. Both ends know type and shape, so the header is made once and compared.
"""

import io
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from psofed.federation.flower import make_array


def array_of(values: NDArray[Any]) -> Array:
    """Return `values` as Flower writes them.

    Examples
    --------
    >>> array_of(np.ones(3)) == Array(np.ones(3))
    True
    """
    return make_array(_name_of(values.dtype), values.shape, _npy_bytes(values))


class HeldArray(Array):
    """Values that stay in this process, as one of Flower's arrays: its bytes are made if somebody asks for them.

    Nobody may change `values` afterwards. With `again`, which returns them once more, the first who asks for an array
    is given `values` themselves, which saves a copy.

    Examples
    --------
    >>> held = HeldArray(np.ones(3))
    >>> held.numpy()
    array([1., 1., 1.])
    >>> held == Array(np.ones(3))
    True
    """

    __qualname__ = "Array"  # which Flower writes into its objects

    def __init__(self, values: NDArray[Any], again: Callable[[], NDArray[Any]] | None = None) -> None:
        self.__dict__.update(
            dtype=_name_of(values.dtype), shape=values.shape, stype="numpy.ndarray", values=values
        )
        if again is not None:
            self.__dict__["again"] = again

    def __getattr__(self, name: str) -> Any:
        made: Any
        if name == "values":  # they were given away
            made = self.__dict__.pop("again")()
        elif name == "data":
            made = _npy_bytes(self.values)
        else:
            raise AttributeError(name)
        self.__dict__[name] = made
        return made

    def numpy(self) -> NDArray[Any]:
        """Return an array that the caller may change, as Flower's own arrays do."""
        if "data" in self.__dict__:
            return super().numpy()
        if "again" in self.__dict__ and "values" in self.__dict__:
            given: NDArray[Any] = self.__dict__.pop("values")
            return given
        return np.array(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Array):
            return NotImplemented
        mine, others = ((a.dtype, a.shape, a.stype, a.data) for a in (self, other))
        return mine == others

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return Array, (self.dtype, self.shape, self.stype, self.data)


def values_of(array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the values in `array`, which may be shared with it; nobody may change them."""
    if isinstance(array, HeldArray) and "data" not in array.__dict__:
        held: NDArray[Any] = array.values
        return held
    header, data = npy_header(dtype, shape), array.data
    if data.startswith(header) and len(data) == len(header) + dtype.itemsize * math.prod(shape):
        return np.frombuffer(data, dtype=dtype, offset=len(header)).reshape(shape)
    return array.numpy()


@lru_cache(maxsize=256)
def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the bytes before the values of a ``.npy`` file of this type and shape."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        stream, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    )
    return stream.getvalue()


def _npy_bytes(values: NDArray[Any]) -> bytes:
    written = values.data if values.flags.c_contiguous else values.tobytes()
    return b"".join((npy_header(values.dtype, values.shape), written))


@lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    return str(dtype)
