"""Draws a figure of the paper: one panel per uplink, so that one sees which theory fits which system."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.files import atomic_path
from psofed.paper.look import look_of
from psofed.paper.model import FigureData, Series
from psofed.results import METRIC_TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_TITLES = {
    "same": "uplink as in the paper's equations (same)",
    "redrawn": "uplink as in the paper's analysis (redrawn)",
}
ORDINATES = {
    **{metric: f"steady-state {title}" for metric, title in METRIC_TITLES.items()},
    "term": "term of the MSE",
}
KIND_TITLES = {
    "simulation": "simulation (95 % band)",
    "exact-theory": "exact theory",
    "paper-theory": "paper's theory",
    "published": "printed in the paper",
}

_DASHES = (0, (5, 2.5))

_LEGEND_COLUMNS = 4

# Normal quantile of the 95 % bands; with a hundred trials and more, Student's differs by under 2 %.
BAND = 1.96


def plot_figure(data: FigureData) -> "Figure":
    """Draw simulation, both theories and the printed points in dB, one panel per uplink on one scale."""
    from psofed.render.figures import make_figure, styled

    labels = data.curve_labels
    with styled():
        handles = [*_curve_handles(data), *_kind_handles(data)]
        width, legend = 4.6 * len(data.panels) + 0.6, 0.17 * -(-len(handles) // _LEGEND_COLUMNS)
        height = 4.0 + legend
        figure = make_figure(width, height, laid_out=False)
        bottom = (0.6 + legend) / height
        figure.subplots_adjust(
            left=0.75 / width, right=0.995, top=1 - 0.5 / height, bottom=bottom, wspace=0.05
        )
        plots = figure.subplots(1, len(data.panels), sharey=True, squeeze=False)[0]
        for plot, uplink in zip(plots, data.panels, strict=True):
            for series in data.panel(uplink):
                _draw(plot, series, _look(labels[series.curve], series.curve))
            # A title of fixed height: looking for a free place takes a sixth of the drawing.
            plot.set_title(f"{PANEL_TITLES[uplink]}\n{describe_misfit(data, uplink)}", y=1.0)
            plot.set_xlabel(_mathtext(data.x_label))
            if all(float(x).is_integer() for series in data.series for x in series.x):
                plot.set_xticks(sorted({float(x) for series in data.series for x in series.x}))
        plots[0].set_ylabel(f"{ORDINATES[data.metric]} (dB)")
        figure.legend(handles=handles, loc="lower center", ncols=_LEGEND_COLUMNS)
    return figure


def save_figure(data: FigureData, folder: Path) -> list[Path]:
    """Write the figure as SVG and PNG; return the paths."""
    from psofed.render.figures import styled

    figure = plot_figure(data)
    paths = [folder / f"{data.name}.svg", folder / f"{data.name}.png"]
    with styled():
        for path in paths:
            with atomic_path(path) as temporary:
                figure.savefig(temporary, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def describe_misfit(data: FigureData, uplink: str) -> str:
    """Say how far each theory is from the simulation of one uplink, at most, in dB."""
    words = []
    for kind in ("exact-theory", "paper-theory"):
        worst = worst_misfit_db(data, uplink, kind)
        if worst is not None:
            words.append(f"{KIND_TITLES[kind]} off by ≤ {worst:.2f} dB")
    return ", ".join(words)


def worst_misfit_db(data: FigureData, uplink: str, kind: str) -> float | None:
    """Return the largest distance between a theory and the simulation in dB; None without that theory."""
    distances = []
    for theory in data.panel(uplink):
        if theory.kind != kind or "approximation" in theory.label:
            continue
        for simulation in data.select(
            kind="simulation", uplink=uplink, curve=theory.curve, label=theory.label
        ):
            distances.append(np.max(np.abs(theory.y_db - simulation.y_db)))
    return float(max(distances)) if distances else None


def _draw(plot: "Axes", series: Series, look: dict[str, Any]) -> None:
    colour = look["color"]
    if series.kind == "simulation":
        plot.plot(series.x, series.y_db, linestyle="none", markersize=5, zorder=4, **look)
        error = series.standard_error_db
        if error is not None:
            low, high = series.y_db - BAND * error, series.y_db + BAND * error
            plot.fill_between(series.x, low, high, color=colour, alpha=0.25, linewidth=0, zorder=1)
            plot.vlines(series.x, low, high, color=colour, linewidth=1, zorder=3)
    elif series.kind == "published" and "theory" in series.label:
        plot.plot(series.x, series.y_db, "x", color=colour, markersize=6, markeredgewidth=0.9, zorder=2)
    elif series.kind == "published":
        hollow: dict[str, Any] = {"markerfacecolor": "none", "markersize": 9, "markeredgewidth": 0.9}
        plot.plot(series.x, series.y_db, linestyle="none", zorder=2, **hollow, **look)
    else:
        plot.plot(series.x, series.y_db, color=colour, zorder=3, **_line(series))


def _look(label: str, curve: int) -> dict[str, Any]:
    look = look_of(label, curve)
    return {"color": look.colour, "marker": look.marker}


def _line(series: Series) -> dict[str, Any]:
    if series.kind == "exact-theory":
        return {"linestyle": "-", "linewidth": 1.3}
    if "approximation" in series.label:
        return {"linestyle": ":", "linewidth": 1.6}
    return {"linestyle": _DASHES, "linewidth": 1.3}


def _curve_handles(data: FigureData) -> list[Any]:
    from matplotlib.lines import Line2D

    return [
        Line2D([], [], linestyle="none", label=_mathtext(label), **_look(label, curve))
        for curve, label in data.curve_labels.items()
    ]


def _kind_handles(data: FigureData) -> list[Any]:
    from matplotlib.lines import Line2D

    hollow = {"linestyle": "none", "marker": "o", "markersize": 9, "markerfacecolor": "none"}
    shown: list[tuple[bool, str, dict[str, Any]]] = [
        (_has(data, "simulation"), KIND_TITLES["simulation"], {"linestyle": "none", "marker": "o"}),
        (_has(data, "exact-theory"), KIND_TITLES["exact-theory"], {"linestyle": "-"}),
        (_has(data, "paper-theory"), KIND_TITLES["paper-theory"], {"linestyle": _DASHES}),
        (
            _has(data, "paper-theory", "approximation"),
            "paper's theory for small stepsizes",
            {"linestyle": ":"},
        ),
        (_has(data, "published"), KIND_TITLES["published"], hollow),
        (_has(data, "published", "theory"), "theory printed there", {"linestyle": "none", "marker": "x"}),
    ]
    return [Line2D([], [], color="0.25", label=title, **look) for present, title, look in shown if present]


def _has(data: FigureData, kind: str, word: str = "") -> bool:
    return any(series.kind == kind and word in series.label for series in data.series)


def _mathtext(label: str) -> str:
    for plain, typeset in (("|S_B|", r"$|\mathcal{S}_B|$"), ("σ_B²", r"$\sigma_B^2$"), ("E_ω", r"$E_\omega$"),
                           ("E_φ", r"$E_\phi$")):  # fmt: skip
        label = label.replace(plain, typeset)
    return label
