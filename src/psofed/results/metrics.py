"""The metrics of a result: what tables call them, what they say in files, and how they are shown."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.common.numbers import to_decibels
from psofed.common.suggest import did_you_mean
from psofed.parts.base import Metric
from psofed.parts.registry import find_part, part_names
from psofed.scenario import Scenario


@dataclass(frozen=True)
class MetricLabel:
    """The name of a metric for people, its unit and its scale.

    Attributes
    ----------
    title : str
        In tables and charts.
    long_name : str
        In files.
    unit : str
        "1" for a number without one.
    in_decibels : bool
        Whether it is shown as 10 log₁₀ of its value.
    """

    title: str
    long_name: str
    unit: str = "1"
    in_decibels: bool = True

    @property
    def shown_unit(self) -> str:
        """The unit in tables and charts; empty for a number without one."""
        return "dB" if self.in_decibels else "" if self.unit == "1" else self.unit

    def shown(self, value: Any) -> Any:
        """Return a value as tables and charts show it."""
        return to_decibels(value) if self.in_decibels else value


HONEST = "honest_mse"
LABELS = {
    "network_mse": MetricLabel("network MSE", "mean squared error over all clients"),
    "server_msd": MetricLabel("server MSD", "squared distance of the server's model from the target"),
    "test_mse": MetricLabel("test MSE", "mean squared error of the server's model on its test set"),
    HONEST: MetricLabel("honest MSE", "mean squared error over the clients that are not Byzantine"),
}

# Metrics that every simulation has and the theory predicts.
METRIC_TITLES = {name: label.title for name, label in LABELS.items() if name != HONEST}

# What the same samples give without a federation (:mod:`psofed.simulation.baselines`).
BASELINE_TITLES = {
    "alone": "each client alone",
    "pooled": "all data pooled, online",
    "least_squares": "all data pooled, least squares in hindsight",
    "average": "running mean, no model",
}

# Fleets of up to this many clients have every client's error and the honest MSE without being asked.
_MOST_CLIENTS = 10_000

# Labels of the metrics in files whose classes are not loaded.
_FROM_FILES: dict[str, MetricLabel] = {}


def label_of(name: str) -> MetricLabel:
    """Return the label of a metric that a result has.

    Examples
    --------
    >>> label_of("honest_mse").title
    'honest MSE'
    """
    if name in LABELS:
        return LABELS[name]
    kind = name.replace("_", "-")
    if kind in part_names("metric"):
        part: type[Metric] = find_part("metric", kind)
        title = part.title or name.replace("_", " ")
        return MetricLabel(title, title, part.unit, part.in_decibels)
    return _FROM_FILES.get(name, MetricLabel(name, name))


def read_label(name: str, attributes: Any) -> None:
    """Learn a metric's label from the attributes of its variable in a file."""
    _FROM_FILES[name] = MetricLabel(
        str(attributes.get("title", name)), str(attributes.get("title", name)),
        str(attributes.get("units", "1")), bool(attributes.get("in_decibels", 1)),
    )  # fmt: skip


def find_metrics(metrics: "Iterable[str | Metric] | str | Metric") -> tuple[str | Metric, ...]:
    """Return names of built-in metrics and the user's own as values, each once; refuse unknown ones by name.

    Examples
    --------
    >>> find_metrics("honest_mse")
    ('honest_mse',)
    """
    chosen: dict[str, str | Metric] = {}
    for metric in (metrics,) if isinstance(metrics, str | Metric) else metrics:
        if isinstance(metric, Metric):
            value: str | Metric = metric
        elif metric in LABELS:
            value = metric
        else:
            names = (*LABELS, *(kind.replace("-", "_") for kind in part_names("metric")))
            if not isinstance(metric, str) or metric not in names:
                expected = f"one of {', '.join(names)}, or your own psofed.Metric"
                raise InvalidValueError("metric", metric, expected, did_you_mean(str(metric), names))
            value = find_part("metric", metric.replace("_", "-"))()
        name = metric_name(value)
        if name in LABELS and isinstance(value, Metric):
            raise InvalidValueError("metric", name, "another name than that of a built-in metric")
        if chosen.setdefault(name, value) != value:
            raise InvalidValueError("metric", name, "given once; a class with other options needs another `kind`")
    return tuple(chosen.values())


def metric_name(metric: str | Metric) -> str:
    """Return the name under which a result has a metric."""
    return metric.name if isinstance(metric, Metric) else metric


def is_measured_by_client(scenario: Scenario, metrics: tuple[str | Metric, ...]) -> bool:
    """Whether every client's error is kept, and with Byzantine clients the honest MSE."""
    if HONEST in metrics and scenario.num_byzantine >= scenario.num_clients:
        raise NotCoveredError(f"{HONEST} needs honest clients, but all {scenario.num_clients} are Byzantine")
    if 0 < scenario.num_byzantine >= scenario.num_clients:
        return False
    return bool(metrics) or scenario.num_clients <= _MOST_CLIENTS
