"""The server's memory: all that a killed run needs to go on from its last completed round."""

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from flwr.app import Array, ArrayRecord

from psofed.common.errors import PsofedError
from psofed.federation.files import write_atomically
from psofed.federation.layout import Layout, Vector

CHECKPOINT_FORMAT = 2


@dataclass
class ServerState:
    """What the strategy knows after a completed round.

    Attributes
    ----------
    session : str
        Names the federation across restarts; the clients file their state under it.
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
    history : list of dict
        One entry for each round, as in the result.
    """

    session: str
    settings: dict[str, Any]
    round_number: int
    model: Vector
    layout: Layout
    kept: ArrayRecord
    seen: dict[str, int] = field(default_factory=dict)
    conduct: dict[str, Any] = field(default_factory=lambda: {"counts": {}, "resting": {}})
    history: list[dict[str, Any]] = field(default_factory=list)


def save_checkpoint(state: ServerState, path: Path) -> None:
    """Write `state` to `path` atomically."""
    document = {
        "checkpoint": CHECKPOINT_FORMAT,
        "session": state.session,
        "settings": state.settings,
        "round": state.round_number,
        "layout": state.layout.to_text(),
        "seen": dict(sorted(state.seen.items())),
        "conduct": state.conduct,
        "history": state.history,
    }
    buffer = io.BytesIO()
    kept = {f"kept/{name}": array.numpy() for name, array in state.kept.items()}
    text = np.frombuffer(json.dumps(document, allow_nan=False).encode(), dtype=np.uint8)
    np.savez(buffer, allow_pickle=False, document=text, model=state.model, **kept)
    write_atomically(path, buffer.getvalue())


def load_checkpoint(path: Path) -> ServerState:
    """Read what :func:`save_checkpoint` wrote; a PsofedError says what is wrong with the file."""
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as archive:
            entries = {name: archive[name] for name in archive.files}
        document = json.loads(entries["document"].tobytes())
        if document["checkpoint"] != CHECKPOINT_FORMAT:
            raise PsofedError(
                f"{path} is of format {document['checkpoint']}; this psofed reads {CHECKPOINT_FORMAT}"
            )
        return ServerState(
            session=document["session"],
            settings=document["settings"],
            round_number=document["round"],
            model=entries["model"],
            layout=Layout.from_text(document["layout"]),
            kept=ArrayRecord(
                {name[5:]: Array(value) for name, value in entries.items() if name.startswith("kept/")}
            ),
            seen=dict(document["seen"]),
            conduct=document["conduct"],
            history=document["history"],
        )
    except FileNotFoundError:
        raise PsofedError(f"there is no checkpoint {path}: nothing to resume") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise PsofedError(f"{path} is not a psofed checkpoint: {error}") from None
