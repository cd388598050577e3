"""How far two results lie apart, metric by metric, in dB and per cent, from trials that are pairs on equal draws.

With equal seed, fleet and trials the i-th trial of both saw the same data and participants, so that the differences of
the pairs are far less uncertain than either result. What is estimated:

- usually the *ratio of the means*, 10 log₁₀(ā/b̄), with Student's interval over the pairs' influence a_i/ā − b_i/b̄
  (delta method);
- where either sample, or the influence, is heavy-tailed, or a trial diverged, the *median of the pairs' ratios*,
  10 log₁₀(a_i/b_i), with the interval of the sign test, which holds for every distribution. Pairs of which both
  diverged could lie on either side, and widen the interval on both.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.numbers import json_object, to_decibels
from psofed.common.types import FloatArray
from psofed.render import Report, Reported
from psofed.render.charts import RowChart, Scale
from psofed.render.numbers import shortened
from psofed.results.estimates import CONFIDENCE, is_heavy_tailed, is_unfair, sign_test_rank, students_factor
from psofed.results.metrics import label_of
from psofed.scenario.describe import dotted_fields

if TYPE_CHECKING:
    import pandas

    from psofed.results.simulation import SimulationResult
    from psofed.scenario import Scenario

Statistic = Literal["ratio of means", "median of ratios"]
DECIBELS_PER_NEPER = 10 / math.log(10)


@dataclass(frozen=True)
class MetricDifference:
    """By how much one metric of the first result lies above (+) or below (−) that of the second.

    Attributes
    ----------
    decibels, percent : float
        The difference, and the same as a change of the second result's value; NaN where nothing can be said.
    interval, percent_interval : (float, float)
        Confidence interval in dB and per cent; ends are NaN if there are too few trials.
    statistic : str
        What is compared: ``"ratio of means"``, or for heavy tails ``"median of ratios"``.
    lower, higher : int
        Pairs in which the first result is the lower, and the higher one.
    diverged : (int, int)
        Diverged trials of the first and the second result.
    confidence : float
        Of the interval.
    """

    decibels: float
    interval: tuple[float, float]
    statistic: Statistic
    lower: int = 0
    higher: int = 0
    diverged: tuple[int, int] = (0, 0)
    confidence: float = CONFIDENCE

    @property
    def percent(self) -> float:
        """The difference in per cent of the second result."""
        return _to_percent(self.decibels)

    @property
    def percent_interval(self) -> tuple[float, float]:
        """The interval in per cent of the second result."""
        return _to_percent(self.interval[0]), _to_percent(self.interval[1])

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval[0] > 0 or self.interval[1] < 0

    @property
    def is_heavy_tailed(self) -> bool:
        """Whether medians are compared, because means of these trials would mislead."""
        return self.statistic != "ratio of means"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; values that are not finite become None."""
        return json_object(
            {
                "db": self.decibels,
                "interval_db": list(self.interval),
                "percent": self.percent,
                "interval_percent": list(self.percent_interval),
                "confidence": self.confidence,
                "statistic": self.statistic,
                "significant": self.is_significant,
                "pairs": {"lower": self.lower, "higher": self.higher},
                "diverged_trials": list(self.diverged),
            }
        )


def paired_difference(a: FloatArray, b: FloatArray, confidence: float = CONFIDENCE) -> MetricDifference:
    """Compare positive values of pairs; infinite where a trial diverged.

    Examples
    --------
    >>> gap = paired_difference(np.array([0.9, 1.1, 1.0]), np.array([9.0, 11.0, 10.0]))
    >>> round(gap.decibels, 6), gap.statistic
    (-10.0, 'ratio of means')
    """
    diverged = int(np.sum(~np.isfinite(a))), int(np.sum(~np.isfinite(b)))
    lower, higher = int(np.sum(a < b)), int(np.sum(a > b))
    compared = partial(MetricDifference, lower=lower, higher=higher, diverged=diverged, confidence=confidence)
    if len(a) < 2:
        return compared(float(np.mean(pair_decibels(a, b))), (math.nan, math.nan), "ratio of means")
    if not any(diverged) and not (is_heavy_tailed(a) or is_heavy_tailed(b)):
        mean_a, mean_b = float(a.mean()), float(b.mean())
        if mean_a > 0 and mean_b > 0 and not is_unfair(a / mean_a - b / mean_b):
            value, error = ratio_of_means(a, b)
            reach = students_factor(len(a), confidence) * error
            return compared(value, (value - reach, value + reach), "ratio of means")
    ratios = pair_decibels(a, b)
    undecided = np.isnan(ratios)
    low, high = np.where(undecided, -math.inf, ratios), np.where(undecided, math.inf, ratios)
    rank = sign_test_rank(len(ratios), confidence)
    interval = (float(np.sort(low)[rank - 1]), float(np.sort(high)[-rank])) if rank else (math.nan, math.nan)
    # Where most pairs diverged together, nothing can be said.
    with np.errstate(invalid="ignore"):
        value = float(np.median(ratios[~undecided])) if 2 * int(undecided.sum()) < len(ratios) else math.nan
    return compared(value, interval, "median of ratios")


def ratio_of_means(a: FloatArray, b: FloatArray) -> tuple[float, float]:
    """Return 10 log₁₀(ā/b̄) of pairs and its standard error, by the delta method: from the influence a_i/ā − b_i/b̄.

    Examples
    --------
    >>> ratio_of_means(np.array([2.0, 4.0]), np.array([1.0, 2.0]))[1]
    0.0
    """
    mean_a, mean_b = float(a.mean()), float(b.mean())
    error = float(np.std(a / mean_a - b / mean_b, ddof=1)) / math.sqrt(len(a))
    return to_decibels(mean_a / mean_b), DECIBELS_PER_NEPER * error


def pair_decibels(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return 10 log₁₀(a_i/b_i): infinite where one diverged, NaN where both did, 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = to_decibels(a / b)
    return np.where((a == b) & np.isfinite(a), 0.0, ratios)


def _to_percent(decibels: float) -> float:
    if math.isnan(decibels):
        return math.nan
    return 100 * (10 ** (decibels / 10) - 1) if decibels < 3000 else math.inf


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

    def chart(self) -> RowChart:
        """Return the difference of every metric with its interval."""
        values = self.metrics.values()
        middle, low, high = np.array([(value.decibels, *value.interval) for value in values]).T
        names = tuple(label_of(metric).title for metric in self.metrics)
        scale = Scale("difference (dB), negative is better; 95 % intervals")
        size = (7.2, 1.2 + 0.4 * len(names))
        return RowChart(" − ".join(self.names), scale, names, middle, low, high, size=size)


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
