"""Files that are either wholly there or not at all."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError


def write_atomically(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Write `data` to `path` so that after any crash the file holds either its old content or the new."""
    path.parent.mkdir(parents=True, exist_ok=True)
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
