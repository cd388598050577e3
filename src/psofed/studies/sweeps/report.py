"""Report of a sweep: the best point, all steady states with intervals, and remarks."""

import math
from typing import TYPE_CHECKING, Any

from psofed.render import Column, Kind, NextStep, Report, Table
from psofed.render.numbers import count, counted, decibels, significant
from psofed.results.reports import measured
from psofed.scenario.describe import describe_scenario
from psofed.studies.sweeps.chart import sweep_chart

if TYPE_CHECKING:
    from psofed.studies.sweeps.result import SweepResult


def sweep_report(result: "SweepResult") -> Report:
    """Return every point's steady state with its interval, the best point marked."""
    grid, total = result.grid, len(result.cells)
    levels = [cell.estimate("network_mse").typical[0] for cell in result.cells]
    finite = [at for at, level in enumerate(levels) if math.isfinite(level)]
    best = min(finite, key=lambda at: levels[at]) if finite else None
    lost = any(cell.num_diverged for cell in result.cells)
    columns = (
        *(Column(axis.name, Kind.NUMBER if axis.is_numeric else Kind.TEXT) for axis in grid.axes),
        *(Column(title, Kind.LEVEL) for title in result.titles.values()),
        *((Column("diverged trials", Kind.COUNT),) if lost else ()),
    )
    rows = tuple(
        (
            *(_cell(label) for label in labels.values()),
            *(measured(cell.estimate(metric)) for metric in result.titles),
            *((cell.num_diverged,) if lost else ()),
        )
        for labels, cell in zip(result.labels(), result.cells, strict=True)
    )
    notes = ("± and brackets: 95 % intervals. Lower is better; * marks the lowest network MSE.",)
    axes = " × ".join(f"{len(axis.values)} values of {axis.name}" for axis in grid.axes)
    table = Table("Steady state", columns, rows, notes, frozenset() if best is None else frozenset({best}))
    return Report(
        _headline(result, best, levels),
        f"{axes}: {counted(total, 'point')}, {counted(grid.trials, 'trial')} each; base: "
        f"{describe_scenario(grid.base)}.",
        (table,),
        _remarks(result),
        _next_step(result, best),
        lambda: (sweep_chart(result),) if len(grid.axes) <= 4 else (),
    )


def name_point(labels: dict[str, Any]) -> str:
    """Name a point by its fields.

    Examples
    --------
    >>> name_point({"num_shared": 1, "stepsize": 0.05})
    'num_shared = 1, stepsize = 0.05'
    """
    return ", ".join(
        f"{name} = {significant(x) if isinstance(x, float) else x}" for name, x in labels.items()
    )


def _headline(result: "SweepResult", best: int | None, levels: list[float]) -> str:
    if best is None:
        return f"All {counted(len(levels), 'point')} diverged."
    where = name_point(result.labels()[best])
    if len(levels) == 1:
        return f"The network MSE at {where} is {decibels(levels[best])} (lower is better)."
    return (
        f"Of {counted(len(levels), 'point')}, {where} has the lowest network MSE: "
        f"{decibels(levels[best])} (lower is better)."
    )


def _remarks(result: "SweepResult") -> tuple[str, ...]:
    estimates, total = [cell.estimate("network_mse") for cell in result.cells], len(result.cells)
    found = (
        ("has diverged trials.", "have diverged trials.", [cell.num_diverged > 0 for cell in result.cells]),
        (
            "has heavy tails: a few extreme trials dominate the mean network MSE, so the median is shown.",
            "have heavy tails: a few extreme trials dominate the mean network MSE, so the median is shown.",
            [value.is_heavy_tailed for value in estimates],
        ),
        (
            "has not converged: its network MSE still rises or falls at the end of the run.",
            "have not converged: their network MSE still rises or falls at the end of the run.",
            ["network_mse" in cell.unsteady_metrics for cell in result.cells],
        ),
    )
    lines = [
        f"{count(sum(which))} of {counted(total, 'point')} {one if sum(which) == 1 else many}"
        for one, many, which in found
        if any(which)
    ]
    return (*lines, *(f"{note}." for note in result.notes))


def _next_step(result: "SweepResult", best: int | None) -> NextStep | None:
    if best is None or len(result.cells) < 2:
        return None
    return NextStep("Draw the points", "sweep.plot()", "psofed sweep FILE --plot sweep.png")


def _cell(label: Any) -> str | float:
    return label if isinstance(label, int | float) and not isinstance(label, bool) else str(label)
