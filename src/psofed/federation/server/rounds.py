"""Record of a round: participants, uploads, sizes, and the clients' average metrics."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Message, MetricRecord

from psofed.federation.protocol.wire import LOST, BadReplyError, Reply


def describe_round(
    round_number: int,
    asked: Sequence[tuple[str, Message]],
    valid: Mapping[str, Reply],
    dropped: Mapping[str, BadReplyError],
    bytes_per_value: int,
    seconds: float,
    suspects: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Return a round's entry in the history, as JSON holds it; nodes go by their names.

    Values and bytes are those of the models' entries alone, as sent and as accepted; what the network
    carries beyond them is counted at the socket.
    """
    down = sum(_num_values(message) for _, message in asked)
    up = sum(0 if reply.values is None else int(reply.values.size) for reply in valid.values())
    return {
        "round": round_number,
        "participants": sorted(name for name, _ in asked),
        "accepted": sorted(node for node, reply in valid.items() if reply.status != LOST),
        "lost_state": sorted(node for node, reply in valid.items() if reply.status == LOST),
        "dropped": {name: error.kind for name, error in sorted(dropped.items())},
        "reasons": {name: error.detail for name, error in sorted(dropped.items()) if error.detail},
        "remarks": {name: reply.remark for name, reply in sorted(valid.items()) if reply.remark},
        **({} if suspects is None else {"left_out": sorted(suspects)}),
        "values_down": down,
        "values_up": up,
        "bytes_down": down * bytes_per_value,
        "bytes_up": sum(reply.payload for reply in valid.values()),
        "examples": sum(reply.num_examples for reply in valid.values()),
        "examples_by_node": {name: reply.num_examples for name, reply in sorted(valid.items())},
        "seconds": round(seconds, 3),
        "metrics": {name: finite_metrics(reply.metrics) for name, reply in sorted(valid.items())},
    }


def average_metrics(replies: Mapping[str, Reply]) -> MetricRecord:
    """Average what the clients report, unweighted."""
    return mean_of([{**reply.metrics, "num-examples": reply.num_examples} for reply in replies.values()])


def mean_of(reports: Sequence[Mapping[str, Any]]) -> MetricRecord:
    """Average each scalar over those who report it; lists and what is not finite are left out.

    Examples
    --------
    >>> dict(mean_of([{"loss": 1.0}, {"loss": 3.0, "other": math.nan}]))
    {'loss': 2.0}
    """
    means: dict[str, Any] = {}
    for name in {name: None for report in reports for name in report}:
        found = [report[name] for report in reports if isinstance(report.get(name), int | float)]
        finite = [value for value in found if math.isfinite(value)]
        if finite:
            means[name] = mean_without_overflow(finite)
    return MetricRecord(means)


def mean_without_overflow(values: Sequence[float]) -> float:
    """Return the mean of finite values, however large a Byzantine client may have made them.

    Examples
    --------
    >>> mean_without_overflow([1.5e308, 1.5e308])
    1.5e+308
    """
    return float(math.fsum(value / len(values) for value in values))


def finite_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as strict JSON holds them, None for what is not finite."""
    clean: dict[str, Any] = {}
    for name, value in metrics.items():
        numbers = [
            entry if math.isfinite(entry) else None
            for entry in (value if isinstance(value, list) else [value])
        ]
        clean[name] = numbers if isinstance(value, list) else numbers[0]
    return clean


def _num_values(message: Message) -> int:
    return sum(
        math.prod(array.shape)
        for record in message.content.array_records.values()
        for array in record.values()
    )
