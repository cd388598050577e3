"""Report of a difference between two results: sentences, tables, and the chart of its pairs."""

import math
from typing import TYPE_CHECKING

from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.numbers import fixed, percent, sentence_case, significant
from psofed.results.differences import MetricDifference
from psofed.results.metrics import label_of

if TYPE_CHECKING:
    from psofed.results.differences import Difference


def difference_report(compared: "Difference") -> Report:
    """Return by how much two results differ, metric by metric."""
    first, second = compared.names
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
        for metric, value in compared.metrics.items()
    )
    notes = (f"Negative: {first} has the lower error, which is better.",)
    table = Table(f"{first} relative to {second}", columns, rows, notes)
    is_clear = any(value.is_significant for value in compared.metrics.values())
    step = None if is_clear else NextStep(
        "Narrow the interval with more trials", f"psofed.simulate(scenario, trials={4 * compared.trials[0]})",
        f"psofed simulate FILE --trials {4 * compared.trials[0]}",
    )  # fmt: skip
    return Report(
        describe_difference(compared.network_mse, "network MSE", first, second),
        f"{compared.trials[0]} pairs of trials on equal draws.",
        (table,),
        (),
        step,
        compared.chart,
    )


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
