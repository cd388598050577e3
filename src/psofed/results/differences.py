"""How far two results lie apart, in dB and per cent, from trials that saw the same draws.

With equal seed, fleet and trials the i-th trial of both saw the same data and participants, so that the differences of
the pairs are far less uncertain than either result. What is estimated:

- usually the *ratio of the means*, 10 log₁₀(ā/b̄), with Student's interval over the pairs' influence a_i/ā − b_i/b̄
  (delta method);
- where either sample, or the influence, is heavy-tailed, or a trial diverged, the *median of the pairs' ratios*,
  10 log₁₀(a_i/b_i), with the interval of the sign test, which holds for every distribution. Pairs of which both
  diverged could lie on either side, and widen the interval on both.

Without pairs the interval is Welch's, or that of two medians (each with half of the error).
"""

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.numbers import finite_or_none
from psofed.common.types import FloatArray
from psofed.results.estimates import (
    CONFIDENCE,
    is_heavy_tailed,
    is_unfair,
    median_interval,
    sign_test_rank,
    students_factor,
)
from psofed.results.metrics import ALL_TITLES, METRIC_TITLES

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from psofed.results.simulation import SimulationResult

Statistic = Literal["ratio of means", "median of ratios", "ratio of medians"]
_DECIBELS_PER_NEPER = 10 / math.log(10)


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
        What is compared: ``"ratio of means"``, or for heavy tails ``"median of ratios"``; ``"ratio of medians"``
        without pairs.
    lower, higher : int
        Pairs in which the first result is the lower, and the higher one; 0 without pairs.
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
        """Return plain values, ready for JSON: what is not finite is None."""
        plain = {
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
        cleaned: dict[str, Any] = finite_or_none(plain)
        return cleaned


@dataclass(frozen=True, eq=False)
class Difference:
    """All metrics of one result less those of another (:func:`psofed.difference`, or ``a - b``).

    Attributes
    ----------
    network_mse, server_msd, test_mse : MetricDifference
    paired : bool
        Whether trials are pairs on equal draws.
    trials : (int, int)
        How many of each result were used.
    reasons : tuple of str
        Why they are not pairs.
    """

    metrics: dict[str, MetricDifference]
    paired: bool
    trials: tuple[int, int]
    reasons: tuple[str, ...] = ()
    _values: dict[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False)

    @property
    def network_mse(self) -> MetricDifference:
        """Of the MSE over all clients."""
        return self.metrics["network_mse"]

    @property
    def server_msd(self) -> MetricDifference:
        """Of the server's MSD."""
        return self.metrics["server_msd"]

    @property
    def test_mse(self) -> MetricDifference:
        """Of the server's test MSE."""
        return self.metrics["test_mse"]

    def __getitem__(self, metric: str) -> MetricDifference:
        return self.metrics[metric]

    def describe(
        self, metric: str = "network_mse", first: str = "the first", second: str = "the second"
    ) -> str:
        """Say it in one sentence."""
        return describe_difference(self.metrics[metric], ALL_TITLES[metric], first, second, self._basis())

    def summary(self) -> str:
        """Return a sentence per metric, and what the pairs are."""
        lines = [describe_difference(found, ALL_TITLES[metric]) for metric, found in self.metrics.items()]
        return "\n".join([*lines, self._basis()[0].upper() + self._basis()[1:] + "."])

    def to_json(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            **{metric: found.to_json() for metric, found in self.metrics.items()},
            "paired": self.paired,
            "trials": list(self.trials),
            "not_paired_because": list(self.reasons),
        }

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a row per metric."""
        import pandas

        rows = []
        for metric, found in self.metrics.items():
            row = {
                "metric": metric,
                "db": found.decibels,
                "low_db": found.interval[0],
                "high_db": found.interval[1],
            }
            low, high = found.percent_interval
            row |= {"percent": found.percent, "low_percent": low, "high_percent": high}
            rows.append(row | {"statistic": found.statistic, "significant": found.is_significant})
        return pandas.DataFrame(rows)

    def plot(self, metric: str = "network_mse") -> "Figure":
        """Draw every pair's difference in dB, in order, with the estimate and its interval."""
        from psofed.results.show import draw

        return draw("difference.plot_difference", self, metric)

    def pairs(self, metric: str = "network_mse") -> FloatArray:
        """Return 10 log₁₀(a_i/b_i) of every pair; infinite where one diverged, NaN where both did."""
        if not self.paired:
            raise PsofedError(f"no pairs: {'; '.join(self.reasons)}")
        return pair_decibels(*self._values[metric])

    def _basis(self) -> str:
        if self.paired:
            return f"{self.trials[0]} pairs of trials on equal draws"
        return f"not paired, {self.trials[0]} and {self.trials[1]} trials: {'; '.join(self.reasons)}"

    def __repr__(self) -> str:
        return f"Difference({self._basis()})\n" + "\n".join(
            f"  {ALL_TITLES[metric]:12} {_plain(found)}" for metric, found in self.metrics.items()
        )

    def _repr_html_(self) -> str:
        from psofed.results.show import html_card

        rows = [
            (
                ALL_TITLES[metric],
                f"{_signed(found.decibels)} dB",
                _interval(found),
                f"{found.percent:+.1f} %",
                found.statistic,
            )
            for metric, found in self.metrics.items()
        ]
        head = ("", "difference", "95 % interval", "in per cent", "of")
        return html_card("Difference", head, rows, (self._basis(),), self.plot if self.paired else None)


def difference(a: "SimulationResult", b: "SimulationResult", paired: bool | None = None) -> Difference:
    """Compare two simulations: by how much `a` lies above (+) or below (−) `b`, in dB and per cent, with interval.

    Parameters
    ----------
    a, b : SimulationResult
        Of any two scenarios. Equal seeds and fleets make the trials pairs on equal draws.
    paired : bool, optional
        True refuses results that are not pairs, by name; False takes them as unrelated; by default pairs are used
        where there are some, and otherwise :attr:`Difference.reasons` says why not.

    Returns
    -------
    Difference

    Examples
    --------
    >>> from psofed import Scenario, simulate
    >>> from psofed.attacks import Gaussian
    >>> fleet = Scenario(num_clients=10, dimension=4, iterations=300, attack=Gaussian(num_byzantine=3))
    >>> few, all_ = (simulate(fleet.replace(num_shared=m), trials=24) for m in (1, 4))
    >>> found = difference(few, all_)
    >>> found.paired, found.network_mse.is_significant, found.network_mse.decibels < 0
    (True, True, True)
    """
    from psofed.results.simulation import SimulationResult

    for name, value in (("a", a), ("b", b)):
        if not isinstance(value, SimulationResult):
            raise InvalidValueError(name, value, "a psofed.SimulationResult, as psofed.simulate returns")
    reasons = why_not_paired(a, b) if paired is not False else ("as asked",)
    if paired and reasons:
        raise PsofedError(f"these results are not pairs: {'; '.join(reasons)}")
    metrics, values = {}, {}
    common = min(a.trials, b.trials)
    moved = [metric for metric in a.evasion or {} if metric in (b.evasion or {})]
    for metric in (*METRIC_TITLES, *moved):
        first, second = ({**x.steady_state, **(x.evasion or {})}[metric] for x in (a, b))
        if reasons:
            metrics[metric] = unpaired_difference(first, second)
        else:
            # Trials have numbers: those that both have are pairs.
            values[metric] = first[:common], second[:common]
            metrics[metric] = paired_difference(*values[metric])
    trials = (a.trials, b.trials) if reasons else (common, common)
    return Difference(metrics, not reasons, trials, tuple(reasons), values)


def why_not_paired(a: "SimulationResult", b: "SimulationResult") -> tuple[str, ...]:
    """Return what keeps trials from being pairs on equal draws; nothing if they are."""
    reasons = []
    if a.seed != b.seed:
        reasons.append(f"seeds {a.seed} and {b.seed} differ")
    for name, title in (("num_clients", "clients"), ("dimension", "entries")):
        first, second = getattr(a.scenario, name), getattr(b.scenario, name)
        if first != second:
            reasons.append(f"{first} and {second} {title}")
    if ("data" in a.details) != ("data" in b.details):
        reasons.append("one has data of its own, the other a drawn fleet")
    elif "data" not in a.details and a.scenario.data != b.scenario.data:
        names = [
            f"data.{name}"
            for name in type(a.scenario.data).__dataclass_fields__
            if getattr(a.scenario.data, name) != getattr(b.scenario.data, name)
        ]
        reasons.append(f"{' and '.join(names)} differ")
    if not reasons:
        for name, title in (("input_variance", "inputs"), ("noise_variance", "noise"), ("target", "targets")):
            if not np.array_equal(getattr(a.fleet, name), getattr(b.fleet, name)):
                reasons.append(f"the fleets' {title} differ")
    return tuple(reasons)


def paired_difference(a: FloatArray, b: FloatArray, confidence: float = CONFIDENCE) -> MetricDifference:
    """Compare positive values of pairs; infinite where a trial diverged.

    Examples
    --------
    >>> found = paired_difference(np.array([0.9, 1.1, 1.0]), np.array([9.0, 11.0, 10.0]))
    >>> round(found.decibels, 6), found.statistic
    (-10.0, 'ratio of means')
    """
    diverged = int(np.sum(~np.isfinite(a))), int(np.sum(~np.isfinite(b)))
    counts = int(np.sum(a < b)), int(np.sum(a > b))
    if len(a) < 2:
        return MetricDifference(
            _ratio(a, b), (math.nan, math.nan), "ratio of means", *counts, diverged, confidence
        )
    if not any(diverged) and not (is_heavy_tailed(a) or is_heavy_tailed(b)):
        mean_a, mean_b = float(a.mean()), float(b.mean())
        if mean_a > 0 and mean_b > 0:
            influence = a / mean_a - b / mean_b
            if not is_unfair(influence):
                error = float(np.std(influence, ddof=1)) / math.sqrt(len(a))
                reach = _DECIBELS_PER_NEPER * students_factor(len(a), confidence) * error
                value = 10 * math.log10(mean_a / mean_b)
                return MetricDifference(
                    value, (value - reach, value + reach), "ratio of means", *counts, diverged, confidence
                )
    ratios = pair_decibels(a, b)
    undecided = np.isnan(ratios)
    low, high = np.where(undecided, -math.inf, ratios), np.where(undecided, math.inf, ratios)
    rank = sign_test_rank(len(ratios), confidence)
    interval = (float(np.sort(low)[rank - 1]), float(np.sort(high)[-rank])) if rank else (math.nan, math.nan)
    # Where most pairs diverged together, nothing can be said.
    value = _median(ratios[~undecided]) if 2 * int(undecided.sum()) < len(ratios) else math.nan
    return MetricDifference(value, interval, "median of ratios", *counts, diverged, confidence)


def unpaired_difference(a: FloatArray, b: FloatArray, confidence: float = CONFIDENCE) -> MetricDifference:
    """Compare two unrelated samples of positive values."""
    diverged = int(np.sum(~np.isfinite(a))), int(np.sum(~np.isfinite(b)))
    if min(len(a), len(b)) < 2:
        return MetricDifference(
            _ratio(a, b), (math.nan, math.nan), "ratio of means", 0, 0, diverged, confidence
        )
    if not any(diverged) and not (is_heavy_tailed(a) or is_heavy_tailed(b)):
        from scipy.special import stdtrit

        parts = [float(np.var(x / x.mean(), ddof=1)) / len(x) for x in (a, b)]
        # Welch's degrees of freedom.
        freedom = (
            sum(parts) ** 2 / sum(p**2 / (len(x) - 1) for p, x in zip(parts, (a, b), strict=True))
            if sum(parts)
            else 1.0
        )
        factor = float(stdtrit(freedom, (1 + confidence) / 2))
        value, reach = _ratio(a, b), _DECIBELS_PER_NEPER * factor * math.sqrt(sum(parts))
        return MetricDifference(
            value, (value - reach, value + reach), "ratio of means", 0, 0, diverged, confidence
        )
    (middle_a, ends_a), (middle_b, ends_b) = (median_interval(x, (1 + confidence) / 2) for x in (a, b))
    low, high = _decibels(ends_a[0], ends_b[1]), _decibels(ends_a[1], ends_b[0])
    if not any(map(math.isnan, (*ends_a, *ends_b))):  # both infinite: on either side
        low, high = -math.inf if math.isnan(low) else low, math.inf if math.isnan(high) else high
    value = _decibels(middle_a, middle_b)
    return MetricDifference(value, (low, high), "ratio of medians", 0, 0, diverged, confidence)


def pair_decibels(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return 10 log₁₀(a_i/b_i): infinite where one diverged, NaN where both did, 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = 10 * np.log10(a / b)
    return np.where((a == b) & np.isfinite(a), 0.0, ratios)


def describe_difference(
    found: MetricDifference, title: str, first: str = "the first", second: str = "the second", basis: str = ""
) -> str:
    """Say a difference in one sentence.

    Examples
    --------
    >>> describe_difference(MetricDifference(-3.0, (-3.1, -2.9), "ratio of means"), "network MSE", "a", "b")
    'network MSE: a is 3.00 dB (49.9 %) below b, 95 % interval 2.90 to 3.10 dB.'
    """
    tail = f"; {basis}" if basis else ""
    if any(found.diverged):
        told = [
            f"{count} of {name}" for name, count in zip((first, second), found.diverged, strict=True) if count
        ]
        tail = f"; diverged: {' and '.join(told)}" + tail
    if found.is_heavy_tailed:
        what = "pair" if found.statistic == "median of ratios" else "trial"
        tail = f"; for the median {what}, since a few trials would decide the means" + tail
    if math.isnan(found.decibels):
        return f"{title}: nothing can be said, most trials of both diverged{tail}."
    if math.isinf(found.decibels):
        better, worse = (first, second) if found.decibels < 0 else (second, first)
        how = "" if found.is_significant else ", but too few trials differ to rule out chance"
        return f"{title}: {worse} diverges in most trials, {better} does not{how}{tail}."
    low, high = found.interval
    share = (
        f"{abs(found.percent):.1f} %"
        if abs(found.percent) < 1000
        else f"a factor of {1 + found.percent / 100:.3g}"
    )
    size = f"{abs(found.decibels):.2f} dB ({share})"
    if not found.is_significant:
        if math.isnan(low):
            return (
                f"{title}: {first} is {size} {_side(found)} {second}; too few trials for an interval{tail}."
            )
        return (
            f"{title}: no significant difference, {first} is {size} {_side(found)} {second}, "
            f"95 % interval {_signed(low)} to {_signed(high)} dB{tail}."
        )
    near, far = sorted((abs(low), abs(high)))
    return f"{title}: {first} is {size} {_side(found)} {second}, 95 % interval {near:.2f} to {_unsigned(far)}{tail}."


def _side(found: MetricDifference) -> str:
    return "below" if found.decibels < 0 else "above"


def _signed(value: float) -> str:
    return f"{value:+.2f}" if math.isfinite(value) else ("−∞" if value < 0 else "∞")


def _unsigned(value: float) -> str:
    return f"{value:.2f} dB" if math.isfinite(value) else "∞ (divergence)"


def _plain(found: MetricDifference) -> str:
    return f"{_signed(found.decibels)} dB, {_interval(found)}, {found.percent:+.1f} % ({found.statistic})"


def _interval(found: MetricDifference) -> str:
    return f"[{_signed(found.interval[0])}, {_signed(found.interval[1])}] dB"


def _ratio(a: FloatArray, b: FloatArray) -> float:
    return _decibels(float(np.mean(a)), float(np.mean(b)))


def _decibels(a: float, b: float) -> float:
    if math.isnan(a) or math.isnan(b) or a == b:
        return 0.0 if a == b and math.isfinite(a) else math.nan
    if b == 0 or math.isinf(a):
        return math.inf
    return -math.inf if a == 0 or math.isinf(b) else 10 * math.log10(a / b)


def _median(values: FloatArray) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.median(values))


def _to_percent(decibels: float) -> float:
    return (
        100 * (10 ** (decibels / 10) - 1)
        if decibels < 3000
        else (math.nan if math.isnan(decibels) else math.inf)
    )
