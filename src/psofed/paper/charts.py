"""The figures as charts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.paper.look import Look, look_of
from psofed.paper.model import FigureData, FigureSeries
from psofed.render.charts import Chart, Panels, Scale, Series
from psofed.render.style import PAGE_WIDTH
from psofed.results import METRIC_TITLES
from psofed.scenario import UPLINKS

PANEL_TITLES = {"same": "uplink as in the equations (same)", "redrawn": "uplink as in the analysis (redrawn)"}

# Normal quantile of the 95 % intervals; with a hundred trials and more, Student's differs by under 2 %.
BAND = 1.96


class KindLook(NamedTuple):
    """How a kind of series is shown; without a line, it has the curve's marker unless it names another."""

    title: str
    line: str = ""
    marker: str = ""
    size: float = 5.0
    hollow: bool = False


# Kinds as a reader sees them.
KINDS = {
    "simulation": KindLook("simulation, with its 95 % interval"),
    "exact-theory": KindLook("exact theory", "-"),
    "paper-theory": KindLook("paper’s theory", "--"),
    "approximation": KindLook("paper’s theory for small stepsizes", ":"),
    "published": KindLook("printed in the paper", size=9.0, hollow=True),
    "published-theory": KindLook("theory printed there", marker="x", size=6.0),
    "published-approximation": KindLook("approximation printed there", marker="+", size=7.0),
}


def kind_of(series: FigureSeries) -> str:
    """Return what a reader sees a series as, a key of `KINDS`."""
    if series.kind == "paper-theory" and "approximation" in series.label:
        return "approximation"
    if series.kind == "published" and "theory" in series.label:
        return "published-approximation" if "small" in series.label else "published-theory"
    return series.kind


def shown_kinds(data: FigureData, uplinks: Sequence[str] = UPLINKS) -> list[str]:
    """Return the kinds that some panels show, in order."""
    kinds = {kind_of(series) for uplink in uplinks for series in data.panel(uplink)}
    return [kind for kind in KINDS if kind in kinds]


def ordinate(data: FigureData) -> str:
    """Return what the ordinate shows, in dB, and which way is better."""
    if data.metric not in METRIC_TITLES:
        return "term of the MSE (dB)"
    return f"steady-state {METRIC_TITLES[data.metric]} (dB), lower is better"


def figure_chart(data: FigureData) -> Panels:
    """Return the figure: simulation, both theories and the printed points in dB, a panel per uplink."""
    labels, nothing, grey = data.curve_labels, np.empty(0), Look("0.25", "o")
    key = [_drawn("simulation", look_of(label, n), label, nothing, nothing) for n, label in labels.items()]
    key += [_drawn(kind, grey, KINDS[kind].title, nothing, nothing) for kind in shown_kinds(data)]
    points = sorted({float(x) for series in data.series for x in series.x})
    whole = all(x.is_integer() for x in points)
    x = Scale(ticks=tuple((place, f"{place:g}") for place in points) if whole else None)
    charts: list[Chart] = []
    for uplink in UPLINKS:
        series = [] if charts else list(key)
        for one in data.panel(uplink):
            look, error = look_of(labels[one.curve], one.curve), one.standard_error_db
            ends = {} if error is None else {"low": one.y_db - BAND * error, "high": one.y_db + BAND * error}
            series.append(_drawn(kind_of(one), look, "", one.x, one.y_db, **ends))
        charts.append(Chart(PANEL_TITLES[uplink], x, Scale(), tuple(series)))
    return Panels("", (tuple(charts),), True, data.x_label, ordinate(data), size=(PAGE_WIDTH, 3.0))


def spread_labels(levels: FloatArray, share: float = 0.052, height: float | None = None) -> FloatArray:
    """Return heights for labels next to points, moved apart until none covers another.

    Parameters
    ----------
    levels : array (labels,)
        Where the labels would like to be.
    share : float
        Of the axis' height that a label takes.
    height : float, optional
        Of the axis; by default the distance between the outermost labels.

    Examples
    --------
    >>> spread_labels(np.array([0.0, 10.0, 10.0]), share=0.1).tolist()
    [0.0, 9.5, 10.5]
    """
    extent = float(np.ptp(levels)) if height is None and levels.size else height or 0.0
    gap, order = share * max(extent, 1e-9), np.argsort(levels, kind="stable")
    # Apart by at least the gap is the same as sorted, once the gaps are taken out: the nearest such heights are the
    # least-squares monotone fit, which averages between the largest mean from the left and the smallest to the right.
    wanted = levels[order] - gap * np.arange(levels.size)
    fit = [
        max(min(wanted[first:last].mean() for last in range(at + 1, levels.size + 1)) for first in range(at + 1))
        for at in range(levels.size)
    ]
    heights = np.empty(levels.size)
    heights[order] = np.array(fit) + gap * np.arange(levels.size)
    return heights


def _drawn(kind: str, look: Look, label: str, x: FloatArray, y: FloatArray, **ends: FloatArray) -> Series:
    about = KINDS[kind]
    marker = "" if about.line else about.marker or look.marker
    return Series(
        label, x, np.where(np.isfinite(y), y, np.nan), ends.get("low"), ends.get("high"), line=about.line,
        marker=marker, colour=look.colour, size=about.size, width=1.3, hollow=about.hollow,
    )  # fmt: skip
