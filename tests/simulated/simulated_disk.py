"""A disk in memory that can be full, and that forgets at a power loss whatever was not synced.

It keeps two states: the one that a running process sees, and the one that has reached the platter. A file's content
gets there when the file is synced, a name when its folder is synced. After a power loss some of the rest may have got
there as well: a beginning of the unsynced data, and a beginning of each folder's unsynced changes.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any


@dataclass
class _File:
    data: bytes = b""
    synced: bytes = b""
    written: float = 0.0


Change = Callable[[dict[str, _File]], Any]
"""A change of the names in a folder."""


@dataclass
class _Folder:
    names: dict[str, _File] = field(default_factory=dict)
    synced: dict[str, _File] = field(default_factory=dict)
    pending: list[Change] = field(default_factory=list)


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
        # By their names as text, which is several times as fast as by paths.
        self._folders: dict[str, _Folder] = {"/": _Folder()}
        self._lasting: set[str] = {"/"}
        self._temporaries = 0

    # --- what Disk promises ---------------------------------------------------------------------------

    def read(self, path: Path) -> bytes:
        return self._file(path).data

    def exists(self, path: Path) -> bool:
        place, name = _split(path)
        return str(path) in self._folders or (place in self._folders and name in self._folders[place].names)

    def names(self, folder: Path) -> list[str]:
        place = str(folder)
        held = self._folders[place].names if place in self._folders else {}
        return sorted([*held, *(_split(inner)[1] for inner in self._inside(place))])

    def modified(self, path: Path) -> float:
        return self._file(path).written

    def make_folder(self, folder: Path, mode: int) -> None:
        self._change("make folder", folder, grows=True)
        self._folder(_split(folder)[0])
        self._folders.setdefault(str(folder), _Folder())

    def create(self, path: Path, mode: int) -> None:
        self._change("create", path, grows=True)
        if self.exists(path):
            raise OSError(errno.EEXIST, "File exists")
        self._rename_in(path, _put, _File(written=self.clock()))

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
        held = self._folder(str(folder))
        held.synced, held.pending = dict(held.names), []
        self._lasting.update(self._inside(str(folder)))

    def rename(self, source: Path, target: Path) -> None:
        target_place, target_name = _split(target)
        assert _split(source)[0] == target_place, "between folders a rename is two changes"
        self._change("rename", target)
        self._file(source)
        self._rename_in(source, _move, target_name)

    def link(self, source: Path, target: Path) -> None:
        self._change("link", target, grows=True)
        if self.exists(target):
            raise OSError(errno.EEXIST, "File exists")
        self._rename_in(target, _put, self._file(source))

    def unlink(self, path: Path) -> None:
        self._change("unlink", path)
        self._file(path)
        self._rename_in(path, _drop)

    def remove_folder(self, folder: Path) -> None:
        self._change("remove folder", folder)
        if self.names(folder):
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        self._folders.pop(str(folder), None)
        self._lasting.discard(str(folder))

    def new_name(self) -> str:
        self._temporaries += 1
        return f"{self._temporaries:06d}"

    # --- what happens to disks ------------------------------------------------------------------------

    def lose_power(self, machine: Path, random: Random) -> None:
        """Let the folders under `machine` be what has reached the platter, and by chance some of the rest."""
        for place in self._under(machine):
            if place != str(machine) and place not in self._lasting and random.random() < 0.5:
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

    def count(self, machine: Path) -> int:
        """Return the number of files under `machine`."""
        return len({id(file) for place in self._under(machine) for file in self._folders[place].names.values()})

    # --- helpers --------------------------------------------------------------------------------------

    def _change(self, operation: str, path: Path, *, grows: bool = False) -> None:
        self.before(operation, path)
        if grows and self.full(path):
            raise OSError(errno.ENOSPC, "No space left on device")

    def _under(self, machine: Path) -> list[str]:
        """Return the folders of a machine."""
        place, inside = str(machine), f"{machine}/"
        return [folder for folder in self._folders if folder == place or folder.startswith(inside)]

    def _inside(self, place: str) -> list[str]:
        """Return the folders in a folder."""
        return [folder for folder in self._folders if folder != "/" and _split(folder)[0] == place]

    def _folder(self, place: str) -> _Folder:
        if place not in self._folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", place)
        return self._folders[place]

    def _file(self, path: Path) -> _File:
        place, name = _split(path)
        held = self._folder(place).names
        if name not in held:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return held[name]

    def _rename_in(self, path: Path, change: Callable[..., Change], *what: Any) -> None:
        """Change the names in the folder of `path`."""
        place, name = _split(path)
        held, made = self._folder(place), change(name, *what)
        made(held.names)
        held.pending.append(made)


def _split(path: Path | str) -> tuple[str, str]:
    """Return the folder of a path, and its name there."""
    place, _, name = str(path).rpartition("/")
    return place or "/", name


def _put(name: str, file: _File) -> Change:
    return lambda names: names.__setitem__(name, file)


def _drop(name: str) -> Change:
    return lambda names: names.pop(name, None)


def _move(source: str, target: str) -> Change:
    def change(names: dict[str, _File]) -> None:
        if source in names:
            names[target] = names.pop(source)

    return change
