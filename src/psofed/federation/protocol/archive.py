"""One file format for all that is kept: a JSON document, in which arrays may stand, whole or not at all.

The server's checkpoint and a node's memory are such files (``.npz``). Arrays in the document lie in one block of bytes.
Nothing is ever unpickled.
"""

import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.disk import disk
from psofed.common.errors import PsofedError

_DOCUMENT, _VALUES = "document", "values"
_ARRAY = "\0array"  # no name of a client or of a metric


def to_archive(document: Mapping[str, Any]) -> bytes:
    """Return the content of such a file. In the document, an object with ``to_record()`` stands for that mapping.

    Examples
    --------
    >>> from_archive(to_archive({"model": 1, "w": np.ones(2)}), "here", "model", 1)
    {'model': 1, 'w': array([1., 1.])}
    """
    buffer, values = io.BytesIO(), io.BytesIO()

    def plain(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value.to_record()
        place = values.tell()
        values.write(value.tobytes())
        return {_ARRAY: [value.dtype.str, value.shape, place]}

    text = json.dumps(document, default=plain).encode()
    blocks = {_DOCUMENT: np.frombuffer(text, np.uint8), _VALUES: np.frombuffer(values.getbuffer(), np.uint8)}
    np.savez(buffer, allow_pickle=False, **blocks)
    return buffer.getvalue()


def read_archive(path: Path, kind: str, version: int) -> dict[str, Any]:
    """Return the document in a file, which must name `kind` with that version of its format.

    Raises
    ------
    PsofedError
        Says what is wrong with the file.
    """
    return from_archive(read_file(path, kind), str(path), kind, version)


def read_file(path: Path, kind: str) -> bytes:
    """Return the content of a file that should be of a `kind`; a PsofedError says why it cannot be read."""
    try:
        return disk().read(path)
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except OSError as error:
        raise PsofedError(f"{path} is not a psofed {kind}: {error}") from None


def from_archive(data: bytes, where: str, kind: str, version: int) -> dict[str, Any]:
    """Read what :func:`to_archive` gave; errors name `where` it comes from."""
    if not data.startswith(b"PK"):
        raise PsofedError(f"{where} is not a psofed {kind}: not an .npz archive")
    try:
        members = zipfile.ZipFile(io.BytesIO(data)).infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("compressed, which psofed's files are not: it may expand to any size")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            values = archive[_VALUES]

            def restore(entry: dict[str, Any]) -> Any:
                if _ARRAY not in entry:
                    return entry
                dtype, shape, place = entry[_ARRAY]
                return np.frombuffer(values, dtype, math.prod(shape), place).reshape(shape).copy()

            document: dict[str, Any] = json.loads(archive[_DOCUMENT].tobytes(), object_hook=restore)
        written = document[kind]
    except Exception as error:  # NumPy and zipfile raise many kinds on a damaged file
        raise PsofedError(f"{where} is not a psofed {kind}: {error}") from None
    if written != version:
        raise PsofedError(f"{where} has format {written}; this psofed reads {version}")
    return document
