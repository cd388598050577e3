"""Bokeh figures of the answers. The same colour always means the same thing."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, HoverTool
from bokeh.models.annotations import Span

from psofed.common.numbers import to_decibels
from psofed.explore.answers import Answers, Curve, Dot, Point
from psofed.explore.canvas import (
    FONT,
    HEIGHT,
    INK,
    ORDINATE,
    SIDE_COLOURS,
    ChartText,
    apply_ink,
    make_figure,
    move_axis,
)
from psofed.explore.paper_figure import PaperFigure
from psofed.explore.theory import values_sent
from psofed.render.numbers import fixed, sentence_case
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario
from psofed.theory.reports import TERM_TITLES

TERM_COLOURS = {
    "noise": "#8C96A3",
    "data": "#56B4E9",
    "attack": "#E0523E",
    "drift": "#E69F00",
    "targets": "#CC79A7",
}
_CAPTIONS = (
    "Circle: current stepsize. Star: best stepsize. Dashed: largest stable stepsize. "
    "Squares: simulation with 95 % intervals.",
    "What contributes to the network MSE. Bars left of zero reduce it.",
    "Line: theory. Dots and band: simulated mean with 95 % interval.",
    "At the current stepsize. Squares: simulation.",
    "Solid, squares: all participants share fewer parameters. Dashed, triangles: fewer participants share all "
    "parameters.",
)
_TOP = 6.0  # dB; errors above it do not stretch the axis


# Where the glyphs of Bokeh find their numbers in the columns of a source.
_PLACES = {
    "line": {"x": "x", "y": "y"},
    "scatter": {"x": "x", "y": "y"},
    "segment": {"x0": "x", "y0": "low", "x1": "x", "y1": "high"},
    "varea": {"x": "x", "y1": "low", "y2": "high"},
}
# What pictures are made of, for each side: the name of the marks, the glyph that draws them, and its look.
_Glyph = tuple[str, str, dict[str, Any]]
_LINE: _Glyph = ("line", "line", {"line_width": 2.5})
_DOTS: _Glyph = ("line", "scatter", {"size": 6})
_CIRCLE: _Glyph = ("present", "scatter", {"size": 15, "fill_alpha": 0.25, "line_width": 2.5})
_STAR: _Glyph = ("best", "scatter", {"size": 11, "marker": "star", "line_width": 1})
_SQUARES: tuple[_Glyph, ...] = (
    ("points", "segment", {"line_width": 2, "alpha": 0.7}),
    ("points", "scatter", {"size": 6, "marker": "square", "alpha": 0.9}),
)
_BAND: tuple[_Glyph, ...] = (
    ("points", "varea", {"fill_alpha": 0.25, "level": "underlay"}),
    ("points", "scatter", {"size": 3, "alpha": 0.8}),
)
_FEWER: tuple[_Glyph, ...] = (
    ("fewer", "line", {"line_width": 1.5, "line_dash": "dashed", "alpha": 0.8}),
    ("fewer", "scatter", {"size": 5, "marker": "triangle", "alpha": 0.8}),
    ("fewer_points", "segment", {"line_width": 2, "alpha": 0.7}),
    ("fewer_points", "scatter", {"size": 7, "marker": "triangle", "alpha": 0.9}),
)


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
        self.stepsize: _Picture = _Picture(
            "stepsize μ", sides, (*_SQUARES, _LINE, _CIRCLE, _STAR), limits=True
        )
        self.shared: _Picture = _Picture("shared parameters M", sides, (*_SQUARES, _LINE, _DOTS, _CIRCLE))
        self.curve: _Picture = _Picture("iteration", sides, (*_BAND, _LINE), x_log=True)
        glyphs = (*_SQUARES, *_FEWER, _LINE, _DOTS, _CIRCLE)
        self.traffic: _Picture = _Picture("values sent per iteration", sides, glyphs)
        self.terms: _Terms = _Terms(sides)
        self.paper: PaperFigure = PaperFigure()
        self.recolour("light")

    def figures(self) -> list[Any]:
        """Return the figures in the order in which the page shows them."""
        return [picture.figure for picture in (self.paper, *self._shown())]

    def _shown(self) -> "tuple[_Picture | _Terms, ...]":
        return self.stepsize, self.terms, self.curve, self.shared, self.traffic

    def recolour(self, scheme: str) -> None:
        """Change to ``"light"`` or ``"dark"``."""
        for picture in (self.paper, *self._shown()):
            apply_ink(picture.figure, INK[scheme])
            # A new size makes a new canvas; the old one would keep a hairline of the old background at its edges.
            picture.figure.height = HEIGHT + (scheme == "dark")
            picture.recolour(scheme)

    def show(self, sides: Mapping[str, Answers], metric: str, figure: str = "") -> tuple[ChartText, ...]:
        """Draw the answers about every side, and a figure of the paper; return the words around the charts."""
        title = METRIC_TITLES[metric]
        capital = sentence_case(title)
        self.stepsize.figure.title.text = f"{capital} by stepsize"
        self.shared.figure.title.text = f"{capital} by sharing"
        self.curve.figure.title.text = f"{capital} over time"
        self.traffic.figure.title.text = f"Traffic and {title}"
        for name in self._sides:
            self._show_side(name, sides.get(name, _NOTHING), metric)
        for picture in (self.stepsize, self.shared, self.curve, self.traffic):
            picture.fit()
            picture.tell_apart(len(sides) > 1)
        self.terms.show({name: sides[name].theory.point for name in self._sides if name in sides})
        texts = [self.paper.show(figure, sides)]
        for chart, caption in zip(self._shown(), _CAPTIONS, strict=True):
            drawn = {name: words for name in sides if (words := chart.describe(name))}
            can_simulate = isinstance(chart, _Picture)
            gaps = tuple(
                (name, sides[name].reason_for_gap(metric, can_simulate))
                for name in sides
                if name not in drawn
            )
            summary = " ".join(f"{name}: {words}." for name, words in drawn.items())
            texts.append(ChartText(caption, summary, gaps, not drawn))
        return tuple(texts)

    def _show_side(self, name: str, answers: Answers, metric: str) -> None:
        scenario, theory, simulation = answers.scenario, answers.theory, answers.simulation
        now, best = theory.point, None if theory.best is None else theory.best.point
        full = scenario.replace(num_shared=scenario.dimension)
        sent = {design.count: design.values_sent for design in theory.shared}

        def marks(places: Iterable[tuple[float | None, Point | Dot | None]]) -> list[Mark]:
            return [_mark(x, found, metric) for x, found in places if x is not None and found is not None]

        self.stepsize.show(
            name,
            line=marks((point.stepsize, point) for point in theory.stepsizes),
            points=marks(simulation.stepsizes),
            present=marks([] if now is None else [(now.stepsize, now)]),
            best=marks([] if best is None else [(best.stepsize, best)]),
        )
        self.stepsize.show_limit(name, theory.limit)
        self.shared.show(
            name,
            line=marks((design.count, design.point) for design in theory.shared),
            points=marks(simulation.shared),
            present=marks([(scenario.num_shared, now)]),
        )
        self.curve.show(name, line=_along(theory.curve, metric)[1:], points=_along(simulation.curve, metric))
        self.traffic.show(
            name,
            line=marks((design.values_sent, design.point) for design in theory.shared),
            points=marks((values_sent(scenario.replace(num_shared=m)), dot) for m, dot in simulation.shared),
            present=marks([(sent.get(scenario.num_shared), now)]),
            fewer=marks((design.values_sent, design.point) for design in theory.participants),
            fewer_points=marks(
                (values_sent(full.replace(num_participants=n)), dot) for n, dot in simulation.participants
            ),
        )


_NOTHING = Answers(Scenario(num_clients=1, dimension=1))  # of a side that is closed


class _Picture:
    """One figure: per side a line of theory, simulated points with intervals, and the current setting.

    `limits` adds a line at the largest stable stepsize, and keeps the steep ends of curves from stretching the axis.
    """

    def __init__(
        self, x_label: str, sides: tuple[str, ...], glyphs: tuple[_Glyph, ...], *, limits: bool = False,
        x_log: bool = False,
    ) -> None:  # fmt: skip
        self.figure: Any = make_figure("", x_label, ORDINATE, x_log)
        self._x_log = x_log
        self._glyphs: dict[str, list[Any]] = {side: [] for side in sides}
        self._mains: dict[str, Any] = {}
        self._sources: dict[tuple[str, str], ColumnDataSource] = {}
        self._spans: dict[str, Any] = {}
        for side in sides:
            for key, kind, look in glyphs:
                source = self._sources.setdefault((side, key), ColumnDataSource(self._columns(key, [])))
                drawn = getattr(self.figure, kind)(source=source, **_PLACES[kind], **look)
                self._glyphs[side].append(drawn)
                if (key, kind) == ("line", "line"):
                    self._mains[side] = drawn
                    self._add_tip(drawn, f"{side}, theory", "", "mouse" if _DOTS in glyphs else "vline")
                if (key, kind) == ("points", "scatter"):
                    self._add_tip(
                        drawn, f"{side}, simulated, @trials trials", " (95 %: @low{0.00} … @high{0.00})"
                    )
            if limits:
                self._spans[side] = Span(
                    dimension="height", line_dash="dashed", line_width=1.5, visible=False
                )
                self.figure.add_layout(self._spans[side])

    def _add_tip(self, drawn: Any, title: str, interval: str, mode: Any = "mouse") -> None:
        x_label = self.figure.xaxis[0].axis_label
        tips = [("", title), (x_label, "@x{0.[0000]}"), ("dB", "@y{0.00}" + interval)]
        self.figure.add_tools(HoverTool(renderers=[drawn], tooltips=tips, mode=mode))

    def recolour(self, scheme: str) -> None:
        for side, glyphs in self._glyphs.items():
            colour = SIDE_COLOURS[scheme][side]
            for renderer in glyphs:
                for name in ("line_color", "fill_color"):
                    if hasattr(renderer.glyph, name):
                        setattr(renderer.glyph, name, colour)
        for side, span in self._spans.items():
            span.line_color = SIDE_COLOURS[scheme][side]

    def tell_apart(self, two: bool) -> None:
        """Draw the first of two sides wider, so that it is seen below the other where both coincide."""
        for side, main in self._mains.items():
            width = 2.5 if side != "A" or not two else 6.5
            main.glyph.update(line_width=width, line_alpha=1.0 if width < 5 else 0.5)

    def describe(self, side: str) -> str:
        """Return what a side's curve looks like, in words; nothing if it is empty."""
        pairs = self._pairs(side, "line") or self._pairs(side, "points")
        if not pairs:
            return ""
        (x0, y0), (x1, y1), (x, y) = pairs[0], pairs[-1], min(pairs, key=lambda pair: pair[1])
        label = self.figure.xaxis[0].axis_label
        ends = f"{fixed(y0, 1)} dB at {label} {x0:.3g}, {fixed(y1, 1)} dB at {x1:.3g}"
        return f"{ends}, lowest {fixed(y, 1)} dB at {x:.3g}"

    def show(self, side: str, **marks: list[Mark]) -> None:
        """Draw marks, by the name that the glyphs know them by; what has no finite error is left out."""
        for key, every in marks.items():
            source, data = self._sources[side, key], self._columns(key, every)
            if source.data != data:
                source.data = data

    def show_limit(self, side: str, limit: float | None) -> None:
        """Draw the largest stable stepsize, if there is one."""
        span = self._spans[side]
        span.visible = limit is not None and math.isfinite(limit)
        if span.visible:
            span.location = limit

    def _columns(self, key: str, marks: list[Mark]) -> dict[str, list[Any]]:
        shown = [mark for mark in marks if _finite(mark.y)]
        data: dict[str, list[Any]] = {
            "x": [float(max(mark.x, 1) if self._x_log else mark.x) for mark in shown],
            "y": [to_decibels(mark.y) for mark in shown],
        }
        if key.endswith("points"):
            data["low"] = [to_decibels(mark.low if _finite(mark.low) else mark.y / 4) for mark in shown]
            data["high"] = [to_decibels(mark.high if _finite(mark.high) else mark.y) for mark in shown]
            data["trials"] = [mark.trials for mark in shown]
        return data

    def _pairs(self, *where: str) -> list[tuple[float, float]]:
        """Return the points of one side and name, or of all."""
        return [
            pair
            for place, source in self._sources.items()
            if set(where) <= set(place)
            for pair in zip(source.data["x"], source.data["y"], strict=True)
        ]

    def fit(self) -> None:
        """Choose axes that show everything except the steep end of a curve."""
        points = self._pairs()
        limits = [span.location for span in self._spans.values() if span.visible]
        if not points:
            return
        heights = sorted(y for _, y in points)
        low = heights[0]
        usual = heights[int(0.85 * (len(heights) - 1))] if self._spans else heights[-1]
        high = min(max([usual, low + 3, *(y for _, y in self._pairs("present"))]), max(_TOP, low + 3))
        margin = 0.06 * (high - low)
        move_axis(self.figure.y_range, low - margin, high + margin)
        rights = [x for x, _ in points] + limits
        if self._x_log:
            move_axis(self.figure.x_range, 1, max(rights) * 1.1)
        else:
            left = 0 if self._spans or min(rights) > 0 else min(rights)
            right = max(limits or rights)
            move_axis(self.figure.x_range, left, right * 1.06 if right > 0 else 1)


class _Terms:
    """The terms of the network MSE, stacked in one bar per side."""

    def __init__(self, sides: tuple[str, ...]) -> None:
        self.figure: Any = make_figure("Sources of error", "network MSE (linear)", "", False,
                              y_range=list(reversed(sides)))  # fmt: skip
        self.figure.ygrid.visible = False
        self._known: dict[str, Point] = {}
        empty: dict[str, list[Any]] = {"side": [], "left": [], "right": [], "share": []}
        self._sources = {term: ColumnDataSource(empty) for term in TERM_COLOURS}
        for term, source in self._sources.items():
            bars = self.figure.hbar(y="side", left="left", right="right", height=0.55, source=source,
                                    color=TERM_COLOURS[term], legend_label=TERM_TITLES[term])  # fmt: skip
            tips = [("", f"@side: {TERM_TITLES[term]}"), ("", "@share")]
            self.figure.add_tools(HoverTool(renderers=[bars], tooltips=tips))
        legend = self.figure.legend[0]
        self.figure.add_layout(legend, "below")
        legend.border_line_color = None
        legend.label_text_font = FONT
        legend.label_text_font_size, legend.glyph_width = "12px", 14
        legend.padding, legend.spacing, legend.margin = 2, 0, 0

    def recolour(self, scheme: str) -> None:
        legend = self.figure.legend[0]
        legend.label_text_color = INK[scheme]["text"]
        legend.background_fill_color = INK[scheme]["paper"]

    def describe(self, side: str) -> str:
        """Return a side's terms in words; nothing if there are none."""
        point = self._known.get(side)
        if point is None:
            return ""
        return ", ".join(
            f"{TERM_TITLES[term]} {100 * value / point.network_mse:.0f} %"
            for term, value in point.terms.items()
            if value
        )

    def show(self, points: Mapping[str, Point | None]) -> None:
        """Draw the terms of every side with a finite steady state."""
        known = {side: point for side, point in points.items() if point and _finite(point.network_mse)}
        self._known = known
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
                data["share"].append(f"{value:.3g}, {100 * value / total:.0f} %")
                ends[side] += max(value, 0.0)
            if source.data != data:
                source.data = data
        if not known:
            return
        least = min([0.0, *(point.terms[term] for point in known.values() for term in TERM_COLOURS)])
        move_axis(self.figure.x_range, 1.05 * least, 1.05 * max([*ends.values(), 1e-9]))
        used = {term for term, source in self._sources.items() if source.data["side"]}
        for item, term in zip(self.figure.legend[0].items, self._sources, strict=True):
            item.visible = term in used


def _mark(x: float, found: Point | Dot, metric: str) -> Mark:
    if isinstance(found, Point):
        return Mark(x, found.value(metric))
    interval = found.metrics[metric]
    return Mark(x, interval.mean, interval.low, interval.high, found.trials)


def _along(curve: Curve | None, metric: str) -> list[Mark]:
    """Return a learning curve as marks."""
    if curve is None:
        return []
    unknown = (math.nan,) * len(curve.iterations)
    ends = curve.low.get(metric, unknown), curve.high.get(metric, unknown)
    numbers = zip(curve.iterations, curve.values[metric], *ends, strict=True)
    return [Mark(*row, curve.trials) for row in numbers]


def _finite(value: float) -> bool:
    return math.isfinite(value) and value > 0
