"""Files that are either wholly there or not at all, and locks."""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `data` to `path` so that after any crash the file holds either its old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON atomically."""
    write_atomically(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON, with an error that names the file."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise PsofedError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise PsofedError(f"{path} is not JSON: {error}") from None


@contextmanager
def only_one(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock that ends with the block or the process; if another holds it, a PsofedError says `refusal`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise PsofedError(refusal) from None
        yield
    finally:
        os.close(handle)
