"""The disk, one operation at a time: the seam between the project's files and the machine.

Whatever must survive a crash is written through these operations, so a simulated disk can fail, fill up or lose power
between any two of them (``tests/simulated``). A file's content is safe once the file was synced, and its name once its
folder was synced.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


class Disk:
    """Single operations on the machine's files; each raises OSError if the system refuses it."""

    def read(self, path: Path) -> bytes:
        """Return a file's content."""
        return path.read_bytes()

    def exists(self, path: Path) -> bool:
        """Whether there is such a file or folder."""
        return path.exists()

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted; none if there is no such folder."""
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def modified(self, path: Path) -> float:
        """Return when a file was last written, in seconds."""
        return path.stat().st_mtime

    def make_folder(self, folder: Path, mode: int) -> None:
        """Make one folder; it may be there already."""
        folder.mkdir(mode=mode, exist_ok=True)

    def create(self, path: Path, mode: int) -> None:
        """Create an empty file, which must not be there yet."""
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))

    def append(self, path: Path, data: bytes) -> None:
        """Write at the end of a file; after an error a part of `data` may be there."""
        with path.open("ab") as file:
            file.write(data)

    def sync(self, path: Path) -> None:
        """Make a file's content survive a power loss."""
        _sync(path, os.O_RDWR)  # Windows syncs only what may be written

    def sync_folder(self, folder: Path) -> None:
        """Make the names in a folder survive a power loss; Windows has no such operation and needs none."""
        if os.name != "nt":
            _sync(folder, os.O_RDONLY)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of whatever had that name."""
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, which must be free."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def remove_folder(self, folder: Path) -> None:
        """Remove an empty folder."""
        folder.rmdir()

    @contextmanager
    def lock(self, path: Path) -> Iterator[bool]:
        """Hold a lock until the block or the process ends; False if another process holds it."""
        from filelock import FileLock, Timeout

        with ExitStack() as stack:
            try:
                stack.enter_context(FileLock(path, timeout=0, mode=0o600, thread_local=False))
                is_held = True
            except Timeout:
                is_held = False
            yield is_held

    def new_name(self) -> str:
        """Return a name for a temporary file that nobody else uses."""
        return secrets.token_hex(6)


def disk() -> Disk:
    """Return the disk that this process writes to."""
    return _disks[-1]


@contextmanager
def use_disk(other: Disk) -> Iterator[None]:
    """Write to another disk within the block: a simulated one, in tests."""
    _disks.append(other)
    try:
        yield
    finally:
        _disks.pop()


_disks: list[Disk] = [Disk()]


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
