"""Report of a sweep: the best design under each condition, all steady states with intervals, remarks; LaTeX."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray, IntArray
from psofed.common.validation import check_choice
from psofed.render import Column, Kind, NextStep, Report, Table
from psofed.render.numbers import count, counted, decibels, listed, significant
from psofed.render.tables import Cell
from psofed.results.metrics import MetricLabel, label_of
from psofed.results.reports import measured
from psofed.scenario.describe import describe_scenario, field_title
from psofed.studies.sweeps.chart import choose_layout
from psofed.studies.sweeps.grid import Axis, name_point

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
        describe = self._describe_one if len(designs) == 1 else self._describe_best
        text = describe(conditions, designs, self.levels[stable])
        if not lost:
            return text
        listed_lost = listed(lost) if len(lost) <= _LONGEST_LIST else f"{len(lost)} other conditions"
        return f"{text} {'It' if len(designs) == 1 else 'Every design'} diverges for {listed_lost}."

    def _describe_one(self, conditions: list[str], designs: list[str], levels: FloatArray) -> str:
        """Give the range of levels of the only design."""
        low, high = int(levels.argmin()), int(levels.argmax())
        start = f"With {designs[0]}, the {self.label.title}" if designs[0] else f"The {self.label.title}"
        if low == high:
            where = f" for {conditions[low]}" if conditions[low] else ""
            return f"{start} is {self._level(levels[low, 0])}{where} (lower is better)."
        ends = [f"{self._level(levels[at, 0])} for {conditions[at]}" for at in (low, high)]
        return f"{start} ranges from {ends[0]} to {ends[1]} (lower is better)."

    def _describe_best(self, conditions: list[str], designs: list[str], levels: FloatArray) -> str:
        """Name the design that is best everywhere, or the best under each condition and in the worst case."""
        varying = _varying(self.conditions)
        field = varying[0].name if len(varying) == 1 else ""
        noun = ("stable " if len(conditions) < len(self.levels) else "") + ("value" if field else "condition")
        every = _all(len(conditions), noun) + (f" of {field}" if field else "")
        lowest, worst = levels.min(axis=1, keepdims=True), levels.max(axis=0)
        always = (levels <= _NEARLY_AS_GOOD * lowest).all(axis=0)
        if len(conditions) == 1:
            always, every = levels[0] == lowest[0], conditions[0]
        safest = int(np.where(always, worst, math.inf).argmin() if always.any() else worst.argmin())
        own = levels[:, safest]
        if always.any():
            nearly = "" if (own == lowest[:, 0]).all() else ", or one within 0.1 dB of it,"
            ends = " to ".join(dict.fromkeys((self._level(own.min()), self._level(own.max())))).replace(" dB to", " to")
            start = f"{designs[safest]} has the lowest {self.label.title}{nearly}{f' for {every}' if every else ''}"
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

    def _level(self, value: float) -> str:
        return decibels(value) if self.label.in_decibels else f"{significant(value)} {self.label.shown_unit}".rstrip()


def sweep_report(result: "SweepResult") -> Report:
    """Return every point's steady state with its interval, the best design under each condition marked."""
    grid, total, ranking = result.grid, len(result.cells), rank(result)
    lost = any(cell.num_diverged for cell in result.cells)
    columns = (
        *(Column(axis.name, Kind.NUMBER if axis.is_numeric else Kind.TEXT) for axis in grid.axes),
        *(
            Column(title, Kind.LEVEL if label_of(metric).in_decibels else Kind.NUMBER, minor=max(place - 1, 0))
            for place, (metric, title) in enumerate(result.titles.items())
        ),
        *((Column("trials", Kind.COUNT),) if grid.precision else ()),
        *((Column("diverged trials", Kind.COUNT),) if lost else ()),
    )
    rows = tuple(
        (
            *(_cell(label) for label in labels.values()),
            *(measured(cell.estimate(metric)) for metric in result.titles),
            *((cell.trials,) if grid.precision else ()),
            *((cell.num_diverged,) if lost else ()),
        )
        for labels, cell in zip(result.labels(), result.cells, strict=True)
    )
    title, each = label_of(grid.ranked_by).title, f"{counted(grid.trials, 'trial')} each"
    if grid.precision:
        each = f"{count(sum(cell.trials for cell in result.cells))} trials, at most {count(grid.trials)} each"
    mark = f"; * marks the lowest {title}" if ranking.best else ""
    mark += " under each condition" if ranking.best and len(ranking.levels) > 1 else ""
    notes = (f"± and brackets: 95 % intervals. Lower is better{mark}.",)
    axes = " × ".join(f"{len(axis.values)} values of {axis.name}" for axis in grid.axes)
    is_drawn = total > 1 and _fits_a_picture(result)
    return Report(
        ranking.headline(),
        f"{axes}: {counted(total, 'point')}, {each}; base: {describe_scenario(grid.base)}.",
        (Table("Steady state", columns, rows, notes, ranking.best),),
        _remarks(result),
        NextStep("Draw the points", "sweep.plot()", "psofed sweep FILE --plot sweep.png") if is_drawn else None,
        result.chart if is_drawn else None,
    )


def _fits_a_picture(result: "SweepResult") -> bool:
    try:
        choose_layout(result)
    except InvalidValueError:  # more curves or panels than one can tell apart
        return False
    return True


def sweep_to_latex(result: "SweepResult", columns: str | None, metric: str) -> str:
    """Return one metric's steady states, rows by columns; see :meth:`psofed.SweepResult.to_latex`."""
    check_choice("metric", metric, result.titles)
    axes, title = result.grid.axes, result.titles[metric]
    across = result.grid.place(columns) if columns is not None else len(axes) - 1 if len(axes) > 1 else None
    down = [number for number in range(len(axes)) if number != across]
    places = result.grid.places(down, [] if across is None else [across])
    headings = [title]
    if across is not None:
        headings = [f"{field_title(axes[across].name)} = {label}" for label in axes[across].labels]
    names, labels, estimates = [axes[number].name for number in down], result.labels(), result.estimates(metric)
    kind = Kind.LEVEL if label_of(metric).in_decibels else Kind.NUMBER
    columns_shown = (*map(Column, map(field_title, names)), *(Column(heading, kind) for heading in headings))
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (*(str(labels[row[0]][name]) for name in names), *(measured(estimates[at]) for at in row)) for row in places
    )
    note = "Lower is better; bold: the lowest of each column."
    table = Table(f"Steady-state {title} with 95 % intervals", columns_shown, rows, (note,))
    best = result.levels(metric)[places].argmin(axis=0)
    return table.to_latex(bold=frozenset((int(row), len(down) + at) for at, row in enumerate(best)))


def _remarks(result: "SweepResult") -> tuple[str, ...]:
    metric, total = result.grid.ranked_by, len(result.cells)
    estimates, title = result.estimates(metric), label_of(metric).title
    wide = [value.margin > float(result.grid.precision or math.inf) for value in estimates]
    problems = {
        "diverged trials": [cell.num_diverged > 0 for cell in result.cells],
        f"heavy tails: a few extreme trials dominate the mean {title}, so the median is shown": [
            value.is_heavy_tailed for value in estimates
        ],
        f"an interval wider than ±{result.grid.precision} dB after {count(result.grid.trials)} trials": wide,
        f"not converged: the {title} still rises or falls at the end of the run": [
            metric in cell.unsteady_metrics for cell in result.cells
        ],
    }
    lines = [
        f"{count(sum(which))} of {counted(total, 'point')} {'has' if sum(which) == 1 else 'have'} {problem}."
        for problem, which in problems.items()
        if any(which)
    ]
    return (*lines, *(f"{note}." for note in result.notes))


def _cell(label: Any) -> str | float:
    return label if isinstance(label, int | float) and not isinstance(label, bool) else str(label)


def rank(result: "SweepResult") -> Ranking:
    """Arrange a sweep's points by condition and design."""
    axes = result.grid.axes
    conditions, designs = list[int](), list[int]()
    for number, axis in enumerate(axes):
        is_condition = any(field.partition(".")[0] in _CONDITIONS for field in axis.fields)
        (conditions if is_condition else designs).append(number)
    places = result.grid.places(conditions, designs)
    metric = result.grid.ranked_by
    levels = result.levels(metric)[places]
    return Ranking([axes[at] for at in conditions], [axes[at] for at in designs], places, levels, label_of(metric))


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
