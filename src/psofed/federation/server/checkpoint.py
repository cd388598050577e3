"""The server's memory: all that a killed run needs to continue, and the way back to an earlier round.

After each round the state goes to ``checkpoint.npz``. Older states are kept in ``checkpoints/``: the last k, the last k
of every tenth round, of every hundredth, and so on.

The round's entry of the history goes to files of 1,000 rounds beside it: ``checkpoint.history-SESSION-NUMBER.jsonl``,
with one line for each round. Lines are only ever appended. The line of a round replaces those of this and of later
rounds before it, as after a rollback.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import reason_of, refusal, remove_leftovers, replace_by_link, write_atomically
from psofed.common.scheduler import scheduler
from psofed.federation.protocol.archive import read_archive, to_archive
from psofed.federation.protocol.layout import Arrays, ModelLayout, Vector
from psofed.federation.server.clients import Strikes
from psofed.federation.server.step import RuleMemory

CHECKPOINT_FORMAT = 6
KEEP = 10
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
    """

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._saved = ("", 0)  # session and number of the last round that was written or read

    def paths(self) -> list[Path]:
        """Return all files, including those of sessions that are about to be removed."""
        begin = f"{self.checkpoint.stem}.history-"
        names = [name for name in disk().names(self.checkpoint.parent) if name.startswith(begin)]
        return [self.checkpoint.with_name(name) for name in names if name.endswith(".jsonl")]

    def save(self, state: "ServerState") -> None:
        """Write the entries of new rounds, ahead of the checkpoint: an entry too many is not read."""
        last = self._saved[1] if self._saved[0] == state.session else 0
        new = [entry for entry in state.history if entry["round"] > last]
        # A line feed comes before each line: the last one may have been cut short.
        data = "".join("\n" + json.dumps(entry, allow_nan=False) for entry in new).encode()
        path = self._files(state)[-1]
        if not disk().exists(path):
            write_atomically(path, data)
        else:
            with refusal(path):
                disk().append(path, data)
                disk().sync(path)
        self._saved = state.session, state.round_number

    def load_recent(self, state: "ServerState") -> list[dict[str, Any]]:
        """Return the entries of the latest completed rounds."""
        recent: list[dict[str, Any]] = []
        for path in reversed(self._files(state)):
            recent = _entries_of(path, state.round_number) + recent
            if len(recent) >= RECENT_ROUNDS:
                break
        forget_old(recent)
        self._saved = state.session, state.round_number
        return recent

    def entries(self, state: "ServerState") -> Iterator[dict[str, Any]]:
        """Yield the entries of all completed rounds; one file at a time is held in memory."""
        for path in self._files(state):
            yield from _entries_of(path, state.round_number)

    def tidy(self, state: "ServerState") -> None:
        """Remove the files that no checkpoint needs; what fails is tried again next round."""
        for path in set(self.paths()) - set(self._files(state)):
            with contextlib.suppress(OSError):
                disk().unlink(path)

    def _files(self, state: "ServerState") -> list[Path]:
        """Return the files of a session up to the one of the last completed round."""
        begin = f"{self.checkpoint.stem}.history-{''.join(filter(str.isalnum, state.session))[:16]}"
        count = max(0, state.round_number - 1) // ROUNDS_PER_FILE + 1
        return [self.checkpoint.with_name(f"{begin}-{number:06d}.jsonl") for number in range(count)]


def _entries_of(path: Path, last: int) -> list[dict[str, Any]]:
    """Return the entries in one file, of rounds up to the last completed one."""
    try:
        data = disk().read(path) if disk().exists(path) else b""
    except OSError as error:
        raise PsofedError(f"{path} is damaged ({error}); move it away") from None
    entries: list[dict[str, Any]] = []
    for line in data.splitlines():
        with contextlib.suppress(ValueError):  # a line that was cut short is left out
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("round"), int):
                while entries and entries[-1]["round"] >= entry["round"]:
                    entries.pop()
                entries.append(entry)
    return [entry for entry in entries if entry["round"] <= last]


@dataclass
class ServerState:
    """State of the server after a completed round.

    Attributes
    ----------
    session : str
        Names the federation across restarts; the clients file their state under it.
    epoch : int
        How often the session was rolled back. Clients forget a model of an earlier epoch.
    settings : dict
        What must not change within a session: seed, M, pattern, …
    round_number : int
        The last completed round, 0 before the first.
    model : array (D,)
        w_{n+1}.
    layout, kept
        ModelLayout of the model, and its arrays that are not shared.
    seen : dict
        For every client, by name, the last round that was accepted from it.
    clients : dict
        See :class:`psofed.federation.server.clients.ClientRegistry`.
    strikes : dict
        See :class:`psofed.federation.server.clients.Strikes`.
    suspects : dict
        See :class:`psofed.federation.server.step.Suspects`; empty without a defence.
    memory : RuleMemory
        See :class:`psofed.federation.server.step.ServerStep`.
    history : list of dict
        One entry for each of the latest rounds, at most 1,000; the checkpoint's
        :class:`~psofed.federation.server.checkpoint.RoundHistory` has all of them.
    """

    session: str
    settings: dict[str, Any]
    round_number: int
    model: Vector
    layout: ModelLayout
    kept: Arrays
    epoch: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    clients: dict[str, Any] = field(default_factory=dict)
    strikes: dict[str, Any] = field(default_factory=lambda: Strikes().to_mapping())
    suspects: dict[str, Any] = field(default_factory=dict)
    memory: RuleMemory = field(default_factory=RuleMemory)
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def begin(cls, initial: Arrays, layout: ModelLayout, settings: Mapping[str, Any]) -> "ServerState":
        """Return the state before the first round."""
        model = np.array(layout.flatten(initial))
        return cls(scheduler().new_id(), dict(settings), 0, model, layout, layout.kept(initial))

    def add_round(self, entry: dict[str, Any]) -> None:
        """Add the entry of a round to the history, and forget the oldest one."""
        self.history.append(entry)
        forget_old(self.history)


class CheckpointStore:
    """The checkpoints of one federation.

    A round is complete once `path` names its checkpoint. Everything that the new checkpoint needs is written before
    that moment, and nothing that the old one needs is removed until after it. So a crash, a power loss or a full disk
    at any point leaves the last completed round and its whole history.

    Parameters
    ----------
    path : path
        The newest checkpoint; the others lie beside it.
    replaces : bool
        Whether a new session may replace the one that is here.
    """

    def __init__(self, path: Path, *, replaces: bool = False) -> None:
        self.path = path
        self.replaces = replaces
        self.history: RoundHistory = RoundHistory(path)

    @property
    def folder(self) -> Path:
        """Where older checkpoints are."""
        return self.path.with_name(f"{self.path.stem}s")

    def rounds(self) -> list[int]:
        """Return the completed rounds whose checkpoints are kept, in ascending order.

        A new session that replaces an older one writes its round 1 among the older session's rounds. Until that round
        is complete, `path` names the older session, and only that session's rounds are returned. If somebody has
        removed or damaged `path`, all rounds in the folder are returned.
        """
        numbered = self._numbered()
        if numbered == [1] and not disk().exists(self.path):
            return []  # a kill within the first `save` leaves this: the round was written but not completed
        newest = _readable(self.path)
        if newest is None:
            return numbered
        completed = {number: _readable(self._file(number)) for number in numbered if number <= newest.round_number}
        return [number for number, state in completed.items() if state is None or state.session == newest.session]

    def session(self) -> str | None:
        """Return the session of the newest checkpoint; None without a readable one."""
        newest = _readable(self.path)
        return None if newest is None else newest.session

    def check_replaceable(self) -> None:
        """Raise a PsofedError if a new session would replace another one without having been told to."""
        if self.replaces or not disk().exists(self.path):
            return
        try:
            content = f"round {_read(self.path).round_number} of an earlier run"
        except PsofedError:
            content = "what may be an earlier run"
        advice = "continue it with resume=True, or choose another file for checkpoint"
        raise PsofedError(f"{self.path} holds {content}: {advice}")

    def save(self, state: ServerState) -> None:
        """Complete a round."""
        self.history.save(state)
        numbered = self._file(state.round_number)
        write_atomically(numbered, to_archive(_document(state)))
        replace_by_link(numbered, self.path)
        self._tidy(state)

    def settle(self) -> None:
        """Make the newest checkpoint survive a power loss, before a round or a rollback is built on it.

        A server that was killed between naming a checkpoint and syncing its folder leaves a name that is there for
        everybody until the machine loses power.
        """
        if disk().exists(self.path):
            try:
                disk().sync_folder(self.path.parent)
            except OSError as error:
                raise PsofedError(f"{self.path}: cannot be made safe ({reason_of(error)})") from error

    def load(self, round_number: int | None = None) -> ServerState:
        """Read the newest checkpoint or that of a round; a PsofedError says what is wrong."""
        path = self.path if round_number is None else self._file(round_number)
        if not disk().exists(path):
            others = self._way_back() or ": no round has been completed"
            raise PsofedError(f"there is no checkpoint {path}{others}")
        try:
            state = _read(path)
        except PsofedError as error:
            raise PsofedError(f"{error}{self._way_back()}") from None
        state.history = self.history.load_recent(state)
        return state

    def load_usable(self) -> ServerState:
        """Read the newest checkpoint, or raise a PsofedError that names others if it is damaged or poisoned."""
        self.settle()
        state = self.load()
        with np.errstate(over="ignore"):
            is_usable = np.isfinite(np.sum(np.square(state.model.astype(np.float64))))
        if not is_usable:
            problem = f"the model in {self.path} is not finite, or too large to compute with"
            raise PsofedError(f"{problem}{self._way_back()}")
        return state

    def resume(self, layout: ModelLayout, settings: Mapping[str, Any]) -> ServerState:
        """Read the newest checkpoint, which must be usable and of the same model and settings."""
        state = self.load_usable()
        before = state.layout.columns
        if layout.columns != before and state.layout == replace(layout, columns=before):
            named = "columns without names" if before is None else f"the columns {before}"
            given = layout.columns or "columns without names"
            problem = f"{self.path} belongs to a run with {named}; got {given}"
            raise PsofedError(f"{problem}: a resumed run must keep its columns")
        if state.layout != layout:
            raise PsofedError(f"{self.path} holds another model than the one given")
        if changed := [name for name, value in settings.items() if state.settings.get(name) != value]:
            values = ", ".join(f"{name} = {state.settings.get(name)}" for name in changed)
            raise PsofedError(f"{self.path} was made with {values}; a resumed run must keep that")
        return state

    def _way_back(self) -> str:
        """Return the end of a sentence about a checkpoint that cannot be used: which others there are."""
        kept = ", ".join(map(str, self.rounds()))
        return f"; `psofed federation rollback --to-round N` goes back to another (there are {kept})" if kept else ""

    def rollback(self, round_number: int) -> ServerState:
        """Make the checkpoint of a round the newest, and give the clients its model.

        What the clients have learned since then rests on a model that is not trusted any more: the next time they are
        drawn they are given the full model. Their places in their data stay as they are.
        """
        kept = self.rounds()
        if round_number not in kept:
            rounds = ", ".join(map(str, kept)) or "none"
            raise PsofedError(f"--to-round {round_number}: must be a round with a checkpoint; there are {rounds}")
        self.settle()
        state = self.load(round_number)
        # Larger than every epoch so far: a checkpoint may be older than the last rollback.
        readable = filter(None, map(_readable, (self.path, *map(self._file, kept))))
        state.epoch = 1 + max(other.epoch for other in (state, *readable))
        state.seen = dict.fromkeys(state.seen, -1)
        self.save(state)
        return state

    def _file(self, round_number: int) -> Path:
        return self.folder / f"{round_number:08d}.npz"

    def _numbered(self) -> list[int]:
        paths = [Path(name) for name in disk().names(self.folder)]
        return sorted(int(path.stem) for path in paths if path.suffix == ".npz" and path.stem.isdigit())

    def _tidy(self, state: ServerState) -> None:
        """Remove what no checkpoint needs any more. What cannot be removed now goes after the next round."""
        numbered = self._numbered()
        completed = [number for number in numbered if number <= state.round_number]
        for number in set(numbered) - _kept(completed, KEEP):
            with contextlib.suppress(OSError):
                disk().unlink(self._file(number))
        self.history.tidy(state)
        remove_leftovers(self.path.parent, self.path.stem)
        remove_leftovers(self.folder)


def _document(state: ServerState) -> dict[str, Any]:
    fields = {name: value for name, value in vars(state).items() if name != "history"}
    return {"checkpoint": CHECKPOINT_FORMAT, **fields, "layout": state.layout.text, "memory": vars(state.memory)}


def _read(path: Path) -> ServerState:
    document = read_archive(path, "checkpoint", CHECKPOINT_FORMAT)
    try:
        del document["checkpoint"]
        layout, memory = ModelLayout.from_text(document.pop("layout")), RuleMemory(**document.pop("memory"))
        return ServerState(layout=layout, memory=memory, **document)
    except (ValueError, KeyError, TypeError) as error:
        raise PsofedError(f"{path} is not a psofed checkpoint: {error}") from None


def _readable(path: Path) -> ServerState | None:
    try:
        return _read(path)
    except PsofedError:
        return None  # `load` says what is wrong with it


def _kept(rounds: list[int], keep: int) -> set[int]:
    """Return the rounds to keep: the last `keep` multiples of each power of ten.

    Examples
    --------
    >>> sorted(_kept(list(range(1, 26)), keep=2))
    [10, 20, 24, 25]
    """
    kept: set[int] = set()
    step = 1
    while rounds and step <= max(1, rounds[-1]):
        kept.update([number for number in rounds if number % step == 0][-keep:])
        step *= 10
    return kept
