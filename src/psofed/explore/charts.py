"""Bokeh figures of the answers. The same colour always means the same thing."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, CustomJSTickFormatter, HoverTool, Range1d
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from psofed.common.numbers import to_decibels
from psofed.explore.answers import Answers, Curve, Dot, Point
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario
from psofed.theory.reports import TERM_TITLES

SIDE_COLOURS = {"light": {"A": "#0072B2", "B": "#D55E00"}, "dark": {"A": "#56B4E9", "B": "#FF9D5C"}}
TERM_COLOURS = {
    "noise": "#8C96A3",
    "data": "#56B4E9",
    "attack": "#E0523E",
    "drift": "#E69F00",
    "targets": "#CC79A7",
}
_INK = {
    "light": {"text": "#3A4350", "grid": "#E6E9EE", "axis": "#9AA4B2", "paper": "#FFFFFF"},
    "dark": {"text": "#C7D0DB", "grid": "#2B333F", "axis": "#667080", "paper": "#171C24"},
}
CAPTIONS = (
    "Lower is better. Circle: current stepsize. Star: best stepsize. Dashed: largest stable stepsize. "
    "Squares: simulation with 95 % intervals.",
    "What contributes to the network MSE. Bars left of zero reduce it.",
    "Line: theory. Dots and band: simulated mean with 95 % interval.",
    "At the current stepsize. Squares: simulation.",
    "Solid: all participants share fewer parameters. Dashed: fewer participants share all parameters.",
)
_TOOLS = "pan,wheel_zoom,box_zoom,reset,save"
_FONT = "system-ui, sans-serif"
_HEIGHT = 270  # pixels
_TOP = 6.0  # dB; errors above it do not stretch the axis
_MINUS_FORMATTER = "return tick.toLocaleString('en', {maximumSignificantDigits: 4}).replace('-', '−')"


@dataclass(frozen=True)
class Mark:
    """A point to draw: its place, its error (linear) and, if simulated, the interval and number of trials."""

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan
    trials: int = 0


class Charts:
    """All charts of the page, for both sides.

    Parameters
    ----------
    sides : tuple of str
        ``("A", "B")``.
    """

    def __init__(self, sides: tuple[str, ...] = ("A", "B")) -> None:
        self._sides = sides
        self.stepsize: _Picture = _Picture("MSE by stepsize", "stepsize μ", sides, marks=True)
        self.shared: _Picture = _Picture("MSE by sharing", "shared parameters M", sides, dots=True)
        self.curve: _Picture = _Picture("Learning curve", "iteration", sides, x_log=True)
        self.traffic: _Picture = _Picture("Traffic and error", "values sent per iteration", sides, dots=True,
                                          second=True)  # fmt: skip
        self.terms: _Terms = _Terms(sides)
        self._pictures = (self.stepsize, self.shared, self.curve, self.traffic)
        self.recolour("light")

    def figures(self) -> list[Any]:
        """Return the figures in the order in which the page shows them."""
        pictures = (self.stepsize, self.terms, self.curve, self.shared, self.traffic)
        return [picture.figure for picture in pictures]

    def recolour(self, scheme: str) -> None:
        """Change to ``"light"`` or ``"dark"``."""
        for picture in (*self._pictures, self.terms):
            _ink(picture.figure, _INK[scheme])
            # A new size makes a new canvas; the old one would keep a hairline of the old background at its edges.
            picture.figure.height = _HEIGHT + (scheme == "dark")
            picture.recolour(scheme)

    def show(self, sides: Mapping[str, Answers], metric: str) -> None:
        """Draw the answers about every side."""
        title = METRIC_TITLES[metric]
        capital = f"{title[0].upper()}{title[1:]}"
        self.stepsize.figure.title.text = f"{capital} by stepsize"
        self.shared.figure.title.text = f"{capital} by sharing"
        self.curve.figure.title.text = f"{capital} over time"
        self.traffic.figure.title.text = f"Traffic and {title}"
        for name in self._sides:
            self._show_side(name, sides.get(name), metric)
        for picture in self._pictures:
            picture.fit()
        self.terms.show({name: sides[name].theory.point for name in self._sides if name in sides})

    def _show_side(self, name: str, answers: Answers | None, metric: str) -> None:
        """Draw one side; None leaves it empty."""
        answers = answers or Answers(_NOTHING)
        scenario, theory, simulation = answers.scenario, answers.theory, answers.simulation
        designs = [(design.count, design.values_sent, design.point.value(metric)) for design in theory.shared]
        fewer = [(design.values_sent, design.point.value(metric)) for design in theory.participants]
        self.stepsize.line(name, [Mark(p.stepsize, p.value(metric)) for p in theory.stepsizes])
        self.stepsize.points(name, _dots(simulation.stepsizes, metric))
        self.shared.line(name, [Mark(count, y) for count, _, y in designs])
        self.shared.points(name, _dots(simulation.shared, metric))
        self.curve.line(name, _along(theory.curve, metric)[1:])
        self.curve.points(name, _along(simulation.curve, metric))
        self.traffic.line(name, [Mark(sent, y) for _, sent, y in designs])
        self.traffic.second_line(name, [Mark(*pair) for pair in fewer])
        now = None if theory.point is None else theory.point.value(metric)
        sent = next((sent for count, sent, _ in designs if count == scenario.num_shared), None)
        self.stepsize.present(name, None if theory.point is None else theory.point.stepsize, now)
        self.shared.present(name, scenario.num_shared, now)
        self.traffic.present(name, sent, now)
        best = None if theory.best is None else theory.best.point
        self.stepsize.mark(
            name, theory.limit, None if best is None else Mark(best.stepsize, best.value(metric))
        )


_NOTHING = Scenario(num_clients=1, dimension=1)  # of a side that is closed


class _Picture:
    """One figure: per side a line of theory, simulated points with intervals, and the current setting."""

    def __init__(
        self, title: str, x_label: str, sides: tuple[str, ...], *, marks: bool = False, dots: bool = False,
        x_log: bool = False, second: bool = False,
    ) -> None:  # fmt: skip
        self.figure: Any = _figure(title, x_label, "dB", x_log)
        self._x_log = x_log
        self._glyphs: dict[str, list[Any]] = {side: [] for side in sides}
        self._seen: dict[str, dict[str, list[tuple[float, float]]]] = {side: {} for side in sides}
        self._sources: dict[tuple[str, str], ColumnDataSource] = {}
        self._spans: dict[str, Any] = {}
        self._marks = marks
        for side in sides:
            self._add_side(side, dots, second, marks)

    def _add_side(self, side: str, dots: bool, second: bool, marks: bool) -> None:
        plot, glyphs = self.figure, self._glyphs[side]
        make = lambda key, *columns: self._sources.setdefault(  # noqa: E731
            (side, key), ColumnDataSource({name: [] for name in columns})
        )
        band = make("points", "x", "y", "low", "high", "trials")
        if self._x_log:
            glyphs.append(plot.varea("x", "low", "high", source=band, fill_alpha=0.25, level="underlay"))
            glyphs.append(plot.scatter("x", "y", source=band, size=3, alpha=0.8))
        else:
            glyphs.append(plot.segment("x", "low", "x", "high", source=band, line_width=2, alpha=0.7))
            glyphs.append(plot.scatter("x", "y", source=band, size=6, marker="square", alpha=0.9))
        simulated = glyphs[-1]
        if second:
            other = make("second", "x", "y")
            glyphs.append(plot.line("x", "y", source=other, line_width=1.5, line_dash="dashed", alpha=0.8))
            glyphs.append(plot.scatter("x", "y", source=other, size=5, marker="triangle", alpha=0.8))
        line = make("line", "x", "y")
        glyphs.append(plot.line("x", "y", source=line, line_width=2.5))
        main = glyphs[-1]
        if dots:
            glyphs.append(plot.scatter("x", "y", source=line, size=6))
        present = make("present", "x", "y")
        if not self._x_log:
            glyphs.append(plot.scatter("x", "y", source=present, size=15, fill_alpha=0.25, line_width=2.5))
        if marks:
            best = make("best", "x", "y")
            glyphs.append(plot.scatter("x", "y", source=best, size=11, marker="star", line_width=1))
            span = Span(dimension="height", line_dash="dashed", line_width=1.5, visible=False)
            plot.add_layout(span)
            self._spans[side] = span
        tips = [
            ("", f"{side}, theory"),
            (self.figure.xaxis[0].axis_label, "@x{0.[0000]}"),
            ("dB", "@y{0.00}"),
        ]
        plot.add_tools(HoverTool(renderers=[main], tooltips=tips, mode="vline" if not dots else "mouse"))
        tips = [("", f"{side}, simulated, @trials trials"), (self.figure.xaxis[0].axis_label, "@x{0.[0000]}"),
                ("dB", "@y{0.00} (95 %: @low{0.00} … @high{0.00})")]  # fmt: skip
        plot.add_tools(HoverTool(renderers=[simulated], tooltips=tips))

    def recolour(self, scheme: str) -> None:
        for side, glyphs in self._glyphs.items():
            colour = SIDE_COLOURS[scheme][side]
            for renderer in glyphs:
                for name in ("line_color", "fill_color"):
                    if hasattr(renderer.glyph, name):
                        setattr(renderer.glyph, name, colour)
        for side, span in self._spans.items():
            span.line_color = SIDE_COLOURS[scheme][side]

    def line(self, side: str, marks: Iterable[Mark]) -> None:
        self._set(side, "line", _columns(marks))

    def second_line(self, side: str, marks: Iterable[Mark]) -> None:
        self._set(side, "second", _columns(marks))

    def points(self, side: str, marks: Iterable[Mark]) -> None:
        shown = [mark for mark in marks if _finite(mark.y)]
        data: dict[str, list[Any]] = {
            "x": [max(mark.x, 1) if self._x_log else mark.x for mark in shown],
            "y": [to_decibels(mark.y) for mark in shown],
            "low": [to_decibels(mark.low if _finite(mark.low) else mark.y / 4) for mark in shown],
            "high": [to_decibels(mark.high if _finite(mark.high) else mark.y) for mark in shown],
            "trials": [mark.trials for mark in shown],
        }
        self._set(side, "points", data)

    def present(self, side: str, x: float | None, y: float | None) -> None:
        self._set(side, "present", _columns([] if x is None or y is None else [Mark(x, y)]))

    def mark(self, side: str, limit: float | None, best: Mark | None) -> None:
        span = self._spans[side]
        span.visible = limit is not None and math.isfinite(limit)
        if span.visible:
            span.location = limit
        self._set(side, "best", _columns([] if best is None else [best]))

    def _set(self, side: str, key: str, data: dict[str, list[Any]]) -> None:
        source = self._sources[side, key]
        if source.data != data:
            source.data = data
        self._seen[side][key] = list(zip(data["x"], data["y"], strict=True))

    def fit(self) -> None:
        """Choose axes that show everything except the steep end of a curve."""
        points = [pair for side in self._seen.values() for pairs in side.values() for pair in pairs]
        spans = [span.location for span in self._spans.values() if span.visible]
        if not points:
            return
        heights = sorted(y for _, y in points)
        low = heights[0]
        present = [y for side in self._seen.values() for _, y in side.get("present", ())]
        usual = heights[int(0.85 * (len(heights) - 1))] if self._marks else heights[-1]
        high = min(max([usual, low + 3, *present]), max(_TOP, low + 3))
        margin = 0.06 * (high - low)
        _move(self.figure.y_range, low - margin, high + margin)
        rights = [x for x, _ in points] + spans
        if self._x_log:
            _move(self.figure.x_range, 1, max(rights) * 1.1)
        else:
            left = 0 if self._marks or min(rights) > 0 else min(rights)
            right = max(spans) if spans else max(rights)
            _move(self.figure.x_range, left, right * 1.06 if right > 0 else 1)


class _Terms:
    """The terms of the network MSE, stacked in one bar per side."""

    def __init__(self, sides: tuple[str, ...]) -> None:
        self.figure: Any = _figure("Sources of error", "network MSE (linear)", "", False,
                              y_range=list(reversed(sides)))  # fmt: skip
        self.figure.ygrid.visible = False
        empty: dict[str, list[Any]] = {"side": [], "left": [], "right": [], "share": []}
        self._sources = {term: ColumnDataSource(empty) for term in TERM_COLOURS}
        for term, source in self._sources.items():
            bars = self.figure.hbar(y="side", left="left", right="right", height=0.55, source=source,
                                    color=TERM_COLOURS[term], legend_label=TERM_TITLES[term])  # fmt: skip
            tips = [("", f"@side: {TERM_TITLES[term]}"), ("", "@share")]
            self.figure.add_tools(HoverTool(renderers=[bars], tooltips=tips))
        legend = self.figure.legend[0]
        self.figure.add_layout(legend, "below")
        legend.orientation, legend.ncols = "horizontal", 2
        legend.border_line_color = None
        legend.label_text_font = _FONT
        legend.label_text_font_size, legend.glyph_width = "12px", 14
        legend.padding, legend.spacing, legend.margin = 2, 8, 0

    def recolour(self, scheme: str) -> None:
        legend = self.figure.legend[0]
        legend.label_text_color = _INK[scheme]["text"]
        legend.background_fill_color = _INK[scheme]["paper"]

    def show(self, points: Mapping[str, Point | None]) -> None:
        """Draw the terms of every side with a finite steady state."""
        known = {side: point for side, point in points.items() if point and _finite(point.network_mse)}
        self.figure.y_range.factors = list(reversed(list(points))) or ["A"]
        ends = dict.fromkeys(known, 0.0)
        for term, source in self._sources.items():
            data: dict[str, list[Any]] = {"side": [], "left": [], "right": [], "share": []}
            for side, point in known.items():
                value, total = point.terms[term], point.network_mse
                if value == 0.0:
                    continue
                data["side"].append(side)
                data["left"].append(ends[side] if value > 0 else 0.0)
                data["right"].append(ends[side] + value if value > 0 else value)
                data["share"].append(f"{value:.3g}, {value / total:.0%}")
                ends[side] += max(value, 0.0)
            if source.data != data:
                source.data = data
        if not known:
            return
        least = min([0.0, *(point.terms[term] for point in known.values() for term in TERM_COLOURS)])
        _move(self.figure.x_range, 1.05 * least, 1.05 * max([*ends.values(), 1e-9]))
        used = {term for term, source in self._sources.items() if source.data["side"]}
        for item, term in zip(self.figure.legend[0].items, self._sources, strict=True):
            item.visible = term in used


def _figure(title: str, x_label: str, y_label: str, x_log: bool, **options: Any) -> Any:
    plot: Any = figure(
        title=title, x_axis_label=x_label, y_axis_label=y_label or None, height=_HEIGHT, sizing_mode="stretch_width",
        tools=_TOOLS, x_axis_type="log" if x_log else "linear", toolbar_location="right",
        output_backend="canvas", min_width=240, stylesheets=[":host { background-color: var(--card); }"],
        **{"x_range": Range1d(start=1 if x_log else 0, end=10), "y_range": Range1d(start=-20, end=0), **options},
    )  # fmt: skip
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.toolbar.active_drag = None
    plot.toolbar.active_scroll = None
    plot.title.text_font_size = "14px"
    plot.title.text_font_style = "bold"
    plot.axis.axis_label_text_font_style = "normal"
    plot.title.text_font = plot.axis.axis_label_text_font = plot.axis.major_label_text_font = _FONT
    plot.axis.axis_label_text_font_size = plot.axis.major_label_text_font_size = "13px"
    plot.axis.minor_tick_line_color = None
    if not options:
        plot.yaxis.formatter = CustomJSTickFormatter(code=_MINUS_FORMATTER)
    plot.outline_line_color = None
    plot.xgrid.visible = False
    return plot


def _ink(plot: Any, ink: Mapping[str, str]) -> None:
    plot.background_fill_color = plot.border_fill_color = ink["paper"]
    plot.title.text_color = ink["text"]
    plot.axis.axis_label_text_color = plot.axis.major_label_text_color = ink["text"]
    plot.axis.axis_line_color = plot.axis.major_tick_line_color = ink["axis"]
    plot.grid.grid_line_color = ink["grid"]


def _dots(dots: Iterable[tuple[float, Dot]], metric: str) -> list[Mark]:
    marks = []
    for x, dot in dots:
        found = dot.metrics[metric]
        marks.append(Mark(x, found.mean, found.low, found.high, dot.trials))
    return marks


def _along(curve: Curve | None, metric: str) -> list[Mark]:
    """Return a learning curve as marks."""
    if curve is None:
        return []
    unknown = (math.nan,) * len(curve.iterations)
    ends = curve.low.get(metric, unknown), curve.high.get(metric, unknown)
    numbers = zip(curve.iterations, curve.values[metric], *ends, strict=True)
    return [Mark(*row, curve.trials) for row in numbers]


def _columns(marks: Iterable[Mark]) -> dict[str, list[Any]]:
    shown = [mark for mark in marks if _finite(mark.y)]
    return {"x": [float(mark.x) for mark in shown], "y": [to_decibels(mark.y) for mark in shown]}


def _move(axis: Any, start: float, end: float) -> None:
    if (axis.start, axis.end) != (start, end):
        axis.update(start=start, end=end, reset_start=start, reset_end=end)


def _finite(value: float) -> bool:
    return math.isfinite(value) and value > 0
