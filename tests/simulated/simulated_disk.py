"""A disk in memory that can be full, and that forgets at a power loss whatever was not synced.

It keeps two states: the one that a running process sees, and the one that has reached the platter. A file's content
gets there when the file is synced, a name when its folder is synced. After a power loss some of the rest may have got
there as well: a beginning of the unsynced data, and a beginning of each folder's unsynced changes.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any


@dataclass
class _File:
    data: bytes = b""
    synced: bytes = b""
    written: float = 0.0


@dataclass
class _Folder:
    names: dict[str, _File] = field(default_factory=dict)
    synced: dict[str, _File] = field(default_factory=dict)
    pending: list[Callable[[dict[str, _File]], Any]] = field(default_factory=list)


class SimulatedDisk:
    """The disks of all machines of a federation; `psofed.common.disk.Disk` says what the operations mean.

    Parameters
    ----------
    before : callable
        Called as ``before(operation, path)`` ahead of every change; it may raise OSError, or whatever kills a process.
    clock : callable
        Seconds, for the time a file was written.
    """

    def __init__(
        self,
        before: Callable[[str, Path], None] = lambda operation, path: None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.before = before
        self.clock = clock
        self.full: Callable[[Path], bool] = lambda path: False
        self.locks: set[Path] = set()
        self._folders: dict[Path, _Folder] = {Path("/"): _Folder()}
        self._lasting: set[Path] = {Path("/")}
        self._temporaries = 0

    # --- what Disk promises ---------------------------------------------------------------------------

    def read(self, path: Path) -> bytes:
        return self._file(path).data

    def exists(self, path: Path) -> bool:
        return path in self._folders or path.name in self._folders.get(path.parent, _Folder()).names

    def names(self, folder: Path) -> list[str]:
        held = self._folders.get(folder, _Folder()).names
        return sorted([*held, *(place.name for place in self._folders if place.parent == folder != place)])

    def modified(self, path: Path) -> float:
        return self._file(path).written

    def make_folder(self, folder: Path, mode: int) -> None:
        self._change("make folder", folder, grows=True)
        self._folder(folder.parent)
        self._folders.setdefault(folder, _Folder())

    def create(self, path: Path, mode: int) -> None:
        self._change("create", path, grows=True)
        if self.exists(path):
            raise OSError(errno.EEXIST, "File exists")
        self._rename_in(path.parent, _put(path.name, _File(written=self.clock())))

    def append(self, path: Path, data: bytes) -> None:
        file = self._file(path)
        try:
            self._change("write", path, grows=True)
        except OSError:
            file.data += data[: len(data) // 2]  # a full disk takes what fits
            raise
        file.data += data
        file.written = self.clock()

    def sync(self, path: Path) -> None:
        self._change("sync", path)
        file = self._file(path)
        file.synced = file.data

    def sync_folder(self, folder: Path) -> None:
        self._change("sync folder", folder)
        held = self._folder(folder)
        held.synced, held.pending = dict(held.names), []
        self._lasting.update(place for place in self._folders if place.parent == folder)

    def rename(self, source: Path, target: Path) -> None:
        assert source.parent == target.parent, "between folders a rename is two changes"
        self._change("rename", target)
        self._file(source)
        self._rename_in(source.parent, _move(source.name, target.name))

    def link(self, source: Path, target: Path) -> None:
        self._change("link", target, grows=True)
        if self.exists(target):
            raise OSError(errno.EEXIST, "File exists")
        self._rename_in(target.parent, _put(target.name, self._file(source)))

    def unlink(self, path: Path) -> None:
        self._change("unlink", path)
        self._file(path)
        self._rename_in(path.parent, _drop(path.name))

    def remove_folder(self, folder: Path) -> None:
        self._change("remove folder", folder)
        if self.names(folder):
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        self._folders.pop(folder, None)
        self._lasting.discard(folder)

    @contextmanager
    def lock(self, path: Path) -> Iterator[bool]:
        if path in self.locks:
            yield False
            return
        self.locks.add(path)
        try:
            yield True
        finally:
            self.locks.discard(path)

    def new_name(self) -> str:
        self._temporaries += 1
        return f"{self._temporaries:06d}"

    # --- what happens to disks ------------------------------------------------------------------------

    def lose_power(self, machine: Path, random: Random) -> None:
        """Let the folders under `machine` be what has reached the platter, and by chance some of the rest."""
        for place in [place for place in self._folders if place == machine or machine in place.parents]:
            if place != machine and place not in self._lasting and random.random() < 0.5:
                del self._folders[place]
                continue
            held = self._folders[place]
            names = dict(held.synced)
            for change in held.pending[: random.randint(0, len(held.pending))]:
                change(names)
            held.names, held.synced, held.pending = names, dict(names), []
            self._lasting.add(place)
            for file in names.values():
                kept = len(file.synced) + random.randint(0, max(0, len(file.data) - len(file.synced)))
                file.data = file.synced = file.data[:kept]

    def count(self, machine: Path) -> tuple[int, int]:
        """Return the number of files under `machine` and their bytes."""
        files = {
            id(file): file
            for place, held in self._folders.items()
            if place == machine or machine in place.parents
            for file in held.names.values()
        }
        return len(files), sum(len(file.data) for file in files.values())

    def copy(self) -> "SimulatedDisk":
        """Return a disk of the same content, as it is seen now, all of it synced."""
        other = SimulatedDisk(clock=self.clock)
        twins: dict[int, _File] = {}
        for place, held in self._folders.items():
            names = {
                name: twins.setdefault(id(file), _File(file.data, file.data, file.written))
                for name, file in held.names.items()
            }
            other._folders[place] = _Folder(names, dict(names))
            other._lasting.add(place)
        return other

    # --- helpers --------------------------------------------------------------------------------------

    def _change(self, operation: str, path: Path, *, grows: bool = False) -> None:
        self.before(operation, path)
        if grows and self.full(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    def _folder(self, place: Path) -> _Folder:
        if place not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(place))
        return self._folders[place]

    def _file(self, path: Path) -> _File:
        held = self._folder(path.parent).names
        if path.name not in held:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return held[path.name]

    def _rename_in(self, place: Path, change: Callable[[dict[str, _File]], Any]) -> None:
        held = self._folder(place)
        change(held.names)
        held.pending.append(change)


def _put(name: str, file: _File) -> Callable[[dict[str, _File]], Any]:
    return lambda names: names.__setitem__(name, file)


def _drop(name: str) -> Callable[[dict[str, _File]], Any]:
    return lambda names: names.pop(name, None)


def _move(source: str, target: str) -> Callable[[dict[str, _File]], Any]:
    def change(names: dict[str, _File]) -> None:
        if source in names:
            names[target] = names.pop(source)

    return change
