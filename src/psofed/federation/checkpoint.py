"""The server's memory: all that a killed run needs to go on, and the way back to an earlier round.

After each round the state goes to ``checkpoint.npz``, the round's entry of the history to a file of lines beside it.
Older states are kept in ``checkpoints/``: the last k, the last k of every tenth round, of every hundredth, and so on.
"""

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord

from psofed.common.errors import PsofedError
from psofed.federation.archive import read_archive, write_archive
from psofed.federation.files import write_atomically
from psofed.federation.layout import Layout, Vector

CHECKPOINT_FORMAT = 3
KEEP = 10


@dataclass
class ServerState:
    """What the strategy knows after a completed round.

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
        Layout of the model, and its arrays that are not shared.
    seen : dict
        For every node, by name, the last round that was accepted from it.
    conduct : dict
        See :class:`psofed.federation.checks.Conduct`.
    scale : dict
        See :class:`psofed.federation.plausibility.Plausibility`.
    suspects : dict
        See :class:`psofed.federation.suspects.Suspects`; empty without a defence.
    history : list of dict
        One entry for each round, as in the result.
    """

    session: str
    settings: dict[str, Any]
    round_number: int
    model: Vector
    layout: Layout
    kept: ArrayRecord
    epoch: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    conduct: dict[str, Any] = field(default_factory=lambda: {"counts": {}, "resting": {}})
    scale: dict[str, Any] = field(default_factory=dict)
    suspects: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)


class CheckpointStore:
    """The checkpoints of one federation.

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
        self._written = -1  # entries of the history on disk, or -1 if that is not known

    @property
    def history_path(self) -> Path:
        """The history, one line for each round."""
        return self.path.with_suffix(".history.jsonl")

    @property
    def folder(self) -> Path:
        """Where older checkpoints are."""
        return self.path.with_name(f"{self.path.stem}s")

    def rounds(self) -> list[int]:
        """Return the rounds whose checkpoints are kept, in ascending order."""
        return sorted(int(path.stem) for path in self.folder.glob("*.npz") if path.stem.isdigit())

    def save(self, state: ServerState) -> None:
        """Write `state`, each file whole or not at all; the history first, so that none of it can be missing."""
        self._save_history(state)
        if self._written == state.round_number and state.round_number <= 1:
            for number in self.rounds():  # of an earlier session
                self._file(number).unlink()
        numbered = self._file(state.round_number)
        write_archive(numbered, *_to_archive(state))
        _replace_by_link(numbered, self.path)
        for number in set(self.rounds()) - _kept(self.rounds(), self.keep):
            self._file(number).unlink(missing_ok=True)

    def load(self, round_number: int | None = None) -> ServerState:
        """Read the newest checkpoint or that of a round; a PsofedError says what is wrong."""
        path = self.path if round_number is None else self._file(round_number)
        if not path.exists():
            raise PsofedError(
                f"there is no checkpoint {path}: no completed round to take up{self.way_back()}"
            )
        try:
            state = _from_archive(path)
        except PsofedError as error:
            raise PsofedError(f"{error}{self.way_back()}") from None
        state.history = self._load_history(state.round_number)
        self._written = -1
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
        """Make the checkpoint of a round the newest, and let the clients begin anew from its model.

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
        state.epoch += 1
        state.seen = dict.fromkeys(state.seen, -1)
        for number in kept:
            if number > round_number:
                self._file(number).unlink()
        self.save(state)
        return state

    def _file(self, round_number: int) -> Path:
        return self.folder / f"{round_number:08d}.npz"

    def _save_history(self, state: ServerState) -> None:
        lines = [
            json.dumps(entry, allow_nan=False) + "\n" for entry in state.history[max(0, self._written) :]
        ]
        if self._written < 0:
            write_atomically(self.history_path, "".join(lines).encode(), mode=0o600)
        else:
            with self.history_path.open("ab") as file:
                file.write("".join(lines).encode())
                file.flush()
                os.fsync(file.fileno())
        self._written = len(state.history)

    def _load_history(self, rounds: int) -> list[dict[str, Any]]:
        """Read the entries of the first `rounds` rounds; a later one may be there, half-written, and is left out."""
        if not self.history_path.exists():
            return []
        entries: list[dict[str, Any]] = []
        for line in self.history_path.read_bytes().splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("round", rounds + 1) <= rounds:
                    entries.append(entry)
        return entries


def _to_archive(state: ServerState) -> tuple[dict[str, Any], dict[str, Any]]:
    document = {
        "checkpoint": CHECKPOINT_FORMAT,
        "session": state.session,
        "epoch": state.epoch,
        "settings": state.settings,
        "round": state.round_number,
        "layout": state.layout.to_text(),
        "seen": dict(sorted(state.seen.items())),
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
            layout=Layout.from_text(document["layout"]),
            kept=ArrayRecord({k[5:]: Array(v) for k, v in arrays.items() if k.startswith("kept/")}),
            seen=dict(document["seen"]),
            conduct=document["conduct"],
            scale=document["scale"],
            suspects=dict(document.get("suspects", {})),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PsofedError(f"{path} is not a psofed checkpoint: {error}") from None


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


def _replace_by_link(source: Path, target: Path) -> None:
    """Let `target` be `source`, in one step."""
    temporary = target.with_name(f".{target.name}.new")
    temporary.unlink(missing_ok=True)
    try:
        os.link(source, temporary)
    except OSError:  # a file system without hard links
        write_atomically(target, source.read_bytes(), mode=0o600)
        return
    temporary.replace(target)
