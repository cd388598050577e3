"""Frames: a bounded header of JSON and raw little-endian values, for everything that server and nodes exchange.

======  =====  ================================================================
offset  bytes  content
======  =====  ================================================================
0       4      ``psof``
4       1      :data:`VERSION`
5       1      kind: :data:`INSTRUCTION` or :data:`REPLY`
6       8      sequence number of the instruction, little-endian; its reply repeats it
14      4      H, bytes of the header, little-endian
18      H      header: one JSON object in UTF-8
18 + H  rest   values, little-endian, without gaps, of the type that the header names
======  =====  ================================================================

Nothing is unpickled, and no memory is taken for a size that somebody merely claims: values are a view of the frame.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

VERSION = 4
INSTRUCTION, REPLY = 1, 2
DTYPES = ("float16", "float32", "float64")
"""Types of values that travel."""

MAX_HEADER = 4 << 20
_MAGIC = b"psof"
_PREFIX = struct.Struct("<4sBBQI")


class FrameError(ValueError):
    """Bytes that are not a frame, or a header whose fields are not what they must be."""


class WireFrame(NamedTuple):
    """A sequence number, a header and the bytes of the values."""

    sequence: int
    header: "Fields"
    body: memoryview


def encode_frame(kind: int, sequence: int, header: Mapping[str, Any], values: Sequence[NDArray[Any]] = ()) -> bytes:
    r"""Return a frame whose values are these arrays, one after the other.

    Examples
    --------
    >>> encode_frame(REPLY, 5, {"round": 7}, [np.array([1.0], np.float32)])[14:]
    b'\x0b\x00\x00\x00{"round":7}\x00\x00\x80?'
    """
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    blocks = [np.asarray(block, block.dtype.newbyteorder("<")).tobytes() for block in values]
    return b"".join((_PREFIX.pack(_MAGIC, VERSION, kind, sequence, len(text)), text, *blocks))


def decode_frame(data: bytes, kind: int, max_header: int = MAX_HEADER) -> WireFrame:
    """Return a frame's sequence number, header and the bytes of its values, or raise FrameError.

    Examples
    --------
    >>> sequence, header, body = decode_frame(encode_frame(REPLY, 5, {"round": 7}, [np.ones(2)]), REPLY)
    >>> sequence, header.integer("round", 1, 9), read_values(body, 2, np.dtype(float))
    (5, 7, array([1., 1.]))
    """
    sequence, length = _read_prefix(data, kind)
    if length > max_header or _PREFIX.size + length > len(data):
        most = min(max_header, len(data) - _PREFIX.size)
        raise FrameError(f"a header of {length:,} bytes, of at most {most:,}")
    view = memoryview(data)
    header = decode_object(bytes(view[_PREFIX.size : _PREFIX.size + length]))
    return WireFrame(sequence, header, view[_PREFIX.size + length :])


def frame_sequence(data: bytes, kind: int) -> int:
    """Return the sequence number of a frame, whose header may be nonsense, or raise FrameError."""
    return _read_prefix(data, kind)[0]


def _read_prefix(data: bytes, kind: int) -> tuple[int, int]:
    """Return the sequence number and the length of the header."""
    if len(data) < _PREFIX.size or data[:4] != _MAGIC:
        raise FrameError("not a frame of psofed")
    _, version, found, sequence, length = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise FrameError(f"format {version}, this psofed speaks {VERSION}: update the older one")
    if found != kind:
        raise FrameError(f"a frame of kind {found}, not {kind}")
    return sequence, length


def decode_object(text: bytes, longest: int = MAX_HEADER) -> "Fields":
    """Return the fields of a JSON object, or raise FrameError."""
    if len(text) > longest:
        raise FrameError(f"{len(text):,} bytes, of at most {longest:,}")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise FrameError("not JSON") from None
    if not isinstance(value, dict):
        raise FrameError("not a JSON object")
    return Fields(value)


def read_values(body: memoryview, count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the `count` values that `body` must hold, which nobody may change."""
    if len(body) != count * dtype.itemsize:
        raise FrameError(f"{len(body):,} bytes for {count:,} values of {dtype}")
    return np.frombuffer(body, dtype.newbyteorder("<"), count).astype(dtype, copy=False)


class Fields(dict[str, Any]):
    """The fields of a header, none of which is what it should be until it was asked for by type."""

    def integer(self, name: str, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        value = self.get(name)
        if type(value) is not int or not low <= value <= high:
            raise FrameError(f"{name} is not a whole number from {low} to {high}")
        return value

    def text(self, name: str, longest: int = MAX_HEADER) -> str:
        """Return a text; one that is absent is empty."""
        value = self.get(name, "")
        if type(value) is not str or len(value) > longest:
            raise FrameError(f"{name} is not text, or too long")
        return value

    def flag(self, name: str) -> bool:
        """Return whether a field is there and true."""
        return self.get(name) is True

    def items_of(self, name: str, kind: type, length: int | None = None, most: int = 10_000) -> list[Any]:
        """Return a list of values of one type, of `length` entries if that is given; one that is absent is empty."""
        value = self.get(name, [])
        if type(value) is not list or {*map(type, value)} - {kind}:
            raise FrameError(f"{name} is not a list of {kind.__name__}")
        if len(value) > most or (length is not None and len(value) != length):
            raise FrameError(f"{name} has {len(value)} entries, not {most if length is None else length}")
        return value

    def dtype(self) -> np.dtype[Any]:
        """Return the type of the values."""
        name = self.get("dtype")
        if not isinstance(name, str) or name not in DTYPES:
            raise FrameError(f"values of an unknown type; known are {', '.join(DTYPES)}")
        return np.dtype(name)
