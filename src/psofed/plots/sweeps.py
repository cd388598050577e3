"""The default picture of a sweep: a metric over one field, a curve for every combination of the others."""

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.plots.style import COLOURS, LINES, MARKERS, make_canvas, plot_style
from psofed.results import METRIC_TITLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from psofed.sweeps import SweepResult

# More curves than this in one picture cannot be told apart.
MOST_CURVES = 28


def plot_sweep(result: "SweepResult", metric: str = "network_mse") -> "Figure":
    """Plot the steady state in dB with 95 % bands.

    The abscissa is the numeric field with the most values; the other fields make the curves.
    """
    axes = result.grid.axes
    along = _abscissa(result)
    others = [i for i in range(len(axes)) if i != along]
    curves = list(itertools.product(*(range(len(axes[i].values)) for i in others)))
    if len(curves) > MOST_CURVES:
        raise InvalidValueError(
            "--plot",
            f"a sweep of {len(curves)} curves",
            f"at most {MOST_CURVES} curves; leave fields out of the grid",
        )
    table = np.empty((*result.grid.shape, 3))
    for index, cell in zip(np.ndindex(*result.grid.shape), result.cells, strict=True):
        found = cell.estimate(metric)
        table[index] = (found.mean, *found.interval)
    labels = axes[along].labels
    numeric = _is_numeric(labels)
    x = np.array(labels, dtype=float) if numeric else np.arange(len(labels), dtype=float)
    order = np.argsort(x)
    with plot_style():
        figure = make_canvas(7.0, 4.2)
        plot = figure.add_subplot()
        for number, curve in enumerate(curves):
            chosen: list[Any] = [slice(None)] * len(axes)
            for axis, place in zip(others, curve, strict=True):
                chosen[axis] = place
            rows = table[tuple(chosen)][order]
            label = ", ".join(
                f"{axes[i].name} = {axes[i].labels[place]}" for i, place in zip(others, curve, strict=True)
            )
            style: dict[str, Any] = {
                "color": COLOURS[number % len(COLOURS)],
                "marker": MARKERS[number % len(MARKERS)],
                "linestyle": LINES[number // len(COLOURS) % len(LINES)],
            }
            with np.errstate(divide="ignore", invalid="ignore"):
                decibels = 10 * np.log10(np.where(np.isfinite(rows) & (rows > 0), rows, np.nan))
            plot.plot(x[order], decibels[:, 0], label=label or None, **style)
            plot.fill_between(
                x[order], decibels[:, 1], decibels[:, 2], color=style["color"], alpha=0.2, linewidth=0
            )
        if not numeric:
            plot.set_xticks(x, [str(label) for label in labels])
        plot.set_xlabel(axes[along].name)
        plot.set_ylabel(f"steady-state {METRIC_TITLES[metric]} (dB)")
        if others:
            plot.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _abscissa(result: "SweepResult") -> int:
    axes = result.grid.axes
    return max(range(len(axes)), key=lambda i: (_is_numeric(axes[i].labels), len(axes[i].values)))


def _is_numeric(labels: list[Any]) -> bool:
    return all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels)
