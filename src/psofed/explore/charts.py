"""The pictures: Bokeh figures whose data follow what theory and simulation say. The same colour is the same thing."""

import math
from collections.abc import Mapping
from typing import Any

from bokeh.models import ColumnDataSource, CustomJSTickFormatter, HoverTool, Range1d
from bokeh.models.annotations import Span
from bokeh.plotting import figure

from psofed.results import METRIC_TITLES

SIDE_COLOURS = {"light": {"A": "#0072B2", "B": "#D55E00"}, "dark": {"A": "#56B4E9", "B": "#FF9D5C"}}
TERM_COLOURS = {
    "noise": "#8C96A3",
    "data": "#56B4E9",
    "attack": "#E0523E",
    "drift": "#E69F00",
    "targets": "#CC79A7",
}
TERM_TITLES = {
    "noise": "noise itself",
    "data": "noise, learned",
    "attack": "attack",
    "drift": "drift",
    "targets": "own targets",
}
_INK = {
    "light": {"text": "#3A4350", "grid": "#E6E9EE", "axis": "#9AA4B2", "paper": "#FFFFFF"},
    "dark": {"text": "#C7D0DB", "grid": "#2B333F", "axis": "#667080", "paper": "#171C24"},
}
CAPTIONS = (
    "Large circle: now. Star: best stepsize. Dashed: limit of stability. Squares: simulated, with 95 % intervals.",
    "Of the network MSE. A part left of zero makes it smaller.",
    "Line: theory. Dots in a band: simulated mean and its 95 % interval.",
    "At the current stepsize. Squares: simulated.",
    "Solid: all participants share fewer entries. Dashed: fewer participants share all of them.",
)
_TOOLS = "pan,wheel_zoom,box_zoom,reset,save"
_FONT = "system-ui, sans-serif"
_HEIGHT = 270  # pixels
_TOP = 6.0  # dB above zero: beyond, a curve is as good as diverging
_MINUS_FORMATTER = "return tick.toLocaleString('en', {maximumSignificantDigits: 4}).replace('-', '−')"


class Charts:
    """All pictures of the page, for both sides.

    Parameters
    ----------
    sides : tuple of str
        ``("A", "B")``.
    """

    def __init__(self, sides: tuple[str, ...] = ("A", "B")) -> None:
        self._sides = sides
        self._scheme = "light"
        self.stepsize: _Picture = _Picture("MSE by stepsize", "stepsize μ", sides, marks=True)
        self.shared: _Picture = _Picture("MSE by shared entries", "shared entries M", sides, dots=True)
        self.curve: _Picture = _Picture("Learning curve", "iteration", sides, x_log=True)
        self.traffic: _Picture = _Picture("Traffic against error", "numbers exchanged per iteration", sides, dots=True,
                                second=True)  # fmt: skip
        self.terms: _Terms = _Terms(sides)
        self._pictures = (self.stepsize, self.shared, self.curve, self.traffic)
        self.recolour("light")

    def figures(self) -> list[Any]:
        """Return the figures in the order in which they are shown."""
        return [
            self.stepsize.figure,
            self.terms.figure,
            self.curve.figure,
            self.shared.figure,
            self.traffic.figure,
        ]

    def recolour(self, scheme: str) -> None:
        """Change to ``"light"`` or ``"dark"``."""
        self._scheme = scheme
        for picture in (*self._pictures, self.terms):
            _ink(picture.figure, _INK[scheme])
            # Another size makes a new canvas; on the old one a hairline of the old paper would stay at its edges.
            picture.figure.height = _HEIGHT + (scheme == "dark")
            picture.recolour(scheme)

    def show(self, sides: Mapping[str, Mapping[str, Any]], metric: str) -> None:
        """Draw what is known of every side.

        Parameters
        ----------
        sides : mapping
            By side: ``scenario``, ``theory`` and ``simulation``, the steps added up.
        metric : str
        """
        title = METRIC_TITLES[metric]
        title = f"{title[0].upper()}{title[1:]}"
        self.stepsize.figure.title.text = f"{title} by stepsize"
        self.shared.figure.title.text = f"{title} by shared entries"
        self.curve.figure.title.text = f"{title} over time"
        self.traffic.figure.title.text = f"Traffic against {METRIC_TITLES[metric]}"
        for side in self._sides:
            content = sides.get(side)
            theory = content["theory"] if content else {}
            simulation = content["simulation"] if content else {}
            self.stepsize.line(side, theory.get("stepsizes", ()), "stepsize", metric)
            self.stepsize.points(side, simulation.get("stepsizes", ()), "stepsize", metric)
            self.shared.line(side, theory.get("shared", ()), "num_shared", metric)
            self.shared.points(side, simulation.get("shared", ()), "num_shared", metric)
            self.curve.line(side, _rows_of(theory.get("curve"))[1:], "iteration", metric)
            self.curve.points(side, _rows_of(simulation.get("curve")), "iteration", metric)
            self.traffic.line(side, theory.get("shared", ()), "numbers", metric, label="num_shared")
            self.traffic.second_line(side, theory.get("participants", ()), "numbers", metric)
            present = theory.get("point")
            scenario = content["scenario"] if content else None
            self.stepsize.present(side, present, "stepsize", metric)
            row = present and scenario and {**present, "num_shared": scenario.num_shared}
            self.shared.present(side, row, "num_shared", metric)
            numbers = next((r["numbers"] for r in theory.get("shared", ())
                            if scenario and r["num_shared"] == scenario.num_shared), None)  # fmt: skip
            self.traffic.present(
                side, present and numbers and {**present, "numbers": numbers}, "numbers", metric
            )
            self.stepsize.mark(side, theory.get("limit"), theory.get("best"), metric)
        for picture in self._pictures:
            picture.fit()
        self.terms.show({side: sides[side]["theory"].get("point") for side in self._sides if side in sides})


class _Picture:
    """One figure with, for each side, a line of theory, simulated points with bands, and the present setting."""

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
        line = make("line", "x", "y", "label")
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

    def line(self, side: str, rows: Any, x: str, metric: str, label: str = "") -> None:
        pairs = _pairs(rows, x, metric)
        labels = [str(row.get(label, "")) for row in rows if _finite(row[metric])]
        self._set(side, "line", {"x": [p[0] for p in pairs], "y": [p[1] for p in pairs], "label": labels})

    def second_line(self, side: str, rows: Any, x: str, metric: str) -> None:
        pairs = _pairs(rows, x, metric)
        self._set(side, "second", {"x": [p[0] for p in pairs], "y": [p[1] for p in pairs]})

    def points(self, side: str, rows: Any, x: str, metric: str) -> None:
        rows = [row for row in rows if _finite(row[metric])]
        data: dict[str, list[Any]] = {
            "x": [max(row[x], 1) if self._x_log else row[x] for row in rows],
            "y": [_db(row[metric]) for row in rows],
            "low": [_db(_or(row.get(f"{metric}_low"), row[metric] / 4)) for row in rows],
            "high": [_db(_or(row.get(f"{metric}_high"), row[metric])) for row in rows],
            "trials": [row.get("trials", "") for row in rows],
        }
        self._set(side, "points", data)

    def present(self, side: str, row: Any, x: str, metric: str) -> None:
        shown = bool(row) and _finite(row[metric])
        self._set(side, "present", {"x": [row[x]] if shown else [], "y": [_db(row[metric])] if shown else []})

    def mark(self, side: str, limit: float | None, best: Mapping[str, float] | None, metric: str) -> None:
        span = self._spans[side]
        span.visible = limit is not None and math.isfinite(limit)
        if span.visible:
            span.location = limit
        shown = best is not None and _finite(best[metric])
        self._set(side, "best", {"x": [best["stepsize"]] if best and shown else [],
                                 "y": [_db(best[metric])] if best and shown else []})  # fmt: skip

    def _set(self, side: str, key: str, data: dict[str, list[Any]]) -> None:
        source = self._sources[side, key]
        if source.data != data:
            source.data = data
        self._seen[side][key] = list(zip(data["x"], data["y"], strict=True))

    def fit(self) -> None:
        """Choose axes that show all of it but the steep end of a curve."""
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
    """Where the network MSE comes from: one bar for each side, its terms stacked."""

    def __init__(self, sides: tuple[str, ...]) -> None:
        self.figure: Any = _figure("Where the error comes from", "network MSE, linear", "", False,
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
        legend.orientation, legend.ncols = "horizontal", 5
        legend.border_line_color = None
        legend.label_text_font = _FONT
        legend.label_text_font_size, legend.glyph_width = "12px", 14
        legend.padding, legend.spacing, legend.margin = 2, 8, 0

    def recolour(self, scheme: str) -> None:
        legend = self.figure.legend[0]
        legend.label_text_color = _INK[scheme]["text"]
        legend.background_fill_color = _INK[scheme]["paper"]

    def show(self, points: Mapping[str, Mapping[str, float] | None]) -> None:
        """Draw the terms of every side whose steady state is known and finite."""
        known = {side: point for side, point in points.items() if point and _finite(point["network_mse"])}
        self.figure.y_range.factors = list(reversed(list(points))) or ["A"]
        ends = dict.fromkeys(known, 0.0)
        for term, source in self._sources.items():
            data: dict[str, list[Any]] = {"side": [], "left": [], "right": [], "share": []}
            for side, point in known.items():
                value, total = point[term], point["network_mse"]
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
        least = min([0.0, *(point[term] for point in known.values() for term in TERM_COLOURS)])
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


def _rows_of(columns: Mapping[str, list[Any]] | None) -> list[dict[str, Any]]:
    """Columns as rows, the trials of all in each."""
    if not columns:
        return []
    lists = {name: values for name, values in columns.items() if isinstance(values, list)}
    rest = {name: value for name, value in columns.items() if not isinstance(value, list)}
    return [{**dict(zip(lists, row, strict=True)), **rest} for row in zip(*lists.values(), strict=True)]


def _pairs(rows: Any, x: str, metric: str) -> list[tuple[float, float]]:
    return [(float(row[x]), _db(row[metric])) for row in rows if _finite(row[metric])]


def _move(axis: Any, start: float, end: float) -> None:
    if (axis.start, axis.end) != (start, end):
        axis.update(start=start, end=end, reset_start=start, reset_end=end)


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _or(value: Any, default: float) -> float:
    return float(value) if _finite(value) else default


def _db(value: float) -> float:
    return 10 * math.log10(value)
