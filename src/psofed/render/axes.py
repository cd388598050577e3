"""Charts drawn into Matplotlib axes: curves, rows with intervals, and heat maps."""

import itertools
import math
import re
import textwrap
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, NullFormatter
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.render.charts import Chart, RowChart, Rows, Scale, Series, Span
from psofed.render.numbers import fixed, shortened
from psofed.render.style import COLOURS

_FLAG = COLOURS[1]
_SYMBOL = re.compile(r"(?<!\w)(\w)_(\w)(²?)(?!\w)")
# Marks at the upper edge: of what diverged, and of what lies above the picture. No series has them.
_LOST, _BEYOND = r"$\infty$", r"$\uparrow$"
_LETTER = 0.068  # inches that a letter takes, on average
_MEDIAN = "o"  # in legends; hollow


def draw_any(axes: Axes, chart: Chart | RowChart, space: tuple[float, float] = (6.0, 4.0)) -> None:
    """Draw a chart of any kind without its legend; `space`, in inches, is what its words are broken to."""
    if isinstance(chart, RowChart):
        longest = max(
            18, int(0.7 * space[0] / _LETTER)
        )  # letters of a row's name, which stands beside the axes
        space = 0.7 * space[0], space[1]
        _draw_rows(axes, chart, space, longest)
    else:
        _draw_series(axes, chart, space)
    if chart.title:
        axes.set_title(broken(chart.title, space[0]))


def broken(text: str, inches: float) -> str:
    """Break text into lines that fit, and set its symbols."""
    longest = max(8, int(inches / _LETTER))
    paragraphs = re.sub(r" (?=[=%])|(?<==) ", "\N{NO-BREAK SPACE}", text).split("\n")
    lines = (textwrap.wrap(line, longest, break_on_hyphens=False) for line in paragraphs)
    return with_symbols("\n".join(itertools.chain.from_iterable(lines)))


def _draw_series(axes: Axes, chart: Chart, space: tuple[float, float]) -> None:
    top = _top(chart)
    for span in chart.spans:
        _draw_span(axes, span)
    for series in chart.series:
        _draw_one(axes, series, top)
    _scale(axes, chart.x, chart.y, space)


def _draw_one(axes: Axes, series: Series, top: float) -> None:
    colour, x = _colour(series.colour), series.x
    flags = _flags(series, top)
    hollow = flags[_MEDIAN]
    y = np.where(np.isfinite(series.y) & ~(series.y > top), series.y, np.nan)
    if series.low is not None and series.high is not None:
        # An interval without an end reaches beyond the picture.
        reach = 50.0 + np.nanmax(np.abs(np.append(y, 0.0)))
        low, high = (np.where(np.isnan(y), np.nan, _clipped(end, reach)) for end in (series.low, series.high))
        if series.line:
            axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0)
        else:
            axes.vlines(x, low, high, color=colour, lw=1.4)
    axes.plot(
        x, y, color=colour, ls=series.line or "none", lw=series.width, marker=series.marker or None, ms=series.size,
        markevery=list(np.flatnonzero(~hollow)) if series.marker else None, mfc="none" if series.hollow else None,
    )  # fmt: skip
    if hollow.any():
        axes.plot(
            x[hollow], y[hollow], ls="none", marker=series.marker or "o", color=colour, mfc="white", zorder=3
        )
    for marker in (_LOST, _BEYOND):
        at = flags[marker]
        if at.any():
            axes.plot(x[at], np.full(int(at.sum()), 0.985), ls="none", marker=marker, color=colour, ms=10, mew=0.6,
                      transform=axes.get_xaxis_transform(), clip_on=False, zorder=4)  # fmt: skip


def _top(chart: Chart) -> float:
    return math.inf if chart.y.limits is None else chart.y.limits[1]


def _flags(series: Series, top: float) -> dict[str, NDArray[np.bool_]]:
    """Return which points are marked, by the mark: where trials diverged, above the picture, medians inside of it."""
    none = np.zeros(series.x.size, bool)
    lost, beyond = none if series.is_lost is None else series.is_lost, series.y > top
    medians = none if series.is_median is None else series.is_median
    return {_LOST: lost, _BEYOND: beyond & ~lost, _MEDIAN: medians & np.isfinite(series.y) & ~beyond}


def _clipped(values: FloatArray, reach: float) -> FloatArray:
    return np.asarray(np.clip(values, -reach, reach), dtype=np.float64)


def _draw_span(axes: Axes, span: Span) -> None:
    colour = _colour(span.colour)
    if span.low == span.high:
        (axes.axvline if span.axis == "x" else axes.axhline)(span.low, color=colour, lw=1.2, zorder=1)
    else:
        shade = axes.axvspan if span.axis == "x" else axes.axhspan
        shade(
            span.low,
            span.high,
            color=colour,
            lw=0,
            alpha=None if isinstance(span.colour, str) else 0.2,
            zorder=0.5,
        )


def _scale(axes: Axes, x: Scale, y: Scale, space: tuple[float, float]) -> None:
    for scale, place, name in ((x, axes.xaxis, "x"), (y, axes.yaxis, "y")):
        if scale.log:
            axes.set(**{f"{name}scale": "log"})
            place.set_major_formatter(lambda value, _: f"{value:,g}")
            place.set_minor_formatter(NullFormatter())
    if y.limits is not None:
        axes.set_ylim(*y.limits)
    if x.limits is not None:
        axes.set_xlim(*x.limits)
    if x.ticks is not None:
        names = [with_symbols(name) for _, name in x.ticks]
        straight = sum(map(len, names)) * 0.075 + 0.1 * len(names) < space[0]
        axes.set_xticks(
            [place for place, _ in x.ticks],
            names,
            rotation=0 if straight else 35,
            ha="center" if straight else "right",
        )
    if x.whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(broken(x.label, space[0]))
    axes.set_ylabel(broken(y.label, space[1]))


def _draw_rows(axes: Axes, chart: RowChart, space: tuple[float, float], longest: int) -> None:
    places = range(len(chart.names))
    if chart.zero:
        axes.axvline(0.0, color="black", lw=0.9)
    if chart.joined:
        first, second = chart.rows[:2]
        for at in places:
            colour = _FLAG if at in chart.flagged else "0.6"
            axes.plot([first.values[at], second.values[at]], [at, at], color=colour, lw=1.6, zorder=1)
    for at, rows in enumerate(chart.rows):
        _draw_row_values(axes, rows, chart.starred, chart.x.limits, 48 * at * chart.joined)
    names = [with_symbols(shortened(name, longest)) for name in chart.names]
    axes.set_yticks(places, names)
    for at, label in enumerate(axes.get_yticklabels()):
        if at in chart.flagged:
            label.set_color(_FLAG)
            label.set_fontweight("bold")
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    _scale(axes, chart.x, Scale(), space)


def _row_style(rows: Rows) -> dict[str, Any]:
    colour = _colour(rows.colour)
    return {
        "marker": rows.marker,
        "color": colour,
        "mfc": "white" if rows.hollow else colour,
        "mec": colour,
        "ms": 5.5,
        "mew": 1.2,
    }


def _draw_row_values(
    axes: Axes, rows: Rows, starred: frozenset[int], limits: tuple[float, float] | None, shift: int
) -> None:
    style = _row_style(rows)
    for at, value in enumerate(rows.values):
        if limits is not None and math.isfinite(value) and not limits[0] <= value <= limits[1]:
            # Beyond the axis: an arrow at its end, with the number, and what is inside of the interval.
            low = bool(value < limits[0])
            axes.plot(
                [limits[not low]], [at], clip_on=False, zorder=3, **(style | {"marker": "<" if low else ">"})
            )
            inner = _draw_interval(axes, rows, at, style["color"])
            end = max(limits[0], min(inner[low], limits[1])) if inner else limits[not low]
            number = f"{rows.label} {fixed(value, 2 if abs(value) < 10 else int(abs(value) < 100))}".strip()
            axes.annotate(
                number, (end, at), xytext=(6 + shift if low else -6 - shift, 0), textcoords="offset points",
                ha="left" if low else "right", va="center", fontsize=8,
            )  # fmt: skip
            continue
        if math.isinf(value):
            axes.annotate(
                "diverged", (0.02, at), xycoords=("axes fraction", "data"), va="center", color=style["color"]
            )
            continue
        _draw_interval(axes, rows, at, style["color"])
        star = {"marker": "*", "ms": 10} if at in starred else {}
        axes.plot([value], [at], ls="none", zorder=3, **(style | star))


def _draw_interval(axes: Axes, rows: Rows, at: int, colour: str) -> tuple[float, float] | None:
    """Draw the interval of a row, if it has one, and return its ends."""
    if rows.low is None or rows.high is None or not math.isfinite(rows.low[at]):
        return None
    ends = (float(rows.low[at]), float(rows.high[at]))
    axes.plot(ends, [at, at], color=colour, lw=2.2, alpha=0.55, solid_capstyle="butt", zorder=1)
    return ends


def legend_of(charts: tuple[Chart | RowChart, ...]) -> list[Any]:
    """Return an entry for each label, and for each mark that occurs."""
    handles: dict[str, Any] = {
        rows.label: Line2D([], [], **_row_style(rows), ls="none", label=with_symbols(rows.label))
        for chart in charts
        if isinstance(chart, RowChart)
        for rows in chart.rows
        if rows.label
    }
    curves = [chart for chart in charts if isinstance(chart, Chart)]
    for chart in curves:
        for series in chart.series:
            if series.label and series.label not in handles:
                handles[series.label] = Line2D(
                    [], [], color=_colour(series.colour), ls=series.line or "none", lw=series.width,
                    marker=series.marker or None, ms=series.size, label=with_symbols(series.label),
                    mfc="none" if series.hollow else None,
                )  # fmt: skip
        for span in chart.spans:
            if span.label and span.label not in handles:
                colour, label = _colour(span.colour), with_symbols(span.label)
                handles[span.label] = (
                    Line2D([], [], color=colour, lw=1.2, label=label)
                    if span.low == span.high
                    else Patch(
                        color=colour, alpha=None if isinstance(span.colour, str) else 0.2, lw=0, label=label
                    )
                )
    flags = [_flags(series, _top(chart)) for chart in curves for series in chart.series]
    words = {_LOST: "some trials diverged", _BEYOND: "above the picture", _MEDIAN: "median, heavy tails"}
    for marker, text in words.items():
        if any(found[marker].any() for found in flags):
            fill = "white" if marker == _MEDIAN else "0.3"
            handles[text] = Line2D(
                [], [], ls="none", marker=marker, color="0.3", mfc=fill, mew=1.5, label=text
            )
    return list(handles.values())


def with_symbols(text: str) -> str:
    """Set symbols such as σ_B² as formulas; a dollar sign of the text itself would start one."""
    plain = text.replace("$", r"\$")
    return _SYMBOL.sub(lambda m: f"${m[1]}_{{{m[2]}}}{'^2' if m[3] else ''}$", plain)


def _colour(colour: int | float | str) -> Any:
    match colour:
        case int():
            return COLOURS[colour % len(COLOURS)]
        case float():
            return mpl.colormaps["viridis"](colour)
        case _:
            return colour
