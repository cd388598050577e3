"""A node's memory between rounds: each client's own full model, in Flower's Context and optionally on disk.

Flower keeps ``Context.state`` in the SuperNode's memory and for one run only, so it is gone after a
restart of either side. On disk it is filed under the federation's session, which outlives both. All clients of a
gateway are in one file, which is written once per message however many of them have learned.
"""

import base64
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.common.files import write_atomically
from psofed.federation.flower import fill, plain
from psofed.federation.protocol.archive import from_archive, read_archive, to_archive
from psofed.federation.protocol.layout import ModelLayout, Vector

_log = logging.getLogger("psofed.federation")

MEMORY = "psofed.memory"
KIND, STATE_FORMAT = "client-state", 3
_ARCHIVE = "archive"
_SESSIONS_KEPT = 4


class Recordable(Protocol):
    """Something that a client keeps as a value, and that becomes a record where it must be written."""

    def to_record(self) -> ConfigRecord:
        """Return this value as a record."""
        ...


class ClientState(NamedTuple):
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
    kept : ArrayRecord
        The arrays that are not shared.
    num_examples, metrics
        What it reported in that round, should the server ask again.
    """

    epoch: int
    round_number: int
    layout: ModelLayout
    model: Vector
    kept: ArrayRecord
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
        What the training function and the uplink keep by name: Flower's records, or :class:`Recordable` values.
    """

    state: ClientState | None = None
    records: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def described(self) -> list[dict[str, Any]] | None:
        """The records as JSON holds them, made once; None if some of them are arrays, which are filed apart."""
        if any(isinstance(value, ArrayRecord) for value in self.records.values()):
            return None
        return _describe(self.records, {}, "")


@dataclass(frozen=True, eq=False)
class NodeMemory:
    """All that a node keeps of one federation.

    Attributes
    ----------
    session : str
        The federation.
    node : int
        The number of the node's key, which is part of the file's name.
    clients : mapping
        By the clients' names at the node; the client of a node that is not a gateway has an empty name.
    version : int
        How often it was changed: of two, the larger is newer.
    """

    session: str
    node: int
    clients: Mapping[str, ClientMemory] = field(default_factory=dict)
    version: int = 0

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
            records = memory.described
            if records is None:
                records = _describe(memory.records, arrays, str(k))
            entry: dict[str, Any] = {"name": name, "records": records}
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
                arrays |= {f"kept/{k}/{key}": array.numpy() for key, array in state.kept.items()}
            clients.append(entry)
        arrays |= {f"models/{place}": np.stack(rows) for place, rows in models.items()}
        document = {
            KIND: STATE_FORMAT,
            "session": self.session,
            "node": str(self.node),
            "version": self.version,
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
                records = {item["name"]: _restore(item, arrays) for item in entry["records"]}
                state = None
                if "layout" in entry:
                    begin = f"kept/{k}/"
                    own = {key: value for key, value in arrays.items() if key.startswith(begin)}
                    state = ClientState(
                        epoch=int(entry["epoch"]),
                        round_number=int(entry["round"]),
                        layout=layouts[entry["layout"]],
                        model=next(rows[entry["layout"]]),
                        kept=ArrayRecord({key.removeprefix(begin): Array(own[key]) for key in own}),
                        num_examples=int(entry["examples"]),
                        metrics=dict(entry["metrics"]),
                    )  # fmt: skip
                clients[str(entry["name"])] = ClientMemory(state, records)
            return cls(str(document["session"]), int(document["node"]), clients, int(document["version"]))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, StopIteration) as error:
            raise PsofedError(f"{where} is not a client's state: {error}") from None


class HeldMemory(ConfigRecord):
    """A node's memory in its context: for Flower a record like any other, for this process the value itself."""

    def __init__(self, memory: NodeMemory) -> None:
        self.__dict__.update(fill(ConfigRecord, _LateArchive(memory)).__dict__)
        self.memory = memory


class _LateArchive(dict[str, Any]):
    """The values of such a record, made when somebody asks for them, say to take the context to another process."""

    def __init__(self, memory: NodeMemory) -> None:
        super().__init__({_ARCHIVE: b""})
        self._memory: NodeMemory | None = memory

    def _made(self) -> "_LateArchive":
        if self._memory is not None:
            self[_ARCHIVE] = self._memory.to_bytes()
            self._memory = None
        return self

    def __getitem__(self, key: str) -> Any:
        return dict.__getitem__(self._made(), key)

    def items(self) -> Any:
        return dict.items(self._made())

    def values(self) -> Any:
        return dict.values(self._made())

    def copy(self) -> dict[str, Any]:
        return dict(self.items())


def recall(context: Context, session: str, node: int, directory: Path | None) -> NodeMemory:
    """Return what a node keeps of `session`: the newer of what its context and its disk hold, or an empty memory.

    A damaged file is renamed, and the clients continue without it, as newcomers do.
    """
    held = memory_of(context)
    found = held if held is not None and held.session == session else None
    if found is not None and isinstance(context.state[MEMORY], HeldMemory):
        return found  # this very process has written it
    if directory is not None and disk().exists(path := _path(directory, node, session)):
        try:
            filed = NodeMemory.load(path)
        except PsofedError as error:
            _set_aside(path, error)
        else:
            if filed.session == session and (found is None or filed.version > found.version):
                found = filed
    if found is not None:
        return found
    before = {} if held is None else held.clients
    return NodeMemory(session, node, {name: ClientMemory(None, old.records) for name, old in before.items()})


def memory_of(context: Context) -> NodeMemory | None:
    """Return the memory that a context holds, of any session; None if it holds no readable memory."""
    record = plain(context.state).get(MEMORY)
    if isinstance(record, HeldMemory):
        return record.memory
    data = record.get(_ARCHIVE) if isinstance(record, ConfigRecord) else None
    if not isinstance(data, bytes):
        return None
    try:
        return NodeMemory.from_bytes(data, "the node's context")
    except PsofedError as error:
        _log.warning("%s; its clients start again", error)
        return None


def commit(
    context: Context, memory: NodeMemory, changed: Mapping[str, ClientMemory], directory: Path | None
) -> None:
    """Keep `memory` with the clients that have `changed`, in the context and, if a directory is given, on disk.

    If that fails, nothing has changed.
    """
    memory = NodeMemory(memory.session, memory.node, {**memory.clients, **changed}, memory.version + 1)
    if directory is not None:
        path = _path(directory, memory.node, memory.session)
        write_atomically(path, memory.to_bytes(), mode=0o600)
        _forget_old_sessions(path, memory.node)
    context.state = fill(RecordDict, {**plain(context.state), MEMORY: HeldMemory(memory)})


def as_record(value: Any) -> Any:
    """Return what a client keeps under one name as one of Flower's records."""
    return value if isinstance(value, ArrayRecord | MetricRecord | ConfigRecord) else value.to_record()


def to_records(values: Mapping[str, Any]) -> RecordDict:
    """Return what a client keeps as records on which a training function may work without touching the original."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        record = as_record(value)
        if isinstance(record, ArrayRecord):
            made[name] = ArrayRecord(dict(record))
        else:
            made[name] = type(record)({key: _copy_value(entry) for key, entry in record.items()})
    return fill(RecordDict, made)


def _describe(records: Mapping[str, Any], arrays: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    """Return records as JSON holds them; their arrays are added to `arrays`."""
    described = []
    for name, value in records.items():
        record = as_record(value)
        if isinstance(record, ArrayRecord):
            keys = {key: f"records/{prefix}/{len(arrays) + i}" for i, key in enumerate(record)}
            described.append({"name": name, "type": "arrays", "keys": keys})
            arrays |= {keys[key]: array.numpy() for key, array in record.items()}
        else:
            kind = "metrics" if isinstance(record, MetricRecord) else "config"
            values = {key: _to_json(entry) for key, entry in record.items()}
            described.append({"name": name, "type": kind, "values": values})
    return described


def _restore(
    entry: Mapping[str, Any], arrays: Mapping[str, Any]
) -> ArrayRecord | MetricRecord | ConfigRecord:
    if entry["type"] == "arrays":
        return ArrayRecord({key: Array(arrays[place]) for key, place in entry["keys"].items()})
    values = {key: _from_json(value) for key, value in entry["values"].items()}
    return MetricRecord(values) if entry["type"] == "metrics" else ConfigRecord(values)


def _set_aside(path: Path, error: Exception) -> None:
    damaged = path.with_name(f"{path.name}.damaged")
    disk().rename(path, damaged)
    _log.warning("this client's state was damaged and is now %s; it starts again: %s", damaged, error)


def _path(directory: Path, node: int, session: str) -> Path:
    # The session comes from the network: nothing but letters and digits of it may reach a file name.
    return directory / f"{node}-{''.join(filter(str.isalnum, session))[:64]}.npz"


def _forget_old_sessions(newest: Path, node: int) -> None:
    folder, begin = newest.parent, f"{node}-"
    files = [
        folder / name for name in disk().names(folder) if name.startswith(begin) and name.endswith(".npz")
    ]
    files.sort(key=disk().modified, reverse=True)
    for path in files[_SESSIONS_KEPT:]:
        with contextlib.suppress(OSError):
            disk().unlink(path)


def _copy_value(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return [_to_json(entry) for entry in value] if isinstance(value, list) else value


def _from_json(value: Any) -> Any:
    if isinstance(value, dict):
        return base64.b64decode(value["bytes"])
    return [_from_json(entry) for entry in value] if isinstance(value, list) else value
