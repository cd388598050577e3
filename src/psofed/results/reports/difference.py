"""Difference between two results: all metrics, pair by pair, as sentences, a table, a chart and data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.types import FloatArray
from psofed.render import Column, Kind, Measured, NextStep, Report, Reported, Table
from psofed.render.charts import RowChart, Scale
from psofed.render.numbers import fixed, percent, sentence_case, shortened, significant
from psofed.results.differences import MetricDifference, paired_difference
from psofed.results.estimates import CONFIDENCE
from psofed.results.metrics import label_of
from psofed.scenario.describe import dotted_fields

if TYPE_CHECKING:
    import pandas

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
        return describe_difference(self.metrics[metric], label_of(metric).title, *self.names)

    def report(self) -> Report:
        """Return the differences with their intervals, as a value."""
        first, second = self.names
        columns = (
            Column(""),
            Column("difference", Kind.DECIBELS, interval=True, infinite="∞"),
            Column("change", Kind.PERCENT, infinite="∞"),
            Column("compared"),
            Column("significant"),
        )
        rows = tuple(
            (
                label_of(metric).title,
                Measured(value.decibels, *value.interval),
                value.percent / 100,
                value.statistic,
                "yes" if value.is_significant else "no",
            )
            for metric, value in self.metrics.items()
        )
        notes = (f"Negative: {first} has the lower error, which is better.",)
        table = Table(f"{first} relative to {second}", columns, rows, notes)
        is_clear = any(value.is_significant for value in self.metrics.values())
        step = None if is_clear else NextStep(
            "Narrow the interval with more trials", f"psofed.simulate(scenario, trials={4 * self.trials[0]})",
            f"psofed simulate FILE --trials {4 * self.trials[0]}",
        )  # fmt: skip
        return Report(
            self.describe(), f"{self.trials[0]} pairs of trials on equal draws.", (table,), (), step, self.chart
        )

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

    def chart(self) -> RowChart:
        """Return the difference of every metric with its interval."""
        values = self.metrics.values()
        middle, low, high = np.array([(value.decibels, *value.interval) for value in values]).T
        names = tuple(label_of(metric).title for metric in self.metrics)
        scale = Scale("difference (dB), negative is better; 95 % intervals")
        size = (7.2, 1.2 + 0.4 * len(names))
        return RowChart(" − ".join(self.names), scale, names, middle, low, high, size=size)


def describe_difference(
    compared: MetricDifference, title: str, first: str = "the first", second: str = "the second"
) -> str:
    """Say a difference in one sentence.

    Examples
    --------
    >>> describe_difference(MetricDifference(-3.0, (-3.1, -2.9), "ratio of means"), "network MSE", "a", "b")
    'The network MSE of a is 3.00 dB (49.9 %) below that of b (95 % interval: 2.90 to 3.10 dB).'
    """
    tail = ""
    if any(compared.diverged):
        counts = [f"{n} of {name}" for name, n in zip((first, second), compared.diverged, strict=True) if n]
        tail = f" Diverged trials: {' and '.join(counts)}."
    if compared.is_heavy_tailed:
        tail = " Medians over the pairs are compared, because a few extreme trials dominate the means." + tail
    if math.isnan(compared.decibels):
        return f"The {title} cannot be compared: most trials of both diverged.{tail}"
    if math.isinf(compared.decibels):
        better, worse = (first, second) if compared.decibels < 0 else (second, first)
        chance = "" if compared.is_significant else ", but too few trials differ to rule out chance"
        return f"{sentence_case(worse)} diverges in most trials, {better} does not{chance}.{tail}"
    low, high = compared.interval
    share = (
        percent(abs(compared.percent) / 100, 1)
        if abs(compared.percent) < 1000
        else f"a factor of {significant(1 + compared.percent / 100, 3)}"
    )
    direction = "below" if compared.decibels < 0 else "above"
    size = f"{fixed(abs(compared.decibels))} dB ({share}) {direction} that of {second}"
    if math.isnan(low):
        return f"The {title} of {first} is {size}; there are too few trials for an interval.{tail}"
    if not compared.is_significant:
        ends = f"{fixed(low, signed=True)} to {fixed(high, signed=True)} dB"
        return f"No significant difference in {title}: that of {first} is {size} (95 % interval: {ends}).{tail}"
    near, far = sorted((abs(low), abs(high)))
    reach = f"{fixed(far)} dB" if math.isfinite(far) else "∞"
    return f"The {title} of {first} is {size} (95 % interval: {fixed(near)} to {reach}).{tail}"


def difference(a: "SimulationResult", b: "SimulationResult") -> Difference:
    """Compare two simulations: by how much `a` lies above (+) or below (−) `b`, in dB and per cent.

    Parameters
    ----------
    a, b : SimulationResult
        Of any two scenarios with equal seeds and fleets, so that their trials are pairs on equal draws; others are
        refused by name.

    Returns
    -------
    Difference
        Each metric's difference with its interval.

    Examples
    --------
    >>> from psofed import Scenario, simulate
    >>> from psofed.attacks import Gaussian
    >>> fleet = Scenario(num_clients=10, dimension=4, iterations=300, attack=Gaussian(num_byzantine=3))
    >>> few, all_ = (simulate(fleet.replace(num_shared=m), trials=24) for m in (1, 4))
    >>> saving = difference(few, all_)
    >>> saving.paired, saving.network_mse.is_significant, saving.network_mse.decibels < 0
    (True, True, True)
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
    common = min(len(next(iter(first.values()))), len(next(iter(second.values()))))
    metrics = {
        metric: paired_difference(first[metric][:common], second[metric][:common], confidence)
        for metric in first
        if metric in second
    }
    return Difference(metrics, (common, common), names)


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
    return shortened("none" if value is None else f"{value:g}" if isinstance(value, float) else str(value), 24)


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
