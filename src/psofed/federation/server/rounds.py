"""Record of a round: participants, uploads, sizes, and the clients' average metrics."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flwr.app import MetricRecord

from psofed.federation.protocol.answers import DESCRIBED, LEARNED, LEFT, LOST, Reply
from psofed.federation.protocol.wire import BadReplyError
from psofed.federation.server.instructions import NodeQuestion


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundRecord:
    """A round, as the history keeps it; clients go by their names.

    Values and bytes are those of the models' entries alone, as sent and as accepted; what the network
    carries beyond them is counted at the socket.
    """

    round_number: int
    asked: Sequence[NodeQuestion]
    valid: Mapping[str, Reply]
    dropped: Mapping[str, BadReplyError]
    bytes_per_value: int
    seconds: float
    suspects: Mapping[str, str] | None = None
    late: Mapping[str, int] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Return the round's entry in the history, as JSON holds it."""
        valid, dropped = dict(sorted(self.valid.items())), dict(sorted(self.dropped.items()))
        asked = [client.name for question in self.asked for client in question.clients.values()]
        down = sum(question.num_values for question in self.asked)
        left = [name for name, reply in valid.items() if reply.status in (DESCRIBED, LEFT)]
        return {
            "round": self.round_number,
            "participants": sorted(asked),
            "accepted": [name for name, reply in valid.items() if reply.status == LEARNED],
            "lost_state": [name for name, reply in valid.items() if reply.status == LOST],
            **({"left": left} if left else {}),
            "dropped": {name: error.kind for name, error in dropped.items()},
            "reasons": {name: error.detail for name, error in dropped.items() if error.detail},
            "remarks": {name: reply.remark for name, reply in valid.items() if reply.remark},
            **({"late": dict(self.late)} if self.late else {}),
            **({} if self.suspects is None else {"left_out": sorted(self.suspects)}),
            "values_down": down,
            "values_up": sum(
                0 if reply.values is None else int(reply.values.size) for reply in valid.values()
            ),
            "bytes_down": down * self.bytes_per_value,
            "bytes_up": sum(reply.payload for reply in valid.values()),
            "examples": sum(reply.num_examples for reply in valid.values()),
            "examples_by_node": {name: reply.num_examples for name, reply in valid.items()},
            "seconds": round(self.seconds, 3),
            "metrics": {name: finite_metrics(reply.metrics) for name, reply in valid.items()},
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
