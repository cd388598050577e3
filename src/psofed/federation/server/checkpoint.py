"""The server's memory: all that a killed run needs to continue, and the way back to an earlier round.

After each round the state goes to ``checkpoint.npz``, the round's entry of the history to a file of lines beside it.
Older states are kept in ``checkpoints/``: the last k, the last k of every tenth round, of every hundredth, and so on.
"""

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import reason_of, remove_leftovers, replace_by_link, write_atomically
from psofed.federation.protocol.archive import read_archive, write_archive
from psofed.federation.protocol.layout import ModelLayout, Vector

CHECKPOINT_FORMAT = 3
KEEP = 10


@dataclass
class ServerState:
    """State of the strategy after a completed round.

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
    conduct : dict
        See :class:`psofed.federation.server.checks.Conduct`.
    scale : dict
        See :class:`psofed.federation.server.plausibility.Plausibility`.
    suspects : dict
        See :class:`psofed.federation.server.suspects.Suspects`; empty without a defence.
    history : list of dict
        One entry for each round, as in the result.
    """

    session: str
    settings: dict[str, Any]
    round_number: int
    model: Vector
    layout: ModelLayout
    kept: ArrayRecord
    epoch: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    clients: dict[str, Any] = field(default_factory=dict)
    conduct: dict[str, Any] = field(default_factory=lambda: {"counts": {}, "resting": {}})
    scale: dict[str, Any] = field(default_factory=dict)
    suspects: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


class CheckpointStore:
    """The checkpoints of one federation.

    A round is complete once `path` names its checkpoint. Everything that the new checkpoint needs is written before
    that moment, and nothing that the old one needs is removed until after it. So a crash, a power loss or a full disk
    at any point leaves the last completed round and its whole history.

    Parameters
    ----------
    path : path
        The newest checkpoint; the others lie beside it.
    keep : int
        k.
    """

    def __init__(self, path: Path, keep: int = KEEP) -> None:
        self.path = path
        self.keep = keep
        self._appendable: Path | None = None  # the history on disk, if it ends with the last saved round
        self._written = 0  # its entries

    @property
    def folder(self) -> Path:
        """Where older checkpoints are."""
        return self.path.with_name(f"{self.path.stem}s")

    @property
    def history_paths(self) -> list[Path]:
        """Files with one line for each round: one, and another while a session begins or is rolled back."""
        begin = f"{self.path.stem}.history"
        names = disk().names(self.path.parent)
        return [
            self.path.with_name(name) for name in names if name.startswith(begin) and name.endswith(".jsonl")
        ]

    def rounds(self) -> list[int]:
        """Return the completed rounds whose checkpoints are kept, in ascending order.

        A new session that replaces an older one writes its round 1 among the older session's rounds. Until that round
        is complete, `path` names the older session, and only that session's rounds are returned. If somebody has
        removed or damaged `path`, all rounds in the folder are returned.
        """
        numbered = self._numbered()
        if numbered == [1] and not disk().exists(self.path):
            return []  # a kill within the first `save` leaves this: the round was written but not completed
        try:
            newest = _from_archive(self.path)
        except PsofedError:
            return numbered
        return [
            number
            for number in numbered
            if number <= newest.round_number and _session_of(self._file(number)) in (newest.session, None)
        ]

    def session(self) -> str | None:
        """Return the session of the newest checkpoint; None without a readable one."""
        return _session_of(self.path)

    def save(self, state: ServerState) -> None:
        """Complete a round."""
        self._save_history(state)
        numbered = self._file(state.round_number)
        write_archive(numbered, *_to_archive(state))
        replace_by_link(numbered, self.path)
        self._tidy(state)

    def settle(self) -> None:
        """Make the newest checkpoint survive a power loss, before a round is built on it.

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
            raise PsofedError(
                f"there is no checkpoint {path}: no completed round to take up{self.way_back()}"
            )
        try:
            state = _from_archive(path)
        except PsofedError as error:
            raise PsofedError(f"{error}{self.way_back()}") from None
        state.history = self._load_history(state)
        self._appendable = None
        return state

    def way_back(self) -> str:
        """Return the end of a sentence about a checkpoint that cannot be used: which others there are."""
        kept = ", ".join(map(str, self.rounds()))
        return (
            f"; `psofed federation rollback --to-round N` goes back to another (there are {kept})"
            if kept
            else ""
        )

    def rollback(self, round_number: int) -> ServerState:
        """Make the checkpoint of a round the newest, and give the clients its model.

        What the clients have learned since then rests on a model that is not trusted any more: the next time they are
        drawn they are given the full model. Their places in their data stay as they are.
        """
        kept = self.rounds()
        if round_number not in kept:
            there = ", ".join(map(str, kept)) or "none"
            raise PsofedError(
                f"to_round = {round_number}: must be a round with a checkpoint; there are {there}"
            )
        state = self.load(round_number)
        # Larger than every epoch so far: a checkpoint may be older than the last rollback.
        state.epoch = 1 + max(self._epochs(kept))
        state.seen = dict.fromkeys(state.seen, -1)
        self.save(state)
        return state

    def _epochs(self, kept: list[int]) -> list[int]:
        epochs = [0]
        for path in (self.path, *map(self._file, kept)):
            with contextlib.suppress(PsofedError):
                epochs.append(_from_archive(path).epoch)
        return epochs

    def _file(self, round_number: int) -> Path:
        return self.folder / f"{round_number:08d}.npz"

    def _numbered(self) -> list[int]:
        paths = [Path(name) for name in disk().names(self.folder)]
        return sorted(int(path.stem) for path in paths if path.suffix == ".npz" and path.stem.isdigit())

    def _history_file(self, state: ServerState) -> Path:
        """Return the history's file, a new one after each rollback."""
        session = "".join(filter(str.isalnum, state.session))[:16]
        return self.path.with_name(f"{self.path.stem}.history-{session}-{state.epoch}.jsonl")

    def _save_history(self, state: ServerState) -> None:
        """Write the history ahead of the checkpoint: an entry too many is not read, a missing one would be."""
        path = self._history_file(state)
        appendable, self._appendable = self._appendable == path, None
        new = state.history[self._written :] if appendable else state.history
        data = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in new).encode()
        if appendable:
            try:
                disk().append(path, data)
                disk().sync(path)
            except OSError as error:
                raise PsofedError(f"{path}: cannot be written ({reason_of(error)})") from error
        else:
            write_atomically(path, data)
        self._appendable, self._written = path, len(state.history)

    def _load_history(self, state: ServerState) -> list[dict[str, Any]]:
        """Read the entries of the completed rounds; a later one may be there, half-written, and is left out."""
        path = self._history_file(state)
        if not disk().exists(path):
            # Of an earlier epoch: its rounds up to the rollback are in the history of every later epoch as well.
            stem = path.stem.rpartition("-")[0]
            later = [other for other in self.history_paths if other.stem.rpartition("-")[0] == stem]
            if not later:
                return []
            path = max(later, key=lambda other: int(other.stem.rpartition("-")[2]))
        entries: list[dict[str, Any]] = []
        for line in disk().read(path).splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if (
                    isinstance(entry, dict)
                    and entry.get("round", state.round_number + 1) <= state.round_number
                ):
                    entries.append(entry)
        return entries

    def _tidy(self, state: ServerState) -> None:
        """Remove what no checkpoint needs any more. What cannot be removed now goes after the next round."""
        numbered = self._numbered()
        completed = [number for number in numbered if number <= state.round_number]
        unneeded = [self._file(number) for number in set(numbered) - _kept(completed, self.keep)]
        unneeded += [path for path in self.history_paths if path != self._history_file(state)]
        for path in unneeded:
            with contextlib.suppress(OSError):
                disk().unlink(path)
        remove_leftovers(self.path.parent, self.path.stem)
        remove_leftovers(self.folder)


def _to_archive(state: ServerState) -> tuple[dict[str, Any], dict[str, Any]]:
    document = {
        "checkpoint": CHECKPOINT_FORMAT,
        "session": state.session,
        "epoch": state.epoch,
        "settings": state.settings,
        "round": state.round_number,
        "layout": state.layout.to_text(),
        "seen": dict(sorted(state.seen.items())),
        "clients": state.clients,
        "conduct": state.conduct,
        "scale": state.scale,
        "suspects": state.suspects,
    }
    return document, {"model": state.model} | {f"kept/{k}": v.numpy() for k, v in state.kept.items()}


def _from_archive(path: Path) -> ServerState:
    document, arrays = read_archive(path, "checkpoint", CHECKPOINT_FORMAT)
    try:
        return ServerState(
            session=document["session"],
            epoch=document["epoch"],
            settings=document["settings"],
            round_number=document["round"],
            model=arrays["model"],
            layout=ModelLayout.from_text(document["layout"]),
            kept=ArrayRecord({k[5:]: Array(v) for k, v in arrays.items() if k.startswith("kept/")}),
            seen=dict(document["seen"]),
            clients=dict(document.get("clients", {})),
            conduct=document["conduct"],
            scale=document["scale"],
            suspects=dict(document.get("suspects", {})),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PsofedError(f"{path} is not a psofed checkpoint: {error}") from None


def _session_of(path: Path) -> str | None:
    try:
        return _from_archive(path).session
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
