"""A sweep as a LaTeX table: rows by columns, the best of each column in bold."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.validation import check_choice
from psofed.render import Column, Kind, Table
from psofed.results.metrics import label_of
from psofed.results.reports import measured
from psofed.scenario.describe import field_title

if TYPE_CHECKING:
    from psofed.studies.sweeps.result import SweepResult


def sweep_to_latex(result: "SweepResult", columns: str | None, metric: str) -> str:
    """Return one metric's steady states; see :meth:`psofed.SweepResult.to_latex`."""
    check_choice("metric", metric, result.titles)
    axes = result.grid.axes
    across = result.grid.place(columns) if columns is not None else len(axes) - 1 if len(axes) > 1 else None
    down = [number for number in range(len(axes)) if number != across]
    cells = np.arange(len(result.cells)).reshape(result.grid.shape)
    cells = cells.transpose(*down, *(() if across is None else (across,)))
    cells = cells.reshape(-1, 1 if across is None else len(axes[across].values))
    title, labels = result.titles[metric], result.labels()
    headings = (
        [title] if across is None else [f"{field_title(axes[across].name)} = {label}" for label in axes[across].labels]
    )
    kind = Kind.LEVEL if label_of(metric).in_decibels else Kind.NUMBER
    table = Table(
        f"Steady-state {title} with 95 % intervals",
        (
            *(Column(field_title(axes[number].name)) for number in down),
            *(Column(heading, kind) for heading in headings),
        ),
        tuple(
            (
                *(str(labels[row[0]][axes[number].name]) for number in down),
                *(measured(result.cells[at].estimate(metric)) for at in row),
            )
            for row in cells
        ),
        ("Lower is better; bold: the lowest of each column.",),
    )
    levels = np.array([cell.estimate(metric).typical[0] for cell in result.cells])[cells]
    best = np.where(np.isfinite(levels), levels, np.inf).argmin(axis=0)
    bold = frozenset((int(row), len(down) + column) for column, row in enumerate(best))
    return table.to_latex(bold=bold)
