"""The figures as charts: of the page, where a reader can switch layers, and as pictures for print."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.paper.look import Look, look_of
from psofed.paper.model import FigureData, FigureSeries
from psofed.paper.typeset import decibels, typeset
from psofed.render.charts import Chart, Panels, Scale, Series
from psofed.render.pages import CROSSES, DASHES, DOTS, HALO, LABEL, POINTS, RINGS, Layer, make_chart
from psofed.render.style import PAGE_WIDTH
from psofed.results import METRIC_TITLES

PANEL_TITLES = {
    "same": "uplink as in the equations (same)",
    "redrawn": "uplink as in the analysis (redrawn)",
}
ORDINATES = {
    **{metric: f"steady-state {title}" for metric, title in METRIC_TITLES.items()},
    "term": "term of the MSE",
}

# Normal quantile of the 95 % bands; with a hundred trials and more, Student's differs by under 2 %.
BAND = 1.96


@dataclass(frozen=True)
class KindLook:
    """How a kind of series is shown: its layer on the page, its name, and its look in print (see `Series`).

    Without a line in print, it has the curve's marker unless it names another.
    """

    layer: str
    title: str
    line: str = ""
    marker: str = ""
    size: float = 5.0
    hollow: bool = False


# Kinds as a reader sees them.
KINDS = {
    "simulation": KindLook(POINTS, "simulation, with its 95 % interval"),
    "exact-theory": KindLook(HALO, "exact theory", "-"),
    "paper-theory": KindLook(DASHES, "paper’s theory", "--"),
    "approximation": KindLook(DOTS, "paper’s theory for small stepsizes", ":"),
    "published": KindLook(RINGS, "printed in the paper", size=9.0, hollow=True),
    "published-theory": KindLook(CROSSES, "theory printed there", marker="x", size=6.0),
    "published-approximation": KindLook(CROSSES, "approximation printed there", marker="+", size=7.0),
}

# The opening picture: what was found, what the exact theory says, what was printed.
HEADLINE = "headline"
HEADLINE_KINDS = ("simulation", "exact-theory", "published")


def kind_of(series: FigureSeries) -> str:
    """Return what a reader sees a series as, a key of `KINDS`."""
    if series.kind == "paper-theory" and "approximation" in series.label:
        return "approximation"
    if series.kind == "published" and "theory" in series.label:
        return "published-approximation" if "small" in series.label else "published-theory"
    return series.kind


def shown_kinds(data: FigureData, panels: Sequence[str]) -> list[str]:
    """Return the kinds that some panels show, in order."""
    found = {kind_of(series) for uplink in panels for series in data.panel(uplink)}
    return [kind for kind in KINDS if kind in found]


def metrics_of(data: FigureData) -> dict[str, str]:
    """Return the metrics a figure can be switched to, its own first, with their titles."""
    if data.metric not in METRIC_TITLES:
        return {}
    others = {name: title for name, title in METRIC_TITLES.items() if name != data.metric}
    return {data.metric: METRIC_TITLES[data.metric], **others}


def ordinate(data: FigureData) -> str:
    """Return what the ordinate shows, in dB, and which way is better."""
    return f"{ORDINATES[data.metric]} (dB){'' if data.metric == 'term' else ', lower is better'}"


def chart_name(data: FigureData, uplink: str) -> str:
    """Return the name of a panel's chart, which is also its element's id."""
    return f"{data.name}-{uplink}"


def make_panels(data: FigureData) -> dict[str, Any]:
    """Return a chart for every panel, by name; they share the ordinate."""
    charts: dict[str, Any] = {}
    shared = None
    for uplink in data.panels:
        name = chart_name(data, uplink)
        charts[name] = make_chart(
            name, list(_layers(data, uplink)), height=340, x_ticks=_ticks(data), y_range=shared
        )
        shared = charts[name].y_range
    return charts


def make_headline(data: FigureData, uplink: str) -> Any:
    """Return the picture that opens the page: a panel with its curves' names beside them."""
    layers = [layer for layer in _layers(data, uplink) if layer.kind in HEADLINE_KINDS]
    simulated = [
        layer for layer in layers if layer.kind == "simulation" and np.isfinite(layer.columns["y"][-1])
    ]
    levels = np.array([layer.columns["y"][-1] for layer in simulated])
    names = data.curve_labels
    for layer, height in zip(simulated, spread_labels(levels), strict=True):
        columns = {"x": [layer.columns["x"][-1]], "y": [height]}
        layers.append(
            Layer(layer.curve, "label", LABEL, names[int(layer.curve)], layer.colour, layer.marker, columns)
        )
    points = [x for layer in layers for x in layer.columns["x"]]
    span = max(points) - min(points)
    # Space for the names on the right; a narrow page drops it together with the names.
    x_range = (min(points) - 0.05 * span, max(points) + 0.36 * span)
    return make_chart(HEADLINE, layers, height=460, x_ticks=_ticks(data), x_range=x_range)


def figure_chart(data: FigureData) -> Panels:
    """Return the figure for print: simulation, both theories and the printed points in dB, a panel per uplink."""
    return _for_print(data, {uplink: PANEL_TITLES[uplink] for uplink in data.panels}, list(KINDS), 3.0)


def headline_chart(data: FigureData, uplink: str) -> Panels:
    """Return the opening picture for print."""
    return _for_print(data, {uplink: ""}, list(HEADLINE_KINDS), 2.8)


def _for_print(data: FigureData, titles: dict[str, str], kinds: list[str], height: float) -> Panels:
    """Return some kinds of series, a panel for each uplink with its title, as wide as a page."""
    labels, nothing, grey = data.curve_labels, np.empty(0), Look("0.25", "o")
    shown = [kind for kind in shown_kinds(data, list(titles)) if kind in kinds]
    key = [_printed("simulation", look_of(label, n), label, nothing, nothing) for n, label in labels.items()]
    key += [_printed(kind, grey, KINDS[kind].title, nothing, nothing) for kind in shown]
    ticks = _ticks(data)
    x = Scale(ticks=None if ticks is None else tuple((place, f"{place:g}") for place in ticks))
    charts: list[Chart] = []
    for uplink, title in titles.items():
        series = [] if charts else list(key)
        for one in data.panel(uplink):
            if kind_of(one) in shown:
                band, look = _band(one), look_of(labels[one.curve], one.curve)
                ends = {end: np.array(band[end]) for end in ("low", "high") if end in band}
                series.append(_printed(kind_of(one), look, "", one.x, one.y_db, **ends))
        charts.append(Chart(title, x, Scale(), tuple(series)))
    return Panels("", (tuple(charts),), True, data.x_label, ordinate(data), size=(PAGE_WIDTH, height))


def describe_print(data: FigureData, uplink: str) -> str:
    """Say where the simulation is farthest from the printed points of a panel; nothing where none are."""
    shown = data.panel(uplink)
    printed = [one for one in shown if kind_of(one) == "published"] or [
        one for one in shown if kind_of(one) == "published-theory"
    ]
    distances = [
        (float(ours.y_db[np.isclose(ours.x, x)][0] - y), x, data.curve_labels[one.curve])
        for one in printed
        for ours in data.select(kind="simulation", uplink=uplink, curve=one.curve)
        for x, y in zip(one.x, one.y_db, strict=True)
        if np.isclose(ours.x, x).any()
    ]
    if not distances:
        return ""
    worst, place, curve = max(distances, key=lambda distance: abs(distance[0]))
    where = f"{curve}, {data.x_label} = {place:g}"
    return f"up to {decibels(abs(worst), 2)} {'above' if worst > 0 else 'below'} print ({where})"


def describe_misfit(data: FigureData, uplink: str) -> str:
    """Say how near each theory comes to the simulation, everywhere in a panel."""
    found = {kind: data.misfit_db(kind, uplink) for kind in ("exact-theory", "paper-theory")}
    return ", ".join(
        f"{KINDS[kind].title} within {decibels(max(abs(worst), 0.01), 2)}"
        for kind, worst in found.items()
        if worst is not None
    )


def spread_labels(levels: FloatArray, share: float = 0.052, height: float | None = None) -> FloatArray:
    """Return heights for labels beside points, moved apart until none covers another.

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
    >>> spread_labels(np.array([0.0, 10.0, 10.0]), share=0.1)
    array([ 0. ,  9.5, 10.5])
    >>> spread_labels(np.array([0.0, 0.1]), share=0.1, height=10.0)
    array([-0.45,  0.55])
    """
    order = np.argsort(levels, kind="stable")
    extent = float(np.ptp(levels)) if height is None and levels.size else height or 0.0
    gap = share * max(extent, 1e-9)
    groups = [[float(levels[place])] for place in order]
    places = [sum(group) / len(group) for group in groups]
    # Neighbours that touch are set side by side around their common middle, as often as it takes.
    while True:
        for left in range(len(groups) - 1):
            least = gap * (len(groups[left]) + len(groups[left + 1])) / 2
            if places[left + 1] - places[left] < least - 1e-12:
                groups[left : left + 2] = [groups[left] + groups[left + 1]]
                places[left : left + 2] = [sum(groups[left]) / len(groups[left])]
                break
        else:
            break
    found = np.empty(levels.size)
    heights = [
        middle + gap * (place - (len(group) - 1) / 2)
        for group, middle in zip(groups, places, strict=True)
        for place in range(len(group))
    ]
    found[order] = heights
    return found


def _printed(kind: str, look: Look, label: str, x: FloatArray, y: FloatArray, **ends: FloatArray) -> Series:
    about = KINDS[kind]
    marker = "" if about.line else about.marker or look.marker
    return Series(
        label, x, y, ends.get("low"), ends.get("high"), line=about.line, marker=marker, colour=look.colour,
        size=about.size, width=1.3, hollow=about.hollow,
    )  # fmt: skip


def _layers(data: FigureData, uplink: str) -> Iterator[Layer]:
    for series in data.panel(uplink):
        kind = kind_of(series)
        label = data.curve_labels[series.curve]
        look = look_of(label, series.curve)
        yield Layer(
            curve=str(series.curve), kind=kind, style=KINDS[kind].layer, label=typeset(label), colour=look.colour,
            marker=look.marker, columns=_columns(data, series),
        )  # fmt: skip


def _columns(data: FigureData, series: FigureSeries) -> dict[str, list[float]]:
    """Return what is drawn, and the same in every metric under names such as ``y:test_mse``."""
    columns = {"x": series.x.tolist(), **_band(series)}
    for metric in metrics_of(data):
        for same in data.select(
            metric=metric, kind=series.kind, uplink=series.uplink, curve=series.curve, label=series.label
        ):
            columns |= {f"{name}:{metric}": values for name, values in _band(same).items()}
    return columns


def _band(series: FigureSeries) -> dict[str, list[float]]:
    columns = {"y": _finite(series.y_db)}
    error = series.standard_error_db
    if error is not None:
        columns["error"] = _finite(error)
        columns["low"] = _finite(series.y_db - BAND * error)
        columns["high"] = _finite(series.y_db + BAND * error)
    return columns


def _finite(values: FloatArray) -> list[float]:
    """Return a list with a gap where a trial diverged; a ten-thousandth of a dB is more than anyone sees."""
    return [round(value, 5) for value in np.where(np.isfinite(values), values, np.nan).tolist()]


def _ticks(data: FigureData) -> list[float] | None:
    points = sorted({float(x) for series in data.series for x in series.x})
    return points if all(x.is_integer() for x in points) else None
