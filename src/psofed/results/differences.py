"""Differences between two results, metric by metric, from trials that are pairs on equal draws."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.types import FloatArray
from psofed.render import Report, Reported
from psofed.results.estimates import CONFIDENCE
from psofed.results.metric_difference import MetricDifference, pair_decibels, paired_difference
from psofed.results.metrics import label_of
from psofed.scenario.describe import dotted_fields

if TYPE_CHECKING:
    import pandas

    from psofed.render.charts import Chart
    from psofed.results.simulation import SimulationResult
    from psofed.scenario import Scenario

# Settings that tell two results apart, before they are only called the first and the second.
_MOST_SETTINGS = 2


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Reported):
    """All metrics of one result relative to those of another.

    Returned by :func:`psofed.difference`, by ``a - b`` and by :meth:`psofed.SweepResult.difference`.

    Attributes
    ----------
    network_mse, server_msd, test_mse : MetricDifference
    trials : (int, int)
        How many of each result were used.
    names : (str, str)
        What the results are called: by default the settings in which they differ.
    """

    paired: ClassVar[bool] = True  # others are refused

    metrics: dict[str, MetricDifference]
    trials: tuple[int, int]
    names: tuple[str, str] = ("the first", "the second")
    _values: dict[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False)

    @property
    def network_mse(self) -> MetricDifference:
        """Of the MSE over all clients."""
        return self["network_mse"]

    @property
    def server_msd(self) -> MetricDifference:
        """Of the server's MSD."""
        return self["server_msd"]

    @property
    def test_mse(self) -> MetricDifference:
        """Of the server's test MSE."""
        return self["test_mse"]

    def __getitem__(self, metric: str) -> MetricDifference:
        return self.metrics[metric]

    def named(self, first: str, second: str) -> "Difference":
        """Return the same difference with other names for the two results."""
        return replace(self, names=(first, second))

    def describe(self, metric: str = "network_mse") -> str:
        """Say it in one sentence."""
        from psofed.results.reports.difference import describe_difference

        return describe_difference(self.metrics[metric], label_of(metric).title, *self.names)

    def report(self) -> Report:
        """Return the differences with their intervals, as a value."""
        from psofed.results.reports.difference import difference_report

        return difference_report(self)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            **{metric: value.to_json() for metric, value in self.metrics.items()},
            "paired": self.paired,
            "trials": list(self.trials),
            "names": list(self.names),
        }

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a row per metric."""
        import pandas

        rows = [
            {
                "metric": metric,
                "db": value.decibels,
                **dict(zip(("low_db", "high_db"), value.interval, strict=True)),
                "percent": value.percent,
                **dict(zip(("low_percent", "high_percent"), value.percent_interval, strict=True)),
                "statistic": value.statistic,
                "significant": value.is_significant,
            }
            for metric, value in self.metrics.items()
        ]
        return pandas.DataFrame(rows)

    def chart(self, metric: str = "network_mse") -> "Chart":
        """Return every pair's difference in dB, in order, with the estimate and its interval."""
        from psofed.results.reports.difference import difference_chart

        return difference_chart(self, metric)

    def pairs(self, metric: str = "network_mse") -> FloatArray:
        """Return 10 log₁₀(a_i/b_i) of every pair; infinite where one diverged, NaN where both did."""
        return pair_decibels(*self._values[metric])


def difference(a: "SimulationResult", b: "SimulationResult") -> Difference:
    """Compare two simulations: by how much `a` lies above (+) or below (−) `b`, in dB and per cent, with intervals.

    Parameters
    ----------
    a, b : SimulationResult
        Of two scenarios with equal seeds and fleets, so that their trials are pairs on equal draws. Others are refused
        by name.

    Returns
    -------
    Difference

    Examples
    --------
    >>> from psofed import Scenario, simulate
    >>> from psofed.attacks import Gaussian
    >>> fleet = Scenario(num_clients=10, dimension=4, iterations=300, attack=Gaussian(num_byzantine=3))
    >>> few, all_ = (simulate(fleet.replace(num_shared=m), trials=24) for m in (1, 4))
    >>> saving = difference(few, all_)
    >>> saving.network_mse.is_significant, saving.network_mse.decibels < 0
    (True, True)
    """
    from psofed.results.simulation import SimulationResult

    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, SimulationResult):
            raise InvalidValueError(name, value, "a psofed.SimulationResult, as psofed.simulate returns")
    check_pairs(a.scenario, b.scenario)
    if a.seed != b.seed:
        raise _not_pairs(f"seeds {a.seed} and {b.seed} differ")
    if a.scenario.iterations == b.scenario.iterations and a.tail != b.tail:
        raise _not_pairs(f"they average over the last {a.tail} and {b.tail} iterations")
    for name, title in (("input_variance", "inputs"), ("noise_variance", "noise"), ("target", "targets")):
        if not np.array_equal(getattr(a.fleet, name), getattr(b.fleet, name)):
            raise _not_pairs(f"the fleets' {title} differ")
    return paired_metrics(a.steady_state, b.steady_state, name_by_settings(a.scenario, b.scenario))


def paired_metrics(
    first: Mapping[str, FloatArray],
    second: Mapping[str, FloatArray],
    names: tuple[str, str],
    confidence: float = CONFIDENCE,
) -> Difference:
    """Compare steady states by metric, pair by pair: trials have numbers, and those that both have are pairs."""
    metrics, values = {}, {}
    for metric in first:
        if metric in second:
            common = min(len(first[metric]), len(second[metric]))
            values[metric] = first[metric][:common], second[metric][:common]
            metrics[metric] = paired_difference(*values[metric], confidence)
    return Difference(metrics, (common, common), names, values)


def name_by_settings(first: "Scenario", second: "Scenario") -> tuple[str, str]:
    """Name two scenarios by the settings in which they differ, if those are few.

    Examples
    --------
    >>> from psofed import Scenario
    >>> fleet = Scenario(num_clients=10, dimension=4)
    >>> name_by_settings(fleet, fleet.replace(num_shared=4))
    ('num_shared = 1', 'num_shared = 4')
    """
    a, b = (dotted_fields(scenario.to_mapping()) for scenario in (first, second))
    changed = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    if "attack.kind" in changed:  # then its other fields follow
        changed = [key for key in changed if not key.startswith("attack.") or key == "attack.kind"]
    if not 1 <= len(changed) <= _MOST_SETTINGS:
        return "the first", "the second"
    return (
        ", ".join(f"{key} = {_plain(a.get(key))}" for key in changed),
        ", ".join(f"{key} = {_plain(b.get(key))}" for key in changed),
    )


def _plain(value: Any) -> str:
    text = "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 24 else f"{text[:23]}…"


def check_pairs(first: "Scenario", second: "Scenario") -> None:
    """Refuse, by name, two scenarios whose trials cannot be pairs on equal draws."""
    for name, title in (("num_clients", "clients"), ("dimension", "entries")):
        a, b = getattr(first, name), getattr(second, name)
        if a != b:
            raise _not_pairs(f"{a} and {b} {title}")
    if (first.data.rows is None) != (second.data.rows is None):
        raise _not_pairs("one has data of its own, the other a drawn fleet")
    names = [name for name in type(first.data).options() if getattr(first.data, name) != getattr(second.data, name)]
    if names:
        raise _not_pairs(f"{' and '.join(f'data.{name}' for name in names)} differ")


def _not_pairs(reason: str) -> PsofedError:
    return PsofedError(f"differences need trials on equal draws, but these results are not pairs: {reason}.")
