"""How a difference between two results is said: in one sentence, or in a table's cell."""

import math

from psofed.results.metric_difference import MetricDifference


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
            f"95 % interval {signed(low)} to {signed(high)} dB{tail}."
        )
    near, far = sorted((abs(low), abs(high)))
    return f"{title}: {first} is {size} {_side(found)} {second}, 95 % interval {near:.2f} to {_unsigned(far)}{tail}."


def difference_text(found: MetricDifference) -> str:
    """Say a difference in few words: value, interval, per cent, and what was compared."""
    return f"{signed(found.decibels)} dB, {interval_text(found)}, {found.percent:+.1f} % ({found.statistic})"


def interval_text(found: MetricDifference) -> str:
    """Return the interval in dB."""
    return f"[{signed(found.interval[0])}, {signed(found.interval[1])}] dB"


def signed(value: float) -> str:
    """Return a number with its sign; ∞ where it is not finite."""
    return f"{value:+.2f}" if math.isfinite(value) else ("−∞" if value < 0 else "∞")


def _unsigned(value: float) -> str:
    return f"{value:.2f} dB" if math.isfinite(value) else "∞ (divergence)"


def _side(found: MetricDifference) -> str:
    return "below" if found.decibels < 0 else "above"
