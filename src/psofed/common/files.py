"""Files written whole or not at all, JSON, and locks.

There is one way to write a file: under a temporary name beside it, synced, then renamed, then its folder synced. A
reader sees the old file or the new one, never a part. After a crash or a power loss it is one of the two.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.scheduler import scheduler

_LEFTOVER = "-part-"
_LONGEST_LOOK = 1.0  # seconds for which `is_locked` of another process may hold a lock, on a busy machine


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `data` to `path`, whole or not at all.

    Missing folders are made. A full disk or a folder that cannot be written is a :class:`PsofedError` that names the
    file, and leaves nothing behind.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "result.txt"
    >>> write_atomically(target, b"whole")
    >>> target.read_text()
    'whole'
    """
    with _replacing(path, mode) as temporary:
        disk().append(temporary, data)


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written because of its folder, before anything is computed for it.

    Examples
    --------
    >>> check_writable(Path("/"))
    Traceback (most recent call last):
    psofed.common.errors.PsofedError: /: this is a folder; name a file in it
    """
    if path.is_dir():
        raise PsofedError(f"{path}: this is a folder; name a file in it")
    folder = next(place for place in path.absolute().parents if place.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        why = "is read-only" if folder.is_dir() else "is not a folder"
        raise PsofedError(f"{path}: cannot be written, because {folder} {why}; choose another place")


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, and move it there when the block ends well.

    For libraries that write files themselves; otherwise as :func:`write_atomically`.

    Examples
    --------
    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "result.txt"
    >>> with atomic_path(target) as temporary:
    ...     _ = temporary.write_text("whole")
    >>> target.read_text()
    'whole'
    """
    with _replacing(Path(path), 0o666) as temporary:
        yield temporary


def replace_by_link(source: Path, target: Path) -> None:
    """Let `target` name the same file as `source`, in one step; a copy on file systems without hard links."""
    temporary = _temporary(target)
    try:
        disk().link(source, temporary)
    except OSError:
        write_atomically(target, disk().read(source), mode=0o600)
        return
    with refusal(target):
        try:
            _secure_folder(target)
            disk().rename(temporary, target)
        except OSError:
            _remove(temporary)
            raise
        disk().sync_folder(target.parent)


def remove_leftovers(folder: Path, beginning: str = "") -> None:
    """Remove the temporary files of killed writers, for files whose names begin so and have a single writer."""
    for name in disk().names(folder):
        if name.startswith(f".{beginning}") and _LEFTOVER in name:
            _remove(folder / name)


def write_json(path: Path, value: Any, mode: int = 0o600) -> None:
    """Write strict JSON atomically."""
    write_atomically(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode(), mode)


def read_json(path: Path) -> Any:
    """Read JSON, with an error that names the file."""
    try:
        return json.loads(disk().read(path))
    except OSError as error:
        raise PsofedError(f"cannot read {path}: {reason_of(error)}") from None
    except ValueError as error:
        raise PsofedError(f"{path} is not JSON: {error}") from None
    except RecursionError:
        raise PsofedError(f"{path} is not JSON that can be read: it is nested too deeply") from None


@contextmanager
def only_one(path: Path, refusal: str) -> Iterator[None]:
    """Hold a lock until the block or the process ends; if another process holds it, a PsofedError says `refusal`."""
    _make_folders(path.parent, 0o700, [])
    deadline = scheduler().monotonic() + _LONGEST_LOOK
    while True:
        with disk().lock(path) as held:
            if held:
                yield
                return
        if scheduler().monotonic() > deadline:
            raise PsofedError(refusal)
        scheduler().sleep(0.05)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of :func:`only_one`; to find out, it is held for a moment if it is free."""
    if not disk().exists(path):
        return False
    with disk().lock(path) as held:
        return not held


def reason_of(error: OSError) -> str:
    """Return in a few words why the system refused."""
    if error.errno is not None:
        return os.strerror(error.errno)
    return str(error).partition("\n")[0]


@contextmanager
def _replacing(target: Path, mode: int) -> Iterator[Path]:
    """Give an empty temporary file beside `target`; when the block ends well, let it take the target's place."""
    made: list[Path] = []
    temporary = _temporary(target)
    with refusal(target):
        try:
            # What only its owner may read lies in folders that only its owner may enter.
            _make_folders(target.parent, 0o777 if mode & 0o077 else 0o700, made)
            disk().create(temporary, mode)
            yield temporary
            disk().sync(temporary)
            _secure_folder(target)
            disk().rename(temporary, target)
        except BaseException:
            _remove(temporary)
            _remove_folders(made)
            raise
        disk().sync_folder(target.parent)


@contextmanager
def refusal(target: Path) -> Iterator[None]:
    """Let a block write to `target`; what the system refuses is a PsofedError that names the file."""
    try:
        yield
    except OSError as error:
        raise PsofedError(f"{target}: cannot be written ({reason_of(error)})") from error


def _secure_folder(target: Path) -> None:
    """Before a file appears in a folder for the first time, make sure that a power loss cannot take the folder.

    A process killed between making the folder and syncing its parent leaves a folder that looks like any other.
    """
    if not disk().exists(target):
        with contextlib.suppress(PermissionError):  # a parent that others own lasts without us
            disk().sync_folder(target.parent.parent)


def _temporary(target: Path) -> Path:
    """Return a temporary name that keeps the suffix, which tells some libraries what to write."""
    return target.with_name(f".{target.stem}{_LEFTOVER}{disk().new_name()}{target.suffix}")


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        disk().unlink(path)


def _make_folders(folder: Path, mode: int, made: list[Path]) -> None:
    """Make a folder and those above it, and add to `made` what was made, the deepest first."""
    missing = []
    while not disk().exists(folder):
        missing.append(folder)
        folder = folder.parent
    if missing:
        with contextlib.suppress(PermissionError):
            disk().sync_folder(folder.parent)
    for place in reversed(missing):
        disk().make_folder(place, mode)
        made.insert(0, place)
        disk().sync_folder(place.parent)


def _remove_folders(made: list[Path]) -> None:
    with contextlib.suppress(OSError):  # not empty: somebody else uses it by now
        for place in made:
            disk().remove_folder(place)
