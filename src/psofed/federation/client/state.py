"""A node's memory between rounds: each client's own full model, in the process and optionally on disk.

On disk it is filed under the run's session, which outlives the processes of both sides. All clients of a gateway are in
one file, which is written once per instruction however many of them have learned.
"""

import base64
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import write_atomically
from psofed.federation.protocol.archive import from_archive, read_archive, to_archive
from psofed.federation.protocol.layout import Arrays, ModelLayout, Vector
from psofed.federation.protocol.names import node_number

_log = logging.getLogger("psofed.federation")

KIND, STATE_FORMAT = "client-state", 4
_SESSIONS_KEPT = 4


@runtime_checkable
class Recordable(Protocol):
    """Something that a client keeps as a value, and that becomes a record where it must be written."""

    def to_record(self) -> dict[str, Any]:
        """Return this value as a record: texts, numbers, flags, bytes, lists of these, and arrays, by name."""
        ...


@dataclass(frozen=True, eq=False)
class ClientState:
    """State of a client after a round it took part in.

    Attributes
    ----------
    epoch : int
        See :class:`psofed.federation.server.checkpoint.ServerState`.
    round_number : int
        The last round the client worked in.
    layout : ModelLayout
        Of the model.
    model : array (D,)
        w_{k,n+1}, its own.
    kept : mapping of str to array
        The arrays that are not shared.
    num_examples, metrics
        What it reported in that round, should the server ask again.
    """

    epoch: int
    round_number: int
    layout: ModelLayout
    model: Vector
    kept: Arrays
    num_examples: int
    metrics: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class ClientMemory:
    """All that one client keeps.

    Attributes
    ----------
    state : ClientState or None
        None before its first round.
    records : mapping
        What the training and the privacy of uploads keep by name: records (:meth:`Recordable.to_record`), or
        :class:`Recordable` values.
    """

    state: ClientState | None = None
    records: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def described(self) -> dict[str, dict[str, Any]]:
        """The records as JSON holds them, arrays apart, made once."""
        return {name: _to_json(record_of(value)) for name, value in self.records.items()}

    @cached_property
    def arrays(self) -> dict[str, Any]:
        """The arrays in the records, by record and name."""
        return {
            f"{name}/{key}": entry
            for name, value in self.records.items()
            for key, entry in record_of(value).items()
            if isinstance(entry, np.ndarray)
        }


@dataclass(frozen=True, eq=False)
class NodeMemory:
    """All that a node keeps of one run.

    Attributes
    ----------
    session : str
        The run.
    node : str
        The node's name.
    clients : mapping
        By the clients' names at the node; the client of a node that is not a gateway has an empty name.
    """

    session: str
    node: str
    clients: Mapping[str, ClientMemory] = field(default_factory=dict)

    def of(self, client: str) -> ClientMemory:
        """Return what a client keeps; an empty memory if it is new."""
        return self.clients.get(client) or ClientMemory()

    def to_bytes(self) -> bytes:
        """Return the memory as the content of a file."""
        layouts: dict[str, int] = {}
        models: dict[int, list[Vector]] = {}
        arrays: dict[str, Any] = {}
        clients = []
        for k, (name, memory) in enumerate(self.clients.items()):
            entry: dict[str, Any] = {"name": name, "records": memory.described}
            arrays |= {f"records/{k}/{place}": array for place, array in memory.arrays.items()}
            if (state := memory.state) is not None:
                place = layouts.setdefault(state.layout.to_text(), len(layouts))
                models.setdefault(place, []).append(state.model)
                entry |= {
                    "layout": place,
                    "epoch": state.epoch,
                    "round": state.round_number,
                    "examples": state.num_examples,
                    "metrics": state.metrics,
                }
                arrays |= {f"kept/{k}/{key}": array for key, array in state.kept.items()}
            clients.append(entry)
        arrays |= {f"models/{place}": np.stack(rows) for place, rows in models.items()}
        document = {
            KIND: STATE_FORMAT,
            "session": self.session,
            "node": self.node,
            "layouts": list(layouts),
            "clients": clients,
        }
        return to_archive(document, arrays)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> "NodeMemory":
        """Read what :meth:`to_bytes` gave; a PsofedError says what is wrong with it."""
        return cls._read(*from_archive(data, where, KIND, STATE_FORMAT), where)

    @classmethod
    def load(cls, path: Path) -> "NodeMemory":
        """Read a file; a PsofedError says what is wrong with it."""
        return cls._read(*read_archive(path, KIND, STATE_FORMAT), str(path))

    @classmethod
    def _read(cls, document: dict[str, Any], arrays: dict[str, Any], where: str) -> "NodeMemory":
        try:
            layouts = [ModelLayout.from_text(text) for text in document["layouts"]]
            rows = [iter(arrays[f"models/{place}"]) for place in range(len(layouts))]
            clients: dict[str, ClientMemory] = {}
            for k, entry in enumerate(document["clients"]):
                records = {name: _from_json(record) for name, record in entry["records"].items()}
                for place, array in _below(arrays, f"records/{k}/").items():
                    name, _, key = place.partition("/")
                    records[name][key] = array
                state = None
                if "layout" in entry:
                    state = ClientState(
                        epoch=int(entry["epoch"]),
                        round_number=int(entry["round"]),
                        layout=layouts[entry["layout"]],
                        model=next(rows[entry["layout"]]),
                        kept=_below(arrays, f"kept/{k}/"),
                        num_examples=int(entry["examples"]),
                        metrics=dict(entry["metrics"]),
                    )
                clients[str(entry["name"])] = ClientMemory(state, records)
            return cls(str(document["session"]), str(document["node"]), clients)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
            raise PsofedError(f"{where} is not a client's state: {error}") from None


@dataclass(eq=False)
class MemoryStore:
    """Where a node keeps its memory: in this process and, if it has a folder, on disk.

    Parameters
    ----------
    folder : path or None
        Where files are.
    held : NodeMemory or None
        What is known in this process.
    """

    folder: Path | None = None
    held: NodeMemory | None = None

    def recall(self, session: str, node: str) -> NodeMemory:
        """Return what `node` keeps of `session`: what this process or the disk holds, or an empty memory.

        A damaged file is renamed, and the clients continue without it, as newcomers do.
        """
        if self.held is not None and self.held.session == session:
            return self.held
        if self.folder is not None and disk().exists(path := _path(self.folder, node, session)):
            try:
                self.held = NodeMemory.load(path)
                return self.held
            except PsofedError as error:
                damaged = path.with_name(f"{path.name}.damaged")
                disk().rename(path, damaged)
                _log.warning(
                    "this node's state was damaged and is now %s; it starts again: %s", damaged, error
                )
        return NodeMemory(session, node)

    def commit(self, memory: NodeMemory, changed: Mapping[str, ClientMemory]) -> None:
        """Keep `memory` with the clients that have `changed`. If that fails, nothing has changed."""
        memory = NodeMemory(memory.session, memory.node, {**memory.clients, **changed})
        if self.folder is not None:
            path = _path(self.folder, memory.node, memory.session)
            write_atomically(path, memory.to_bytes(), mode=0o600)
            _forget_old_sessions(path, memory.node)
        self.held = memory


def record_of(value: Any) -> Mapping[str, Any]:
    """Return what a client keeps under one name as a record."""
    return value.to_record() if isinstance(value, Recordable) else value


def _below(arrays: Mapping[str, Any], begin: str) -> dict[str, Any]:
    return {key.removeprefix(begin): array for key, array in arrays.items() if key.startswith(begin)}


def _path(folder: Path, node: str, session: str) -> Path:
    # Both come from elsewhere: nothing but letters and digits of the session may reach a file name.
    return folder / f"{node_number(node)}-{''.join(filter(str.isalnum, session))[:64]}.npz"


def _forget_old_sessions(newest: Path, node: str) -> None:
    folder, begin = newest.parent, f"{node_number(node)}-"
    files = [
        folder / name for name in disk().names(folder) if name.startswith(begin) and name.endswith(".npz")
    ]
    # Clocks jump: the file just written may look the oldest.
    files.sort(key=lambda path: (path == newest, disk().modified(path)), reverse=True)
    for path in files[_SESSIONS_KEPT:]:
        with contextlib.suppress(OSError):
            disk().unlink(path)


def _to_json(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in record.items() if not isinstance(value, np.ndarray)}


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value


def _from_json(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _restored(value) for key, value in record.items()}


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["bytes"])
    return [_restored(entry) for entry in value] if isinstance(value, list) else value
