"""NumPy arrays as the bytes of ``.npy`` files, which is how Flower's ``Array`` carries them, without parsing headers.

NumPy writes a header as a Python expression and reads it with Python's parser, which takes longer than all the rest of
a small array. Both ends know type and shape, so the header is made once and compared.
"""

import io
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
    written = values.data if values.flags.c_contiguous else values.tobytes()
    data = b"".join((npy_header(values.dtype, values.shape), written))
    return make_array(_name_of(values.dtype), values.shape, data)


def values_of(array: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the values in `array`, read-only if it is of this type and shape, else as Flower reads them."""
    header, data = npy_header(dtype, shape), array.data
    if data.startswith(header) and len(data) == len(header) + dtype.itemsize * int(np.prod(shape, dtype=int)):
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


@lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    return str(dtype)
