"""Estimates over independent trials, with intervals that allow for few trials and heavy tails.

The mean has Student's interval unless the sample shows heavy tails. Close to instability a few trials, or a single one,
make up the sum, and the next seed contradicts "mean ± standard error". Such samples are recognised
(:func:`is_heavy_tailed`) and described by their median, whose interval between two order statistics holds for every
distribution.

The interval of the mean cannot hold for every distribution. A tail that does not show in the sample is not recognised:
with eight trials the interval contains the mean of a Pareto distribution with exponent 1.5 in 71 % of samples.
Events rarer than one in the number of trials are missing from most samples, whatever the method.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from psofed.common.numbers import to_decibels
from psofed.common.types import FloatArray
from psofed.render.numbers import decibels, significant

CONFIDENCE = 0.95

# A tail whose halves differ by this much, and with this confidence (Student's, so that few trials do not raise false
# alarms), is not a steady state.
_DRIFT_RATIO, _DRIFT_CONFIDENCE = 0.01, 0.9995

# Student's interval is given up where the skewness exceeds _SKEWNESS √n (Cochran's rule is 0.2), within _LEAST_SKEWNESS
# and _MOST_SKEWNESS, and values are spread by more than _SPREAD of their mean. With fewer than _FEW values the
# skewness says little, and a spread of _WIDE_SPREAD is enough. What that leaves of the
# coverage is in tests/unit/test_estimates.py.
_SKEWNESS, _LEAST_SKEWNESS, _MOST_SKEWNESS, _SPREAD = 0.25, 1.4, 6.0, 0.25
_FEW, _WIDE_SPREAD = 16, 0.6


@dataclass(frozen=True)
class Estimate:
    """A mean over independent trials, and their median.

    Attributes
    ----------
    mean : float
        Infinite if a trial diverged.
    standard_error : float
        Of the mean, s/√n; NaN if there was but one trial. It says little where tails are heavy: use the interval.
    interval : (float, float)
        95 % confidence interval of the mean: Student's t; for heavy tails from a lower bound that holds for every
        distribution (Dvoretzky, Kiefer and Wolfowitz) to infinity. Rare events that are not in the sample are not
        covered.
    median : float
        Of the trials; finite if fewer than half of them diverged.
    median_interval : (float, float)
        95 % confidence interval of the median, between two order statistics; NaN with fewer than six trials.
    is_heavy_tailed : bool
        Whether a few extreme trials dominate the mean; then quote the median.
    """

    mean: float
    standard_error: float
    interval: tuple[float, float]
    median: float = math.nan
    median_interval: tuple[float, float] = (math.nan, math.nan)
    is_heavy_tailed: bool = False

    @property
    def decibels(self) -> float:
        """The mean in dB."""
        return to_decibels(self.mean)

    @property
    def median_decibels(self) -> float:
        """The median in dB."""
        return to_decibels(self.median)

    @property
    def margin(self) -> float:
        """How far the interval of the value to show reaches to each side, in dB; infinite without an interval."""
        _, low, high = self.typical
        return to_decibels(high / low) / 2 if 0 < low <= high < math.inf else math.inf

    @property
    def is_typical(self) -> bool:
        """Whether the mean, with its interval, says what a trial comes to; where not, the median does."""
        return math.isfinite(self.mean) and not self.is_heavy_tailed

    @property
    def typical(self) -> tuple[float, float, float]:
        """The value to show, with its interval: the mean, or the median where tails are heavy or trials diverged."""
        if self.is_typical or math.isnan(self.median):
            return (self.mean, *self.interval)
        return (self.median, *self.median_interval)

    def __repr__(self) -> str:
        middle, low, high = self.typical
        name = "mean" if self.is_typical or math.isnan(self.median) else "median"
        ends = "" if math.isnan(low) else f", 95 % interval {significant(low)} … {significant(high)}"
        return f"Estimate({name} {significant(middle)} ({decibels(middle)}){ends})"

    def _repr_html_(self) -> str:
        return f"<code>{self!r}</code>"

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "mean": self.mean,
            "standard_error": self.standard_error,
            "interval_95": list(self.interval),
            "mean_db": self.decibels,
            "median": self.median,
            "median_interval_95": list(self.median_interval),
            "median_db": self.median_decibels,
            "heavy_tailed": self.is_heavy_tailed,
        }


def estimate(values: FloatArray, confidence: float = CONFIDENCE) -> Estimate:
    """Estimate the mean and the median of independent `values`, with intervals of the given `confidence`.

    Examples
    --------
    >>> estimate(np.array([1.0, 2.0, 3.0])).mean
    2.0
    >>> wild = estimate(np.array([1.0, 1.1, 1.2, 0.9, 1.0, 1.1, 1.0, 0.8, 1.3, 9000.0]))
    >>> wild.is_heavy_tailed, wild.median, wild.median_interval
    (True, 1.05, (0.9, 1.3))
    """
    mean, count = float(np.mean(values)), len(values)
    if count < 2 or math.isnan(mean):
        return Estimate(mean, math.nan, (math.nan, math.nan), mean)
    middle, reach = median_interval(values, confidence)
    if math.isinf(mean):
        return Estimate(mean, math.nan, (math.nan, math.nan), middle, reach)
    error = float(np.std(values, ddof=1)) / math.sqrt(count)
    if is_heavy_tailed(values):
        return Estimate(mean, error, (lower_bound_of_mean(values, confidence), math.inf), middle, reach, True)
    half = students_factor(count, confidence) * error
    return Estimate(mean, error, (mean - half, mean + half), middle, reach)


def is_heavy_tailed(values: FloatArray) -> bool:
    """Tell whether so few of the `values` decide their mean that Student's interval does not hold.

    Rare outcomes that no trial has shown cannot be noticed; and with fewer than about 30 trials not all can.

    Examples
    --------
    >>> is_heavy_tailed(np.linspace(0.9, 1.1, 50)), is_heavy_tailed(np.linspace(0.0, 5.0, 50) ** 6)
    (False, True)
    """
    mean = abs(float(np.mean(values)))
    if not math.isfinite(mean) or len(values) < 3 or float(np.ptp(values)) == 0.0:
        return False
    return mean == 0.0 or _is_skewed(values / mean)


def is_unfair(influence: FloatArray) -> bool:
    """Tell whether a few extreme trials dominate a mean of `influence`, relative values around 0 of either sign."""
    return len(influence) >= 3 and float(np.ptp(influence)) > 0.0 and _is_skewed(influence)


def median_interval(values: FloatArray, confidence: float = CONFIDENCE) -> tuple[float, tuple[float, float]]:
    """Return the median, and an interval between order statistics that holds it with at least `confidence`.

    The count of values below the median is binomial, whatever their distribution; infinite values are allowed. NaN
    ends where there are too few values for the confidence (six for 95 %).
    """
    ordered = np.sort(values)
    with np.errstate(invalid="ignore"):
        middle = float(np.median(ordered))
    rank = sign_test_rank(len(ordered), confidence)
    if rank < 1:
        return middle, (math.nan, math.nan)
    return middle, (float(ordered[rank - 1]), float(ordered[-rank]))


@cache
def sign_test_rank(count: int, confidence: float = CONFIDENCE) -> int:
    """Return the largest r for which the r-th smallest and largest of `count` values hold the median; 0 if none does.

    Examples
    --------
    >>> [sign_test_rank(count) for count in (5, 6, 100)]
    [0, 1, 40]
    """
    from scipy.special import bdtr

    outside = 2 * bdtr(np.arange(count // 2, dtype=np.float64), count, 0.5)  # P(median outside), for r − 1
    return int(np.count_nonzero(outside <= 1 - confidence + 1e-12))


def lower_bound_of_mean(values: FloatArray, confidence: float = CONFIDENCE) -> float:
    """Return what the mean of a nonnegative quantity exceeds with (1 + `confidence`)/2, whatever its distribution.

    By the inequality of Dvoretzky, Kiefer and Wolfowitz the true distribution function lies nowhere more than
    ε = √(ln(2/(1 − confidence))/2n) above the sample's; so the bound is the mean with the top ε of the values set to 0.
    """
    count = len(values)
    margin = math.sqrt(math.log(2 / (1 - confidence)) / (2 * count))
    weights = np.clip(1 - margin - np.arange(count) / count, 0.0, 1 / count)
    return float(np.sort(values) @ weights)


def students_factor(count: int, confidence: float = CONFIDENCE) -> float:
    """Return how many standard errors reach as far as an interval over `count` trials; 1.96 for many."""
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, (1 + confidence) / 2)) if count > 1 else math.nan


def find_unsteady(steady_state: dict[str, FloatArray], tail_change: dict[str, FloatArray]) -> dict[str, float]:
    """Return the metrics that still change over the tail, with the relative change between its halves.

    Examples
    --------
    >>> level, change = np.array([1.0, 1.1, 0.9, 1.0]), np.array([0.10, 0.11, 0.09, 0.10])
    >>> {metric: round(ratio, 3) for metric, ratio in find_unsteady({"mse": level}, {"mse": change}).items()}
    {'mse': 0.1}
    """
    unsteady = {}
    for metric, change in tail_change.items():
        level, count = float(np.mean(steady_state[metric])), len(change)
        if not (math.isfinite(level) and level > 0 and count > 1):
            continue
        mean, error = float(np.mean(change)), float(np.std(change, ddof=1)) / math.sqrt(count)
        ratio = mean / level
        if error > 0 and abs(ratio) > _DRIFT_RATIO and abs(mean) > students_factor(count, _DRIFT_CONFIDENCE) * error:
            unsteady[metric] = ratio
    return unsteady


def _is_skewed(relative: FloatArray) -> bool:
    count = len(relative)
    deviations = relative - relative.mean()
    spread = math.sqrt(float(np.mean(deviations**2)))
    if spread <= _SPREAD:
        return False
    skewness = abs(float(np.mean((deviations / spread) ** 3)))
    few = count < _FEW and spread > _WIDE_SPREAD
    bound = min(max(_SKEWNESS * math.sqrt(count), _LEAST_SKEWNESS), _MOST_SKEWNESS)
    return few or skewness > bound
