"""Report of a sweep: the best design, all steady states with intervals, and remarks; and its LaTeX table."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.validation import check_choice
from psofed.render import Column, Kind, NextStep, Report, Table
from psofed.render.markup import table_to_latex
from psofed.render.numbers import count, counted
from psofed.results.metrics import label_of
from psofed.results.reports import measured
from psofed.scenario.describe import describe_scenario, field_title
from psofed.studies.sweeps.chart import sweep_chart
from psofed.studies.sweeps.ranking import rank

if TYPE_CHECKING:
    from psofed.studies.sweeps.result import SweepResult


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
    return Report(
        ranking.headline(),
        f"{axes}: {counted(total, 'point')}, {each}; base: {describe_scenario(grid.base)}.",
        (Table("Steady state", columns, rows, notes, ranking.best),),
        _remarks(result),
        NextStep("Draw the points", "sweep.plot()", "psofed sweep FILE --plot sweep.png") if total > 1 else None,
        lambda: (sweep_chart(result),) if len(grid.axes) <= 4 else (),
    )


def sweep_to_latex(result: "SweepResult", columns: str | None, metric: str) -> str:
    """Return one metric's steady states, rows by columns; see :meth:`psofed.SweepResult.to_latex`."""
    check_choice("metric", metric, result.titles)
    axes, shape, title = result.grid.axes, result.grid.shape, result.titles[metric]
    across = result.grid.place(columns) if columns is not None else len(axes) - 1 if len(axes) > 1 else None
    down = [number for number in range(len(axes)) if number != across]
    places = np.arange(len(result.cells)).reshape(shape).transpose(*down, *(() if across is None else (across,)))
    places = places.reshape(-1, 1 if across is None else shape[across])
    headings = [title]
    if across is not None:
        headings = [f"{field_title(axes[across].name)} = {label}" for label in axes[across].labels]
    names, labels, estimates = [axes[number].name for number in down], result.labels(), result.estimates(metric)
    kind = Kind.LEVEL if label_of(metric).in_decibels else Kind.NUMBER
    columns_shown = (*map(Column, map(field_title, names)), *(Column(heading, kind) for heading in headings))
    rows = tuple(
        (*(str(labels[row[0]][name]) for name in names), *(measured(estimates[at]) for at in row)) for row in places
    )
    note = "Lower is better; bold: the lowest of each column."
    table = Table(f"Steady-state {title} with 95 % intervals", columns_shown, rows, (note,))
    levels = np.array([value.typical[0] for value in estimates])[places]
    best = np.where(np.isfinite(levels), levels, np.inf).argmin(axis=0)
    return table_to_latex(table, bold=frozenset((int(row), len(down) + at) for at, row in enumerate(best)))


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
