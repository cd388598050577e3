"""The chart: one metric over the stepsize, the number of shared parameters or the time."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, CustomJSTickFormatter, HoverTool, Range1d
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from psofed.common.numbers import to_decibels
from psofed.explore.answers import AXES, PageState, Point
from psofed.render.numbers import sentence_case
from psofed.results.metrics import LABELS

_COLOUR = "#0072B2"
_FONT, _INK, _AXIS, _GRID = "system-ui, sans-serif", "#3A4350", "#9AA4B2", "#E6E9EE"
_TOP = 6.0  # dB; errors above it do not stretch the axis
_MINUS = "return tick.toLocaleString('en', {maximumSignificantDigits: 4}).replace('-', '−')"
_SOURCES = ("band", "line", "points", "present", "best")


class AxisChart:
    """The figure of one axis, one of :data:`~psofed.explore.answers.AXES`."""

    def __init__(self, axis: str) -> None:
        self.axis = axis
        self.figure: Any = _empty_figure(AXES[axis], axis == "iteration")
        self._sources = {name: ColumnDataSource(_columns([])) for name in _SOURCES}
        plot, is_time, about = self.figure, axis == "iteration", {"color": _COLOUR}
        band, line, points, present, best = self._sources.values()
        plot.varea("x", "low", "high", source=band, fill_color=_COLOUR, fill_alpha=0.13)
        self._line = plot.line("x", "y", source=line, line_color=_COLOUR, line_width=2.5)
        if axis == "num_shared":
            plot.scatter("x", "y", source=line, size=6, **about)
        if is_time:
            plot.varea("x", "low", "high", source=points, fill_color=_COLOUR, fill_alpha=0.25)
        else:
            plot.segment("x", "low", "x", "high", source=points, line_color=_COLOUR, line_width=2)
        size, marker = (3, "circle") if is_time else (7, "square")
        dots = plot.scatter("x", "y", source=points, size=size, marker=marker, alpha=0.9, **about)
        plot.scatter("x", "y", source=present, size=15, fill_alpha=0.25, line_width=2.5, **about)
        plot.scatter("x", "y", source=best, size=12, marker="star", **about)
        self._limit = Span(dimension="height", line_dash="dashed", line_color=_COLOUR, visible=False)
        plot.add_layout(self._limit)
        place, interval = (AXES[axis], "@x{0.[0000]}"), "@y{0.00} (95 %: @low{0.00} … @high{0.00})"
        tips = [("", "theory"), place, ("dB", "@y{0.00}")]
        plot.add_tools(
            HoverTool(renderers=[self._line], tooltips=tips, mode="vline"),
            HoverTool(renderers=[dots], tooltips=[("", "@trials simulated trials"), place, ("dB", interval)]),
        )

    def show(self, state: PageState, metric: str) -> None:
        """Draw the answers so far."""
        for name, data in self._sources.items():
            columns = _columns(_marks(state, name, self.axis, metric))
            if data.data != columns:
                data.data = columns
        self._line.glyph.line_alpha = 1.0 if self.axis in state.theory.charts else 0.3  # an earlier setting's
        limit = state.theory.limit if self.axis == "stepsize" else None
        self._limit.visible = limit is not None and 0 < limit < math.inf
        if self._limit.visible:
            self._limit.location = limit
        title = sentence_case(LABELS[metric].title)
        self.figure.title.text = f"{title} by {AXES[self.axis].rpartition(' ')[0] or AXES[self.axis]}"
        self._fit()

    @property
    def caption(self) -> str:
        """Meaning of the marks that are drawn."""
        words = {
            "band": "Band: up to the worst additive attack of the same power.",
            "line": "Line: exact theory.",
            "points": "Dots: simulation with 95 % intervals.",
            "present": "Circle: the current settings.",
            "best": "Star: best stepsize.",
        }
        texts = [text for name, text in words.items() if self._sources[name].data["x"]]
        if self._limit.visible:
            texts.append("Dashed: largest stable stepsize.")
        return " ".join(texts) or "Nothing to draw yet."

    @property
    def is_empty(self) -> bool:
        """Whether nothing is drawn."""
        return not any(source.data["x"] for source in self._sources.values())

    def _fit(self) -> None:
        """Choose axes that show everything except the steep end of a curve."""
        data = {name: source.data for name, source in self._sources.items()}
        heights = sorted(y for source in data.values() for y in source["y"])
        if not heights:
            return
        low = heights[0]
        usual = heights[int(0.85 * (len(heights) - 1))] if self.axis == "stepsize" else heights[-1]
        band = [min(data["band"]["high"]) + 1] if data["band"]["high"] else []
        high = min(max([usual, low + 3, *data["present"]["y"], *data["points"]["y"], *band]), max(_TOP, low + 3))
        margin = 0.06 * (high - low)
        _move(self.figure.y_range, low - margin, high + margin)
        limit: Any = self._limit.location
        right = limit if self._limit.visible else max(x for one in data.values() for x in one["x"])
        is_time, is_count = self.axis == "iteration", self.axis == "num_shared"
        _move(self.figure.x_range, 1 if is_time else 0.5 if is_count else 0, right + 0.5 if is_count else 1.06 * right)


def _marks(state: PageState, source: str, axis: str, metric: str) -> list[tuple[float, float, float, float, int]]:
    """Return x, level, both ends of a range and the number of trials for what one source draws."""
    theory, level = state.theory, state.shown(metric)
    match source:
        case "line":
            return _levels(state.drawn.charts.get(axis, ()), metric)
        case "points":
            return _levels(state.simulation.charts.get(axis, ()), metric)
        case "band" if theory.finished and metric == "network_mse":  # half a band would look like an answer
            return _band(theory.charts.get(axis, ()), metric)
        case "present" if axis != "iteration" and level is not None and 0 < level < math.inf:
            place = state.scenario.mean_stepsize if axis == "stepsize" else float(state.scenario.num_shared)
            return [(place, level, level, level, 0)]
        case "best" if axis == "stepsize" and theory.best is not None:
            return _levels([theory.best], metric)
        case _:
            return []


def _band(points: Sequence[Point], metric: str) -> list[tuple[float, float, float, float, int]]:
    """Return a band from a curve up to the worst attack, which is known at some of its points."""
    worst = [(point.x, math.log(point.worst)) for point in points if math.isfinite(point.worst)]
    if not worst:
        return []
    x, tops = np.array(worst).T
    curve = [mark for mark in _levels(points, metric) if x[0] <= mark[0] <= x[-1]]
    return [(mark[0], mark[1], mark[1], math.exp(np.interp(mark[0], x, tops)), 0) for mark in curve]


def _levels(points: Sequence[Point], metric: str) -> list[tuple[float, float, float, float, int]]:
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
    """Return a figure without curves; one whose title begins empty might never show another."""
    plot: Any = figure(
        title=x_label, x_axis_label=x_label, y_axis_label="dB (lower is better)", height=330, min_width=240,
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
