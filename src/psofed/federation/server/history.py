"""The history of a run: the latest rounds in memory, all of them on disk, in files of 1,000 rounds.

A file is called ``checkpoint.history-SESSION-NUMBER.jsonl`` and has one line for each round; once the next file has
begun it is compressed (``.jsonl.gz``). Lines are only ever appended. The line of a round replaces those of this and of
later rounds before it, as after a rollback.
"""

import contextlib
import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import reason_of, write_atomically

if TYPE_CHECKING:
    from psofed.federation.server.checkpoint import ServerState

ROUNDS_PER_FILE = 1000
RECENT_ROUNDS = 1000
_RECENT_PARTICIPANTS = 20_000  # in the entries in memory, each of which takes some 2 kB


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
        self._saved = ("", 0)  # session and number of the last round that was written or read
        self._is_whole = False  # whether the last line certainly ends with a line feed

    def paths(self) -> list[Path]:
        """Return all files, including those of sessions that are about to be removed."""
        begin = f"{self.checkpoint.stem}.history-"
        names = [name for name in disk().names(self.checkpoint.parent) if name.startswith(begin)]
        return [self.checkpoint.with_name(name) for name in names if name.endswith((".jsonl", ".jsonl.gz"))]

    def save(self, state: "ServerState") -> None:
        """Write the entries of new rounds, ahead of the checkpoint: an entry too many is not read."""
        last = self._saved[1] if self._saved[0] == state.session else 0
        new = [entry for entry in state.history if entry["round"] > last]
        data = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in new).encode()
        path = self._path(state, self._number(state))
        if not disk().exists(path):
            write_atomically(path, data)
        else:
            was_whole, self._is_whole = self._is_whole, False
            try:
                disk().append(path, data if was_whole else b"\n" + data)
                disk().sync(path)
            except OSError as error:
                raise PsofedError(f"{path}: cannot be written ({reason_of(error)})") from error
        self._saved, self._is_whole = (state.session, state.round_number), True

    def load_recent(self, state: "ServerState") -> list[dict[str, Any]]:
        """Return the entries of the latest completed rounds."""
        recent: list[dict[str, Any]] = []
        for number in range(self._number(state), -1, -1):
            recent = self._entries_of(state, number) + recent
            if len(recent) >= RECENT_ROUNDS:
                break
        forget_old(recent)
        self._saved = state.session, state.round_number
        return recent

    def entries(self, state: "ServerState") -> Iterator[dict[str, Any]]:
        """Yield the entries of all completed rounds; one file at a time is held in memory."""
        for number in range(self._number(state) + 1):
            yield from self._entries_of(state, number)

    def tidy(self, state: "ServerState") -> None:
        """Compress complete files and remove those that no checkpoint needs; what fails is tried again next round."""
        current, needed = self._number(state), set()
        for number in range(current + 1):
            path, packed = self._path(state, number), self._path(state, number, ".gz")
            needed |= {path, packed}
            if number < current and disk().exists(path):
                with contextlib.suppress(PsofedError, OSError):
                    earlier = disk().read(packed) if disk().exists(packed) else b""
                    write_atomically(packed, earlier + gzip.compress(disk().read(path), mtime=0))
                    needed.remove(path)
        for path in self.paths():
            if path not in needed:
                with contextlib.suppress(OSError):
                    disk().unlink(path)

    def _number(self, state: "ServerState") -> int:
        return max(0, state.round_number - 1) // self.rounds_per_file

    def _path(self, state: "ServerState", number: int, suffix: str = "") -> Path:
        session = "".join(filter(str.isalnum, state.session))[:16]
        return self.checkpoint.with_name(f"{self.checkpoint.stem}.history-{session}-{number:06d}.jsonl{suffix}")

    def _entries_of(self, state: "ServerState", number: int) -> list[dict[str, Any]]:
        """Return the entries of one file, of rounds up to the state's."""
        data, packed, path = b"", self._path(state, number, ".gz"), self._path(state, number)
        try:
            if disk().exists(packed):
                data = gzip.decompress(disk().read(packed))
            if disk().exists(path):
                data += disk().read(path)
        except (OSError, EOFError, zlib.error) as error:
            raise PsofedError(f"{packed} is damaged ({error}); move it away") from None
        entries: list[dict[str, Any]] = []
        for line in data.splitlines():
            with contextlib.suppress(ValueError):  # a line that was cut short is left out
                entry = json.loads(line)
                if isinstance(entry, dict) and isinstance(entry.get("round"), int):
                    while entries and entries[-1]["round"] >= entry["round"]:
                        entries.pop()
                    entries.append(entry)
        return [entry for entry in entries if entry["round"] <= state.round_number]
