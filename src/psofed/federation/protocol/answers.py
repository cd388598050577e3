"""Replies: what a node sends back for its clients, each client's part judged by itself.

Lists in the record of settings have an entry for each client that is answered for, and the values of those that have
learned lie one after the other in one array. So all of a gateway's replies are read and checked together.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from numpy.typing import NDArray

from psofed.federation.flower import fill, plain
from psofed.federation.protocol.bounds import MAX_ROUND
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.few_bits import draw_dither, pack_levels, packed_size, step_of, unpack_levels
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.npy import array_of
from psofed.federation.protocol.wire import (
    ARRAYS,
    FORMAT,
    SETTINGS,
    VALUES,
    BadReplyError,
    check_client_names,
    clean_text,
    client_number,
    decode_array,
    integer_of,
    list_of,
    number_of,
    text_of,
)

LEARNED = "learned"
LOST = "lost"  # the client needs the full model first
DESCRIBED = "described"  # the node has named its columns and clients, and learned nothing
EVALUATED = "evaluated"
FAILED = "failed"  # training raised an exception; the remark says which
LEFT = "left"  # the node has no such client, or no longer
STATUSES = (LEARNED, LOST, DESCRIBED, EVALUATED, FAILED, LEFT)

_MAX_METRICS, _MAX_METRIC_NAME, _MAX_METRIC_VALUES, _MAX_METRIC_TEXT = 100, 100, 4096, 1 << 18


@dataclass(frozen=True, eq=False)
class FewBits:
    """An upload of few bits per value: level j stands for (j + ½) Δ − reach, Δ = 2 · reach / 2^bits.

    Attributes
    ----------
    levels : uint64 array (M,)
        j.
    bits, reach
        As of the channel ``quantised``.
    is_dithered : bool
        Whether the server subtracts a dither that it derives from session, client and round.
    """

    levels: NDArray[np.uint64]
    bits: int
    reach: float
    is_dithered: bool

    def values(self, session: str, client: int, round_number: int) -> NDArray[np.float64]:
        """Return the values (M,) that arrive from the client of that number."""
        step = step_of(self.bits, self.reach)
        values = (self.levels + 0.5) * step - self.reach
        if self.is_dithered:
            values = values - (draw_dither(session, client, round_number, values.size) - 0.5) * step
        return np.asarray(values, np.float64)


class Reply(NamedTuple):
    """One client's part of a node's reply.

    Attributes
    ----------
    status : str
        One of :data:`STATUSES`.
    client : str
        Its name at the node.
    values : array (M,) or None
        The entries of S_{k,n+1}, of a client that has learned.
    few_bits : FewBits or None
        How they travel, if not as numbers of the model's type.
    num_examples : int
        Samples the client worked through.
    metrics : mapping
        Whatever else the client's training reported.
    remark : str
        What a person should know, say that there was nothing to learn from; at most 200 characters.
    """

    status: str
    client: str = ""
    values: Vector | None = None
    few_bits: FewBits | None = None
    num_examples: int = 0
    metrics: Mapping[str, Any] = MappingProxyType({})
    remark: str = ""

    @property
    def payload(self) -> int:
        """Bytes of the values on their way."""
        if self.values is None:
            return 0
        return packed_size(self.few_bits.bits, self.values.size) if self.few_bits else self.values.nbytes


class NodeReply(NamedTuple):
    """From a node to the server.

    Attributes
    ----------
    session, round_number
        Of the instruction it answers.
    replies : tuple of Reply
        For each client that is answered for.
    node : int
        Of the instruction, too.
    digest : str
        Of the layout that the clients have learned with.
    columns : ColumnNames or None
        Of a node that was asked for them; None if its columns have no names.
    roster : tuple of str or None
        The clients of a gateway, if they are others than the server thinks.
    refused : mapping of str to BadReplyError
        Those of which something was wrong, found while the message was read.
    """

    session: str
    round_number: int
    replies: tuple[Reply, ...]
    node: int = 0
    digest: str = ""
    columns: ColumnNames | None = None
    roster: tuple[str, ...] | None = None
    refused: Mapping[str, BadReplyError] = MappingProxyType({})


def encode_reply(reply: NodeReply) -> RecordDict:
    """Return the message content of a reply."""
    replies = reply.replies
    settings: dict[str, Any] = {
        "format": FORMAT,
        "session": reply.session,
        "round": reply.round_number,
        "node": str(reply.node),
        "clients": [part.client for part in replies],
        "statuses": [part.status for part in replies],
        "examples": [part.num_examples for part in replies],
        "metrics": [json.dumps(part.metrics) if part.metrics else "{}" for part in replies],
    }
    if reply.digest:
        settings["digest"] = reply.digest
    if reply.columns is not None:
        settings["columns"] = reply.columns.to_text()
    if reply.roster is not None:
        settings["roster"] = list(reply.roster)
    if any(part.remark for part in replies):
        settings["remarks"] = [clean_text(part.remark) for part in replies]
    learned = [part for part in replies if part.values is not None]
    values = [np.asarray(part.values) for part in learned]
    if learned and (few_bits := learned[0].few_bits) is not None:
        settings |= {"bits": few_bits.bits, "reach": few_bits.reach, "dithered": few_bits.is_dithered}
        values = [
            pack_levels(part.few_bits.levels, few_bits.bits) for part in learned if part.few_bits is not None
        ]
    records: dict[str, Any] = {SETTINGS: fill(ConfigRecord, settings)}
    if values:
        joined = values[0] if len(values) == 1 else np.concatenate(values)
        records[ARRAYS] = fill(ArrayRecord, {VALUES: array_of(joined)})
    return fill(RecordDict, records)


def decode_reply(content: RecordDict, length: int, dtype: np.dtype[Any]) -> NodeReply:
    """Read a reply whose clients should each have sent `length` values of `dtype`.

    Only the form is judged here; :mod:`psofed.federation.server.checks` judges the content.

    Raises
    ------
    BadReplyError
        Says what is wrong with the message as a whole, for which the node answers.
    """
    record = plain(content).get(SETTINGS)
    if not isinstance(record, ConfigRecord):
        raise BadReplyError("malformed", "no settings record")
    settings = plain(record)
    if settings.get("format") != FORMAT:
        raise BadReplyError("malformed", f"format {settings.get('format')!r}")
    try:
        session, round_number = text_of(settings, "session"), integer_of(settings, "round")
        node = number_of(settings, "node")
        digest = text_of(settings, "digest") if "digest" in settings else ""
        columns = ColumnNames.from_text(text_of(settings, "columns")) if "columns" in settings else None
        roster = None
        if "roster" in settings:
            roster = check_client_names(list_of(settings, "roster", str), gateway=True)
        clients = check_client_names(list_of(settings, "clients", str))
        count = len(clients)
        statuses = list_of(settings, "statuses", str, count)
        examples = list_of(settings, "examples", int, count)
        reports = list_of(settings, "metrics", str, count)
        remarks = list_of(settings, "remarks", str, count) if "remarks" in settings else [""] * count
    except ValueError as error:
        raise BadReplyError("malformed", str(error)) from None
    for status in statuses:
        if status not in STATUSES:
            raise BadReplyError("malformed", f"status {status[:40]!r}")
    numbers = [
        client_number(node, client)
        for client, status in zip(clients, statuses, strict=True)
        if status == LEARNED
    ]
    learned = iter(_decode_values(content, settings, numbers, length, dtype) if numbers else [])
    replies, refused = [], {}
    for client, status, count, report, remark in zip(
        clients, statuses, examples, reports, remarks, strict=True
    ):
        values, few_bits = next(learned) if status == LEARNED else (None, None)
        try:
            metrics = decode_metrics(report)
        except BadReplyError as error:
            refused[client] = error
            continue
        replies.append(
            Reply(
                client=client, status=status, values=values, few_bits=few_bits, num_examples=count,
                metrics=metrics, remark=clean_text(remark) if remark else "",
            )
        )  # fmt: skip
    return NodeReply(
        session=session,
        round_number=round_number,
        node=node,
        digest=digest,
        columns=columns,
        roster=roster,
        replies=tuple(replies),
        refused=refused,
    )


def _decode_values(
    content: RecordDict, settings: Mapping[str, Any], numbers: list[int], length: int, dtype: np.dtype[Any]
) -> list[tuple[Vector, FewBits | None]]:
    """Return what each client that has learned has uploaded, given the clients' numbers."""
    record = plain(content).get(ARRAYS)
    if not isinstance(record, ArrayRecord):
        raise BadReplyError("malformed", "no arrays record")
    if list(record) != [VALUES]:
        raise BadReplyError("wrong-key", f"arrays {[str(key)[:40] for key in record][:3]}")
    count = len(numbers)
    if "bits" not in settings:
        values = decode_array(record[VALUES], count * length, dtype)
        return [(row, None) for row in values.reshape(count, length)]
    try:
        bits, round_number = integer_of(settings, "bits", 1, 32), integer_of(settings, "round", 1, MAX_ROUND)
        session = text_of(settings, "session")
    except ValueError as error:
        raise BadReplyError("malformed", str(error)) from None
    reach, is_dithered = settings.get("reach"), settings.get("dithered")
    if not isinstance(reach, int | float) or isinstance(reach, bool) or not 0 < reach < 1e150:
        raise BadReplyError("malformed", "reach is not a number above 0")
    if not isinstance(is_dithered, bool):
        raise BadReplyError("malformed", "dithered is neither true nor false")
    size = packed_size(bits, length)
    data = decode_array(record[VALUES], count * size, np.dtype(np.uint8)).reshape(count, size)
    uploads: list[tuple[Vector, FewBits | None]] = []
    for row, number in zip(data, numbers, strict=True):
        few_bits = FewBits(unpack_levels(row, bits, length), bits, float(reach), is_dithered)
        uploads.append((few_bits.values(session, number, round_number).astype(dtype), few_bits))
    return uploads


def decode_metrics(text: str) -> dict[str, Any]:
    """Return what a client reports, or raise BadReplyError if it is no report or would fill the server's disk.

    Examples
    --------
    >>> decode_metrics('{"mse": 0.5, "squared-errors": [0.25, 0.75]}')
    {'mse': 0.5, 'squared-errors': [0.25, 0.75]}
    """
    if text == "{}":
        return {}
    if len(text) > _MAX_METRIC_TEXT:
        raise BadReplyError("malformed", "too many metrics, or too long ones")
    try:
        metrics = json.loads(text)
    except (ValueError, RecursionError):
        raise BadReplyError("malformed", "metrics that cannot be read") from None
    if not isinstance(metrics, dict):
        raise BadReplyError("malformed", "metrics without names")
    count = 0
    for name, value in metrics.items():
        entries = value if isinstance(value, list) else [value]
        count += len(entries)
        if len(name) > _MAX_METRIC_NAME or not all(map(_is_number, entries)):
            raise BadReplyError("malformed", "metrics that are no numbers")
    if len(metrics) > _MAX_METRICS or count > _MAX_METRIC_VALUES:
        raise BadReplyError("malformed", "too many metrics, or too long ones")
    return metrics


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and -(2**63) <= value < 2**63)
