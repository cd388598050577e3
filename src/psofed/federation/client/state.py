"""A client's memory between rounds: its own full model, in Flower's Context and optionally on disk.

Flower keeps ``Context.state`` in the SuperNode's memory and for one run only, so it is gone after a
restart of either side. On disk it is filed under the federation's session, which outlives both.
"""

import base64
import contextlib
import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, MetricRecord, RecordDict

from psofed.common.disk import disk
from psofed.common.errors import PsofedError
from psofed.federation.protocol.archive import read_archive, write_archive
from psofed.federation.protocol.layout import ModelLayout, Vector

_log = logging.getLogger("psofed.federation")

MODEL, STATE = "psofed.model", "psofed.state"
KIND, STATE_FORMAT = "client-state", 2
_VECTOR = "shared vector"
_SESSIONS_KEPT = 4


@dataclass(frozen=True, eq=False)
class ClientState:
    """What a client knows after a round it took part in.

    Attributes
    ----------
    session : str
        The federation it belongs to.
    epoch : int
        See :class:`psofed.federation.server.checkpoint.ServerState`.
    node : int
        The number by which the server draws its masks.
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

    session: str
    epoch: int
    node: int
    round_number: int
    layout: ModelLayout
    model: Vector
    kept: ArrayRecord
    num_examples: int
    metrics: dict[str, Any]


def find_state(context: Context, session: str, node: int, directory: Path | None) -> ClientState | None:
    """Return the newest state of `session`, from the context or from disk, or None if there is none.

    If the disk has the newer one, the whole of the context's state is taken from there. A damaged file is renamed, and
    the client continues without it, as a newcomer does.
    """
    held = _read(context.state, session)
    if directory is not None and disk().exists(path := _path(directory, node, session)):
        try:
            records = load_records(path)
            filed = _read(records, session)
        except (PsofedError, ValueError, KeyError, TypeError) as error:
            _set_aside(path, error)
            return held
        if filed is not None and (held is None or filed.round_number > held.round_number):
            context.state = records
            return filed
    return held


def _set_aside(path: Path, error: Exception) -> None:
    damaged = path.with_name(f"{path.name}.damaged")
    disk().rename(path, damaged)
    _log.warning("this client's state was damaged and is now %s; it starts again: %s", damaged, error)


def latest_state(context: Context) -> ClientState | None:
    """Return the state that the context holds, of whatever session, or None if there is none yet."""
    return read_state(context.state)


def read_state(records: RecordDict) -> ClientState | None:
    """Return the state that `records` hold, of whatever session, or None if there is none."""
    settings = records.get(STATE)
    return _read(records, str(settings["session"])) if isinstance(settings, ConfigRecord) else None


def commit_state(context: Context, state: ClientState, directory: Path | None) -> None:
    """Put `state` into the context, and on disk if a directory is given."""
    context.state[MODEL] = ArrayRecord({_VECTOR: Array(state.model), **dict(state.kept)})
    context.state[STATE] = ConfigRecord(
        {
            "session": state.session,
            "epoch": state.epoch,
            "node": str(state.node),
            "round": state.round_number,
            "layout": state.layout.to_text(),
            "examples": state.num_examples,
            "metrics": json.dumps(state.metrics),
        }
    )
    if directory is not None:
        path = _path(directory, state.node, state.session)
        save_records(context.state, path)
        _forget_old_sessions(path, state.node)


def copy_records(records: RecordDict) -> RecordDict:
    """Return a copy on which a training function may work without touching the original."""
    copy = RecordDict()
    for name, record in records.items():
        if isinstance(record, ArrayRecord):
            copy[name] = ArrayRecord(dict(record))
        else:
            values: dict[str, Any] = {key: _copy_value(value) for key, value in record.items()}
            copy[name] = type(record)(values)
    return copy


def save_records(records: RecordDict, path: Path) -> None:
    """Write a whole RecordDict to `path` atomically."""
    arrays: dict[str, Any] = {}
    document = []
    for name, record in records.items():
        if isinstance(record, ArrayRecord):
            keys = {key: str(len(arrays) + i) for i, key in enumerate(record)}
            document.append({"name": name, "type": "arrays", "keys": keys})
            arrays |= {keys[key]: array.numpy() for key, array in record.items()}
        else:
            kind = "metrics" if isinstance(record, MetricRecord) else "config"
            values = {key: _to_json(value) for key, value in record.items()}
            document.append({"name": name, "type": kind, "values": values})
    write_archive(path, {KIND: STATE_FORMAT, "records": document}, arrays)


def load_records(path: Path) -> RecordDict:
    """Read what :func:`save_records` wrote."""
    document, arrays = read_archive(path, KIND, STATE_FORMAT)
    records = RecordDict()
    try:
        for entry in document["records"]:
            if entry["type"] == "arrays":
                named = {key: Array(arrays[place]) for key, place in entry["keys"].items()}
                records[entry["name"]] = ArrayRecord(named)
            else:
                values = {key: _from_json(value) for key, value in entry["values"].items()}
                made = MetricRecord(values) if entry["type"] == "metrics" else ConfigRecord(values)
                records[entry["name"]] = made
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PsofedError(f"{path} is not a client's state: {error}") from None
    return records


def _read(records: RecordDict, session: str) -> ClientState | None:
    settings, arrays = records.get(STATE), records.get(MODEL)
    if (
        not isinstance(settings, ConfigRecord)
        or not isinstance(arrays, ArrayRecord)
        or settings["session"] != session
    ):
        return None
    return ClientState(
        session=session,
        epoch=int(str(settings["epoch"])),
        node=int(str(settings["node"])),
        round_number=int(str(settings["round"])),
        layout=ModelLayout.from_text(str(settings["layout"])),
        model=arrays[_VECTOR].numpy(),
        kept=ArrayRecord({name: array for name, array in arrays.items() if name != _VECTOR}),
        num_examples=int(str(settings["examples"])),
        metrics=json.loads(str(settings["metrics"])),
    )


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
