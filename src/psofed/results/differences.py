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
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from psofed.common.numbers import json_object, to_decibels
from psofed.common.types import FloatArray
from psofed.results.estimates import CONFIDENCE, is_heavy_tailed, is_unfair, sign_test_rank, students_factor

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
