"""One file format for all that is kept: a JSON document and named arrays, whole or not at all.

The server's checkpoint, a client's state and an exported model are all such files (``.npz``). Nothing in them is ever
unpickled.
"""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import write_atomically

_DOCUMENT = "document"


def write_archive(path: Path, document: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write a document and arrays to `path` atomically, for its owner's eyes only."""
    write_atomically(path, to_archive(document, arrays), mode=0o600)


def to_archive(document: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Return the content of such a file."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(document).encode(), dtype=np.uint8)
    np.savez(buffer, allow_pickle=False, **{_DOCUMENT: text}, **{f"/{k}": v for k, v in arrays.items()})
    return buffer.getvalue()


def read_archive(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what :func:`write_archive` wrote; its document must name `kind` with that version of its format.

    Raises
    ------
    PsofedError
        Says what is wrong with the file.
    """
    try:
        data = disk().read(path)
    except FileNotFoundError:
        raise PsofedError(f"{path}: no such file") from None
    except OSError as error:
        raise PsofedError(f"{path} is not a psofed {kind}: {error}") from None
    return from_archive(data, str(path), kind, version)


def from_archive(data: bytes, where: str, kind: str, version: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read what :func:`to_archive` gave; errors name `where` it comes from."""
    if not data.startswith(b"PK"):
        raise PsofedError(f"{where} is not a psofed {kind}: not an .npz archive")
    try:
        members = zipfile.ZipFile(io.BytesIO(data)).infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("compressed, which psofed's files are not: it may expand to any size")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name[1:]: archive[name] for name in archive.files if name != _DOCUMENT}
            document = json.loads(archive[_DOCUMENT].tobytes())
        written = document[kind]
    except Exception as error:  # NumPy and zipfile raise many kinds on a damaged file
        raise PsofedError(f"{where} is not a psofed {kind}: {error}") from None
    if written != version:
        raise PsofedError(f"{where} has format {written}; this psofed reads {version}")
    return document, arrays
