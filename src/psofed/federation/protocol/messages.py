"""Retained values at the hub: the description of the run, by the server, and each node's presence."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from psofed.federation.protocol import frames
from psofed.federation.protocol.bounds import MAX_DESCRIPTION, MAX_ENTRIES, MAX_ROUND, MAX_SEED
from psofed.federation.protocol.frames import Fields, FrameError, decode_frame, decode_object, encode_frame, read_values
from psofed.federation.protocol.layout import ModelLayout, Vector
from psofed.federation.protocol.masks import DERIVATION, DerivedMasks, derived_masks
from psofed.federation.protocol.names import check_client_names, clean_text


@dataclass(frozen=True)
class RunDescription:
    """The run that nodes take part in.

    Attributes
    ----------
    session : str
        Names the run across restarts; nodes obey instructions of this session only.
    settings : mapping
        As of :class:`psofed.federation.protocol.run_settings.RunSettings`.
    """

    session: str
    settings: Mapping[str, Any]

    def to_bytes(self) -> bytes:
        """Return the retained bytes."""
        document = {"psofed": frames.VERSION, "session": self.session, "settings": dict(self.settings)}
        return json.dumps(document).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "RunDescription":
        """Read what :meth:`to_bytes` gave, or raise ValueError."""
        fields = _decode(data)
        settings = fields.get("settings")
        session = fields.text("session", _MAX_SESSION)
        if type(settings) is not dict or not session:
            raise FrameError("no session, or no settings")
        return cls(session, settings)


@dataclass(frozen=True)
class Announcement:
    """Presence of a node, in its own words.

    Attributes
    ----------
    session : str
        The run that it is ready for; empty before it knows of any. The server asks only nodes ready for its run.
    clients : tuple of str or None
        The clients of a gateway, None for any other node.
    problem : str
        Why it cannot take part; empty if it can.
    """

    session: str = ""
    clients: tuple[str, ...] | None = None
    problem: str = ""

    def to_bytes(self) -> bytes:
        """Return the retained bytes."""
        document = {"session": self.session, "clients": self.clients, "problem": clean_text(self.problem)}
        return json.dumps({"psofed": frames.VERSION, **document}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Announcement":
        """Read what :meth:`to_bytes` gave, or raise ValueError."""
        fields = _decode(data)
        clients = None
        if fields.get("clients") is not None:
            clients = check_client_names(fields.items_of("clients", str), gateway=True)
        return cls(fields.text("session", _MAX_SESSION), clients, clean_text(fields.text("problem")))


def _decode(data: bytes) -> Fields:
    fields = decode_object(data, MAX_DESCRIPTION)
    if fields.get("psofed") != frames.VERSION:
        version = fields.get("psofed")
        raise FrameError(f"format {version!r}, this psofed speaks {frames.VERSION}: update the older one")
    return fields


PART = "part"  # values hold the M entries of S_{k,n}
START = "start"  # likewise, for a client that starts from zero, as the paper's do
FULL = "full"  # values hold all D entries
KINDS = (PART, START, FULL)

_MAX_SESSION, _MAX_NODE, _MAX_SETTINGS = 64, 200, 100


@dataclass(frozen=True, slots=True)
class ClientTask:
    """The part of an instruction that concerns one client.

    Attributes
    ----------
    client : str
        Its name at the node; empty for the one client of a node that is not a gateway.
    kind : str
        One of :data:`KINDS`.
    expected : int
        The last round the server has accepted from this client, 0 if none. A client whose own state is
        older has lost it.
    values : array (M,) or (D,)
        See `kind`.
    """

    client: str
    kind: str
    expected: int
    values: Vector


@dataclass(frozen=True, slots=True)
class Instruction:
    """From the server to a node.

    Attributes
    ----------
    session : str
        Names the run across restarts of the server.
    epoch : int
        How often the run was rolled back; see :class:`psofed.federation.server.checkpoint.ServerState`.
    round_number : int
        n, from 1.
    sequence : int
        Differs for every instruction; the reply repeats it.
    node : str
        The name of the node, from which its clients' numbers follow.
    masks : DerivedMasks
        Seed, D, M and pattern, from which each client derives S_{k,n} and S_{k,n+1}.
    digest : str
        Of the model's layout, the names of its columns included.
    tasks : tuple of ClientTask
        What each client is to do.
    layout : ModelLayout or None
        The layout itself, if one of the clients may not know it.
    refused : tuple of str
        Clients that the node has named and the server does not accept.
    config : mapping
        Texts, numbers and flags for the training function.
    """

    session: str
    round_number: int
    node: str
    masks: DerivedMasks
    digest: str
    tasks: tuple[ClientTask, ...]
    epoch: int = 0
    sequence: int = 0
    layout: ModelLayout | None = None
    refused: tuple[str, ...] = ()
    config: Mapping[str, str | int | float | bool] = field(default_factory=dict)


def encode_instruction(instruction: Instruction) -> bytes:
    """Return the frame of an instruction; values that several clients get travel once."""
    masks, tasks = instruction.masks, instruction.tasks
    header: dict[str, Any] = {
        "session": instruction.session,
        "epoch": instruction.epoch,
        "round": instruction.round_number,
        "node": instruction.node,
        "clients": [task.client for task in tasks],
        "kinds": [task.kind for task in tasks],
        "expected": [task.expected for task in tasks],
        "seed": masks.seed,
        "dimension": masks.dimension,
        "shared": masks.num_shared,
        "pattern": masks.pattern,
        "coordinated": masks.coordinated,
        "derivation": DERIVATION,
        "digest": instruction.digest,
    }
    if instruction.layout is not None:
        header["layout"] = instruction.layout.text
    if instruction.refused:
        header["refused"] = list(instruction.refused)
    if instruction.config:
        header["config"] = dict(instruction.config)
    whole = [task.values for task in tasks if task.kind == FULL]
    parts = [task.values for task in tasks if task.kind != FULL]
    if len(parts) > 1 and all(part is parts[0] for part in parts):
        header["common"] = True
        parts = parts[:1]
    blocks = [*whole[:1], *parts]
    if blocks:
        header["dtype"] = str(blocks[0].dtype)
    return encode_frame(frames.INSTRUCTION, instruction.sequence, header, blocks)


def decode_instruction(data: bytes, max_entries: int = MAX_ENTRIES) -> Instruction:
    """Read an instruction; ValueError says what is wrong with it.

    Nothing is allocated for a model of more than `max_entries` entries, shared or not.
    """
    sequence, fields, body = decode_frame(data, frames.INSTRUCTION)
    if fields.get("derivation") != DERIVATION:
        version = fields.get("derivation")
        raise FrameError(f"masks derived by version {version!r}, this psofed derives by {DERIVATION}")
    seed, pattern = fields.integer("seed", 0, MAX_SEED), fields.text("pattern", 40)
    dimension, shared = (fields.integer(name, 1, max_entries) for name in ("dimension", "shared"))
    masks = derived_masks(seed, dimension, shared, pattern, fields.flag("coordinated"))
    layout = ModelLayout.from_text(fields.text("layout")) if "layout" in fields else None
    if layout is not None and layout.entries > max_entries:
        raise FrameError(f"the server's model has {layout.entries:,} entries; this client takes {max_entries:,}")
    return Instruction(
        session=fields.text("session", _MAX_SESSION),
        epoch=fields.integer("epoch", 0, MAX_ROUND),
        round_number=fields.integer("round", 1, MAX_ROUND),
        sequence=sequence,
        node=fields.text("node", _MAX_NODE),
        masks=masks,
        digest=fields.text("digest", _MAX_SESSION),
        layout=layout,
        refused=check_client_names(fields.items_of("refused", str)),
        config=_decode_config(fields),
        tasks=_decode_tasks(fields, body, masks),
    )


def _decode_tasks(fields: Fields, body: memoryview, masks: DerivedMasks) -> tuple[ClientTask, ...]:
    clients = check_client_names(fields.items_of("clients", str))
    kinds: Sequence[str] = fields.items_of("kinds", str, len(clients))
    expected: Sequence[int] = fields.items_of("expected", int, len(clients))
    if not clients or not {*kinds} <= {*KINDS} or not 0 <= min(expected) <= max(expected) <= MAX_ROUND:
        raise FrameError("no client, an unknown kind of task, or a round that is out of range")
    size, shared, common = masks.dimension, masks.num_shared, fields.flag("common")
    has_whole = FULL in kinds
    parts = kinds.count(PART) + kinds.count(START)
    length = size * has_whole + shared * (min(parts, 1) if common else parts)
    values = read_values(body, length, fields.dtype() if length else np.dtype(np.float64))
    at, tasks = size * has_whole, []
    for client, kind, last in zip(clients, kinds, expected, strict=True):
        if kind == FULL:
            tasks.append(ClientTask(client, kind, last, values[:size]))
        else:
            tasks.append(ClientTask(client, kind, last, values[at : at + shared]))
            at += 0 if common else shared
    return tuple(tasks)


def _decode_config(fields: Fields) -> dict[str, str | int | float | bool]:
    config = fields.get("config", {})
    if type(config) is not dict or len(config) > _MAX_SETTINGS:
        raise FrameError("config is not an object, or too large")
    if any(type(value) not in (str, int, float, bool) for value in config.values()):
        raise FrameError("config holds something else than texts, numbers and flags")
    return config


LEARNED = "learned"
LOST = "lost"  # the client needs the full model first
FAILED = "failed"  # training raised an exception; the remark says which
LEFT = "left"  # the node has no such client, or no longer
STATUSES = (LEARNED, LOST, FAILED, LEFT)

_MAX_METRICS, _MAX_METRIC_NAME, _MAX_METRIC_VALUES = 100, 100, 4096
_HEADER_PER_CLIENT = 1 << 17
_HEADER = 1 << 16


class BadReplyError(ValueError):
    """A reply that must be dropped.

    Parameters
    ----------
    kind : str
        One of :data:`psofed.federation.server.clients.KINDS`.
    detail : str
        What was wrong; a client's own words may be in it, so it is cut to one short line.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        detail = clean_text(detail)
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Reply:
    """One client's part of a node's reply.

    Attributes
    ----------
    status : str
        One of :data:`STATUSES`.
    client : str
        Its name at the node.
    values : array (M,) or None
        The entries of S_{k,n+1}, of a client that has learned.
    num_examples : int
        Samples the client worked through.
    metrics : mapping
        Whatever else the client's training reported: numbers, and lists of numbers.
    remark : str
        What a person should know, say that there was nothing to learn from; at most 200 characters.
    """

    status: str
    client: str = ""
    values: Vector | None = None
    num_examples: int = 0
    metrics: Mapping[str, Any] = field(default_factory=dict)
    remark: str = ""


@dataclass(frozen=True, slots=True)
class NodeReply:
    """From a node to the server.

    Attributes
    ----------
    session, round_number, sequence
        Of the instruction it answers.
    replies : tuple of Reply
        For each client that is answered for.
    digest : str
        Of the layout that the clients have learned with.
    error : str
        Why the node as a whole could not work; then there are no `replies`.
    refused : mapping of str to BadReplyError
        Clients of which something was wrong, found while the frame was read.
    """

    session: str
    round_number: int
    sequence: int
    replies: tuple[Reply, ...] = ()
    digest: str = ""
    error: str = ""
    refused: Mapping[str, BadReplyError] = field(default_factory=dict)

    @classmethod
    def failure(cls, instruction: Instruction, reason: str) -> "NodeReply":
        """Return the reply of a node that could not work on an instruction."""
        return cls(instruction.session, instruction.round_number, instruction.sequence, error=reason)


def encode_reply(reply: NodeReply) -> bytes:
    """Return the frame of a reply."""
    replies = reply.replies
    header: dict[str, Any] = {
        "session": reply.session,
        "round": reply.round_number,
        "clients": [part.client for part in replies],
        "statuses": [part.status for part in replies],
        "examples": [part.num_examples for part in replies],
        "metrics": [dict(part.metrics) for part in replies],
    }
    if reply.digest:
        header["digest"] = reply.digest
    if reply.error:
        header["error"] = clean_text(reply.error)
    if any(part.remark for part in replies):
        header["remarks"] = [clean_text(part.remark) for part in replies]
    values = [part.values for part in replies if part.values is not None]
    if values:
        header["dtype"] = str(values[0].dtype)
    return encode_frame(frames.REPLY, reply.sequence, header, values)


def decode_reply(data: bytes, num_clients: int, length: int, dtype: np.dtype[Any]) -> NodeReply:
    """Read a reply for at most `num_clients` clients, each of which should have sent `length` values of `dtype`.

    Only the form is judged here; :mod:`psofed.federation.server.checks` judges the content.

    Raises
    ------
    BadReplyError
        Says what is wrong with the frame as a whole, for which the node answers.
    """
    try:
        sequence, fields, body = decode_frame(data, frames.REPLY, _HEADER + _HEADER_PER_CLIENT * num_clients)
        clients = check_client_names(fields.items_of("clients", str, most=num_clients))
        count = len(clients)
        statuses = fields.items_of("statuses", str, count)
        examples = fields.items_of("examples", int, count)
        reports = fields.items_of("metrics", dict, count)
        remarks = fields.items_of("remarks", str, count) if "remarks" in fields else [""] * count
        if not {*statuses} <= {*STATUSES}:
            raise FrameError("an unknown status")
        learned = statuses.count(LEARNED)
        if learned and (sent := fields.dtype()) != dtype:
            raise BadReplyError("wrong-dtype", f"{sent} for {dtype}")
        if len(body) != learned * length * dtype.itemsize:
            raise BadReplyError("wrong-length", f"{len(body)} bytes for {learned} times {length} values")
        rows = iter(read_values(body, learned * length, dtype).reshape(learned, length))
        replies: list[Reply] = []
        refused: dict[str, BadReplyError] = {}
        for client, status, number, report, remark in zip(clients, statuses, examples, reports, remarks, strict=True):
            values = next(rows) if status == LEARNED else None
            if problem := problem_with_metrics(report):
                refused[client] = BadReplyError("malformed", problem)
            else:
                replies.append(Reply(status, client, values, number, report, clean_text(remark)))
        return NodeReply(
            session=fields.text("session", 64),
            round_number=fields.integer("round", 0, MAX_ROUND),
            sequence=sequence,
            digest=fields.text("digest", 64),
            error=clean_text(fields.text("error")),
            replies=tuple(replies),
            refused=refused,
        )
    except BadReplyError:
        raise
    except ValueError as error:
        raise BadReplyError("malformed", str(error)) from None


def problem_with_metrics(metrics: Mapping[Any, Any]) -> str:
    """Return what is wrong with what a client reports, which must not fill the server's disk; empty if nothing is.

    Examples
    --------
    >>> problem_with_metrics({"mse": 0.5, "squared-errors": [0.25, 0.75]}), problem_with_metrics({"mse": "low"})
    ('', 'metrics that are no numbers, or names that are no short printable texts')
    """
    count = 0
    for name, value in metrics.items():
        entries = value if isinstance(value, list) else [value]
        count += len(entries)
        if len(name) > _MAX_METRIC_NAME or not name.isprintable() or not all(map(_is_number, entries)):
            return "metrics that are no numbers, or names that are no short printable texts"
    if len(metrics) > _MAX_METRICS or count > _MAX_METRIC_VALUES:
        return "too many metrics, or too long ones"
    return ""


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and -(2**63) <= value < 2**63)
