"""The history of a run: the latest rounds in memory, all of them on disk, in files of 1,000 rounds.

A file is called ``checkpoint.history-SESSION-EPOCH-NUMBER.jsonl`` and has one line for each round. Once the next file
has begun it is compressed (``.jsonl.gz``). A rollback begins a new epoch: the file of the round it returns to is
written again under that epoch, earlier files stay as they are.
"""

import contextlib
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import reason_of, write_atomically

ROUNDS_PER_FILE = 1000
RECENT_ROUNDS = 1000
_RECENT_PARTICIPANTS = 20_000  # in the entries in memory, each of which takes some 2 kB


class RecordedState(Protocol):
    """The parts of a server's state that its history depends on."""

    session: str
    epoch: int
    round_number: int
    history: list[dict[str, Any]]


def forget_old(history: list[dict[str, Any]]) -> None:
    """Remove the oldest entries from memory: at most 1,000 stay, fewer in a large federation.

    Examples
    --------
    >>> history = [{"round": n, "participants": []} for n in range(1, 2001)]
    >>> forget_old(history)
    >>> history[0]["round"], len(history)
    (1001, 1000)
    """
    participants = len(history[-1].get("participants", ())) if history else 0
    keep = max(10, min(RECENT_ROUNDS, _RECENT_PARTICIPANTS // max(1, participants)))
    del history[:-keep]


class RoundHistory:
    """The history's files beside a checkpoint.

    Parameters
    ----------
    checkpoint : path
        The newest checkpoint.
    rounds_per_file : int
        Rounds in one file.
    """

    def __init__(self, checkpoint: Path, rounds_per_file: int = ROUNDS_PER_FILE) -> None:
        self.checkpoint = checkpoint
        self.rounds_per_file = rounds_per_file
        self._appendable: Path | None = None  # ends with the round that was saved last
        self._last = 0  # that round

    def paths(self) -> list[Path]:
        """Return all files, including those of sessions and epochs that are about to be removed."""
        begin = f"{self.checkpoint.stem}.history-"
        names = [name for name in disk().names(self.checkpoint.parent) if name.startswith(begin)]
        return [self.checkpoint.with_name(name) for name in names if name.endswith((".jsonl", ".jsonl.gz"))]

    def save(self, state: RecordedState) -> None:
        """Write the entries of new rounds, ahead of the checkpoint: an entry too many is not read."""
        path = self._path(state)
        appendable, self._appendable = self._appendable == path, None
        if appendable:
            new = [entry for entry in state.history if entry["round"] > self._last]
            try:
                disk().append(path, _lines(new))
                disk().sync(path)
            except OSError as error:
                raise PsofedError(f"{path}: cannot be written ({reason_of(error)})") from error
        else:
            number = self._number(state)
            written = self._files(state).get(number)
            entries = {} if written is None else {entry["round"]: entry for entry in _read(written)}
            entries |= {entry["round"]: entry for entry in state.history}
            first, last = number * self.rounds_per_file, state.round_number
            write_atomically(path, _lines([entries[n] for n in sorted(entries) if first < n <= last]))
        self._appendable, self._last = path, state.round_number

    def load_recent(self, state: RecordedState) -> list[dict[str, Any]]:
        """Return the entries of the latest completed rounds."""
        self._appendable = None
        entries: dict[int, dict[str, Any]] = {}
        for _, path in sorted(self._files(state).items(), reverse=True):
            older = {entry["round"]: entry for entry in _read(path) if entry["round"] <= state.round_number}
            entries = older | entries
            if len(entries) >= RECENT_ROUNDS:
                break
        recent = [entries[number] for number in sorted(entries)]
        forget_old(recent)
        return recent

    def entries(self, state: RecordedState) -> Iterator[dict[str, Any]]:
        """Yield the entries of all completed rounds; one file at a time is held in memory."""
        last = 0
        for _, path in sorted(self._files(state).items()):
            for entry in _read(path):
                if last < entry["round"] <= state.round_number:
                    last = entry["round"]
                    yield entry

    def tidy(self, state: RecordedState) -> None:
        """Compress complete files and remove those that no checkpoint needs; what fails is tried again next round."""
        current, chosen = self._number(state), self._files(state)
        needed = {path for number, path in chosen.items() if number <= current}
        for number, path in chosen.items():
            if number < current and path.suffix != ".gz":
                packed = path.with_name(f"{path.name}.gz")
                with contextlib.suppress(PsofedError, OSError):
                    write_atomically(packed, gzip.compress(disk().read(path), mtime=0))
                    needed = needed - {path} | {packed}
        for path in self.paths():
            if path not in needed:
                with contextlib.suppress(OSError):
                    disk().unlink(path)

    def _number(self, state: RecordedState) -> int:
        return max(0, state.round_number - 1) // self.rounds_per_file

    def _path(self, state: RecordedState) -> Path:
        name = f"{self.checkpoint.stem}.history-{_short(state)}-{state.epoch}-{self._number(state):06d}.jsonl"
        return self.checkpoint.with_name(name)

    def _files(self, state: RecordedState) -> Mapping[int, Path]:
        """Return the session's files by number: of each the latest epoch up to the state's own.

        If they have no file, a later epoch has rewritten it and removed the others. Its rounds up to the rollback are
        the same, and no checkpoint beyond them is left.
        """
        named = re.compile(rf"{re.escape(self.checkpoint.stem)}\.history-{_short(state)}-(\d+)-(\d+)\.")
        files: dict[int, list[tuple[bool, int, Path]]] = {}
        for path in self.paths():
            if (match := named.match(path.name)) is not None:
                epoch = int(match[1])
                files.setdefault(int(match[2]), []).append((epoch <= state.epoch, epoch, path))
        return {number: max(versions)[-1] for number, versions in files.items()}


def _short(state: RecordedState) -> str:
    return "".join(filter(str.isalnum, state.session))[:16]


def _lines(entries: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in entries).encode()


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of one file; a line that was cut short is left out."""
    data = disk().read(path)
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines():
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("round"), int):
                yield entry
