"""Which design of a sweep is best: under each condition, and in the worst case."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.render.numbers import decibels, listed, significant
from psofed.results.metrics import MetricLabel, label_of
from psofed.studies.sweeps.grid import Axis

if TYPE_CHECKING:
    from psofed.studies.sweeps.result import SweepResult

# Fields that describe the circumstances. All others are design choices.
_CONDITIONS = {"attack", "availability", "channel", "data", "delay", "dimension", "drift", "num_clients"}
_NEARLY_AS_GOOD = 10**0.01  # 0.1 dB
_LONGEST_LIST = 5  # conditions that the headline names one by one


@dataclass(frozen=True, eq=False)
class Ranking:
    """The steady state of one metric for every design under every condition.

    Attributes
    ----------
    conditions, designs : sequence of Axis
        The sweep's axes. Fields that vary together are a condition if one of them is.
    places : array (conditions, designs)
        Number of the sweep's point.
    levels : array (conditions, designs)
        The metric, infinite where it diverged.
    label : MetricLabel
        Of the metric.
    """

    conditions: Sequence[Axis]
    designs: Sequence[Axis]
    places: IntArray
    levels: FloatArray
    label: MetricLabel

    def _level(self, value: float) -> str:
        return _level(self.label, value)

    @property
    def best(self) -> frozenset[int]:
        """The points of the best design under each condition, if there are several designs."""
        if self.levels.shape[1] == 1:
            return frozenset()
        lowest = self.levels == self.levels.min(axis=1, keepdims=True)
        return frozenset(self.places[lowest & np.isfinite(self.levels)].tolist())

    def headline(self) -> str:
        """Name the best design, or the best under each condition and in the worst case."""
        stable = np.isfinite(self.levels.min(axis=1))
        if not stable.any():
            return f"{_all(self.levels.size, 'point').capitalize()} diverged."
        names, designs = _names(self.conditions), _names(self.designs)
        conditions, lost = list(itertools.compress(names, stable)), list(itertools.compress(names, ~stable))
        levels = self.levels[stable]
        if len(designs) == 1:
            text = _describe_one_design(self.label, designs[0], conditions, levels[:, 0])
        elif len(conditions) == 1:
            text = _describe_one_condition(self.label, conditions[0], designs, levels[0])
        else:
            text = self._describe_best(conditions, designs, levels)
        if not lost:
            return text
        return f"{text} {'It' if len(designs) == 1 else 'Every design'} diverges for {_listed(lost)}."

    def _describe_best(self, conditions: list[str], designs: list[str], levels: FloatArray) -> str:
        varying = _varying(self.conditions)
        field = varying[0].name if len(varying) == 1 else ""
        noun = ("stable " if len(conditions) < len(self.levels) else "") + ("value" if field else "condition")
        every = _all(len(conditions), noun) + (f" of {field}" if field else "")
        lowest, worst = levels.min(axis=1, keepdims=True), levels.max(axis=0)
        always = (levels <= _NEARLY_AS_GOOD * lowest).all(axis=0)
        safest = int(np.where(always, worst, math.inf).argmin() if always.any() else worst.argmin())
        own = levels[:, safest]
        if always.any():
            nearly = "" if (own == lowest[:, 0]).all() else ", or one within 0.1 dB of it,"
            ends = " to ".join(dict.fromkeys((self._level(own.min()), self._level(own.max())))).replace(" dB to", " to")
            start = f"{designs[safest]} has the lowest {self.label.title}{nearly} for {every}"
            return f"Of {len(designs)} designs, {start}: {ends} (lower is better)."
        hardest = conditions[int(own.argmax())]
        if len(conditions) > _LONGEST_LIST:
            text = f"No design is best for {every}."
        else:
            winners: dict[str, list[str]] = {}
            for name, row in zip(conditions, levels, strict=True):
                others = winners.setdefault(designs[row.argmin()], [])
                short = name.removeprefix(f"{field} = ") if others else name
                others.append(f"{short} ({self._level(row.min())})")
            groups = "; ".join(f"{design} for {listed(where)}" for design, where in winners.items())
            text = f"The best design depends on {field or 'the condition'}: {groups}."
        if math.isinf(worst[safest]):
            return f"{text} Every design diverges for at least one of them."
        return (
            f"{text} In the worst case, {designs[safest]} is best: "
            f"{self.label.title} {self._level(worst[safest])}, for {hardest} (lower is better)."
        )


def rank(result: "SweepResult") -> Ranking:
    """Arrange a sweep's points by condition and design."""
    axes, shape = result.grid.axes, result.grid.shape
    is_condition = [any(field.partition(".")[0] in _CONDITIONS for field in axis.fields) for axis in axes]
    order = sorted(range(len(axes)), key=lambda place: not is_condition[place])
    first, then = order[: sum(is_condition)], order[sum(is_condition) :]
    places = np.arange(len(result.cells)).reshape(shape).transpose(order)
    places = places.reshape(math.prod(shape[place] for place in first), -1)
    metric = result.grid.ranked_by
    typical = np.array([value.typical[0] for value in result.estimates(metric)])
    levels = np.where(np.isfinite(typical), typical, math.inf)
    return Ranking([axes[at] for at in first], [axes[at] for at in then], places, levels[places], label_of(metric))


def name_point(labels: Mapping[str, Any]) -> str:
    """Name a point by its fields.

    Examples
    --------
    >>> name_point({"num_shared": 1, "stepsize": 0.05})
    'num_shared = 1, stepsize = 0.05'
    """
    return ", ".join(f"{name} = {significant(x) if isinstance(x, float) else x}" for name, x in labels.items())


def _varying(axes: Sequence[Axis]) -> Sequence[Axis]:
    """Return the axes with several values, or all if none has."""
    return [axis for axis in axes if len(axis.values) > 1] or axes


def _names(axes: Sequence[Axis]) -> list[str]:
    points = [
        [
            name_point(dict(zip(axis.fields, (label, *values[1:]), strict=True)))
            for label, values in zip(axis.labels, axis.values, strict=True)
        ]
        for axis in _varying(axes)
    ]
    return [", ".join(names) for names in itertools.product(*points)]


def _all(number: int, singular: str) -> str:
    """Write "the point", "both points" or "all 3 points"."""
    return {1: f"the {singular}", 2: f"both {singular}s"}.get(number, f"all {number:,} {singular}s")


def _describe_one_design(label: MetricLabel, design: str, conditions: list[str], levels: FloatArray) -> str:
    low, high = int(levels.argmin()), int(levels.argmax())
    start = f"With {design}, the {label.title}" if design else f"The {label.title}"
    if low == high:
        where = f" for {conditions[low]}" if conditions[low] else ""
        return f"{start} is {_level(label, levels[low])}{where} (lower is better)."
    ends = [f"{_level(label, levels[at])} for {conditions[at]}" for at in (low, high)]
    return f"{start} ranges from {ends[0]} to {ends[1]} (lower is better)."


def _describe_one_condition(label: MetricLabel, condition: str, designs: list[str], levels: FloatArray) -> str:
    best = int(levels.argmin())
    where = f" for {condition}" if condition else ""
    return (
        f"Of {len(designs)} designs, {designs[best]} has the lowest {label.title}{where}: "
        f"{_level(label, levels[best])} (lower is better)."
    )


def _level(label: MetricLabel, value: float) -> str:
    if label.in_decibels:
        return decibels(value)
    return f"{significant(value)} {label.shown_unit}".rstrip()


def _listed(conditions: list[str]) -> str:
    return listed(conditions) if len(conditions) <= _LONGEST_LIST else f"{len(conditions)} other conditions"
