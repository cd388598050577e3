"""The chart: one metric over the stepsize, the number of shared parameters or the time, for both sides."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from bokeh.models import ColumnDataSource, CustomJSTickFormatter, HoverTool, Range1d
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from psofed.common.numbers import to_decibels
from psofed.explore.answers import AXES, Point
from psofed.explore.words import Side, title_of

COLOURS = {"A": "#0072B2", "B": "#D55E00"}
_FONT, _INK, _AXIS, _GRID = "system-ui, sans-serif", "#3A4350", "#9AA4B2", "#E6E9EE"
_TOP = 6.0  # dB; errors above it do not stretch the axis
_MINUS = "return tick.toLocaleString('en', {maximumSignificantDigits: 4}).replace('-', '−')"
_SOURCES = ("band", "line", "points", "present", "best")


class AxisChart:
    """The figure of one axis.

    Parameters
    ----------
    axis : str
        One of :data:`~psofed.explore.answers.AXES`.
    sides : tuple of str
        The sides that may be shown.
    """

    def __init__(self, axis: str, sides: tuple[str, ...]) -> None:
        self.axis = axis
        self.figure: Any = _empty_figure(AXES[axis], axis == "iteration")
        self._sources = {(side, name): ColumnDataSource(_columns([])) for side in sides for name in _SOURCES}
        self._lines: dict[str, Any] = {}
        self._limits: dict[str, Any] = {}
        for side in sides:
            self._draw_side(side)

    def _draw_side(self, side: str) -> None:
        plot, colour = self.figure, COLOURS[side]
        band, line, points, present, best = (self._sources[side, name] for name in _SOURCES)
        plot.varea("x", "low", "high", source=band, fill_color=colour, fill_alpha=0.13)
        self._lines[side] = plot.line("x", "y", source=line, line_color=colour, line_width=2.5)
        if self.axis == "num_shared":
            plot.scatter("x", "y", source=line, color=colour, size=6)
        if self.axis == "iteration":
            plot.varea("x", "low", "high", source=points, fill_color=colour, fill_alpha=0.25)
        else:
            plot.segment("x", "low", "x", "high", source=points, line_color=colour, line_width=2)
        size, marker = (3, "circle") if self.axis == "iteration" else (7, "square")
        dots = plot.scatter("x", "y", source=points, color=colour, size=size, marker=marker, alpha=0.9)
        plot.scatter("x", "y", source=present, color=colour, size=15, fill_alpha=0.25, line_width=2.5)
        plot.scatter("x", "y", source=best, color=colour, size=12, marker="star")
        self._limits[side] = Span(dimension="height", line_dash="dashed", line_color=colour, visible=False)
        plot.add_layout(self._limits[side])
        tips = [("", f"{side}, theory"), (AXES[self.axis], "@x{0.[0000]}"), ("dB", "@y{0.00}")]
        simulated = [
            ("", f"{side}, @trials simulated trials"),
            tips[1],
            ("dB", "@y{0.00} (95 %: @low{0.00} … @high{0.00})"),
        ]
        plot.add_tools(
            HoverTool(renderers=[self._lines[side]], tooltips=tips, mode="vline"),
            HoverTool(renderers=[dots], tooltips=simulated),
        )

    def show(self, sides: Mapping[str, Side], metric: str) -> None:
        """Draw the answers about every side."""
        for (name, source), data in self._sources.items():
            shown = _marks(sides[name], source, self.axis, metric) if name in sides else []
            columns = _columns(shown)
            if data.data != columns:
                data.data = columns
        for name, line in self._lines.items():
            is_stale = name in sides and self.axis not in sides[name].theory.charts
            line.glyph.line_alpha = 0.3 if is_stale else 1.0
            limit = sides[name].theory.limit if name in sides and self.axis == "stepsize" else None
            self._limits[name].visible = limit is not None and math.isfinite(limit) and limit > 0
            if self._limits[name].visible:
                self._limits[name].location = limit
        self.figure.title.text = f"{title_of(metric)} by {AXES[self.axis].rpartition(' ')[0] or AXES[self.axis]}"
        self._fit()

    def caption(self, sides: Mapping[str, Side]) -> str:
        """Return what the marks mean that are drawn."""
        words = {
            "band": "Band: up to the worst additive attack of the same power.",
            "line": "Line: exact theory.",
            "points": "Dots: simulation with 95 % intervals.",
            "present": "Circle: the current settings.",
            "best": "Star: best stepsize.",
        }
        texts = [text for name, text in words.items() if any(self._sources[side, name].data["x"] for side in sides)]
        if any(limit.visible for limit in self._limits.values()):
            texts.append("Dashed: largest stable stepsize.")
        return " ".join(texts) or "Nothing to draw yet."

    def _pairs(self, *where: str) -> list[tuple[float, float]]:
        """Return the points of a side and source, or of all."""
        return [
            pair
            for place, source in self._sources.items()
            if set(where) <= set(place)
            for pair in zip(source.data["x"], source.data["y"], strict=True)
        ]

    def _fit(self) -> None:
        """Choose axes that show everything except the steep end of a curve."""
        points = self._pairs()
        if not points:
            return
        heights = sorted(y for _, y in points)
        low = heights[0]
        usual = heights[int(0.85 * (len(heights) - 1))] if self.axis == "stepsize" else heights[-1]
        shown = [y for name in ("present", "points") for _, y in self._pairs(name)]
        bands = [min(source.data["high"], default=low) for source in self._sources.values() if source.data["high"]]
        high = min(max([usual, low + 3, *shown, *(level + 1 for level in bands)]), max(_TOP, low + 3))
        margin = 0.06 * (high - low)
        _move(self.figure.y_range, low - margin, high + margin)
        limits = [limit.location for limit in self._limits.values() if limit.visible]
        right = max(limits or [x for x, _ in points])
        is_time, is_count = self.axis == "iteration", self.axis == "num_shared"
        _move(self.figure.x_range, 1 if is_time else 0.5 if is_count else 0, right + 0.5 if is_count else 1.06 * right)


def _marks(side: Side, source: str, axis: str, metric: str) -> list[tuple[float, float, float, float, int]]:
    """Return x, level, both ends of a range and the number of trials for what one source draws."""
    theory, simulation = side.theory, side.simulation
    if source == "line":
        return _levels(side.drawn.charts.get(axis, ()), metric)
    if source == "points":
        return _levels(simulation.charts.get(axis, ()), metric)
    if source == "band" and not theory.finished:
        return []  # half a band would look like an answer
    if source == "band":
        worst = [p for p in theory.charts.get(axis, ()) if math.isfinite(p.worst) and metric == "network_mse"]
        return [(x, y, y, point.worst, 0) for point in worst for x, y, *_ in _levels([point], metric)]
    if axis == "iteration":
        return []
    place = side.scenario.mean_stepsize if axis == "stepsize" else float(side.scenario.num_shared)
    if source == "present":
        level = side.shown(metric)
        return [(place, level, level, level, 0)] if level is not None and 0 < level < math.inf else []
    if source == "best" and axis == "stepsize" and theory.best is not None:
        return _levels([theory.best], metric)
    return []


def _levels(points: Iterable[Point], metric: str) -> list[tuple[float, float, float, float, int]]:
    marks = []
    for point in points:
        level = point.levels.get(metric)
        if level is not None and math.isfinite(level.mean) and level.mean > 0 and point.x > 0:
            low = level.low if level.low > 0 else level.mean / 4
            high = level.high if math.isfinite(level.high) else level.mean
            marks.append((point.x, level.mean, low, high, point.trials))
    return marks


def _columns(marks: list[tuple[float, float, float, float, int]]) -> dict[str, list[Any]]:
    return {
        "x": [float(mark[0]) for mark in marks],
        "y": [to_decibels(mark[1]) for mark in marks],
        "low": [to_decibels(mark[2]) for mark in marks],
        "high": [to_decibels(mark[3]) for mark in marks],
        "trials": [mark[4] for mark in marks],
    }


def _move(axis: Any, start: float, end: float) -> None:
    if (axis.start, axis.end) != (start, end):
        axis.update(start=start, end=end, reset_start=start, reset_end=end)


def _empty_figure(x_label: str, x_log: bool) -> Any:
    plot: Any = figure(
        title="", x_axis_label=x_label, y_axis_label="dB (lower is better)", height=330, min_width=240,
        sizing_mode="stretch_width", tools="pan,wheel_zoom,box_zoom,reset,save", toolbar_location="right",
        x_axis_type="log" if x_log else "linear", x_range=Range1d(start=1 if x_log else 0, end=10),
        y_range=Range1d(start=-20, end=0),
    )  # fmt: skip
    plot.toolbar.logo, plot.toolbar.autohide = None, True
    plot.toolbar.active_drag = plot.toolbar.active_scroll = None
    plot.title.text_font_size = "15px"
    plot.title.text_color = plot.axis.axis_label_text_color = plot.axis.major_label_text_color = _INK
    plot.axis.axis_label_text_font_style = "normal"
    plot.title.text_font = plot.axis.axis_label_text_font = plot.axis.major_label_text_font = _FONT
    plot.axis.axis_label_text_font_size = plot.axis.major_label_text_font_size = "13px"
    plot.axis.axis_line_color = plot.axis.major_tick_line_color = _AXIS
    plot.axis.minor_tick_line_color = None
    plot.grid.grid_line_color = _GRID
    plot.axis.formatter = CustomJSTickFormatter(code=_MINUS)
    plot.outline_line_color = None
    plot.xgrid.visible = False
    return plot
