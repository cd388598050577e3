"""Replies: what a node sends back for its clients, each client's part judged by itself.

Lists in the header have an entry for each client that is answered for, and the values of those that have learned lie
one after the other. So all of a gateway's replies are read and checked together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from psofed.federation.protocol.bounds import MAX_ROUND
from psofed.federation.protocol.frames import REPLY, FrameError, decode_frame, encode_frame, read_values
from psofed.federation.protocol.instructions import Instruction
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.names import check_client_names, clean_text

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
        One of :data:`psofed.federation.server.checks.KINDS`.
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
    return encode_frame(REPLY, reply.sequence, header, values)


def decode_reply(data: bytes, num_clients: int, length: int, dtype: np.dtype[Any]) -> NodeReply:
    """Read a reply for at most `num_clients` clients, each of which should have sent `length` values of `dtype`.

    Only the form is judged here; :mod:`psofed.federation.server.checks` judges the content.

    Raises
    ------
    BadReplyError
        Says what is wrong with the frame as a whole, for which the node answers.
    """
    try:
        sequence, fields, body = decode_frame(data, REPLY, _HEADER + _HEADER_PER_CLIENT * num_clients)
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
