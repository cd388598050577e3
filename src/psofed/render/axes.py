"""Charts drawn into Matplotlib axes: curves, and rows with intervals."""

import itertools
import math
import re
import textwrap
from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter
from numpy.typing import NDArray

from psofed.render.charts import Chart, RowChart, Scale, Series, Span
from psofed.render.numbers import fixed, shortened
from psofed.render.style import COLOURS

_SYMBOL = re.compile(r"(?<!\w)(\w)_(\w)(²?)(?!\w)")
# Marks at the upper edge: of what diverged, and of what lies above the picture. No series has them.
_LOST, _BEYOND = r"$\infty$", r"$\uparrow$"
_LETTER = 0.068  # inches that a letter takes, on average
_MEDIAN = "o"  # in legends; hollow


def draw_any(axes: Axes, chart: Chart | RowChart, space: tuple[float, float] = (6.0, 4.0)) -> None:
    """Draw a chart of any kind without its legend; `space`, in inches, is what its words are broken to."""
    if isinstance(chart, RowChart):
        longest = max(18, int(0.7 * space[0] / _LETTER))  # letters of a row's name, which stands beside the axes
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
    for series in chart.series:
        _draw_one(axes, series, top)
    for span in chart.spans:
        _draw_span(axes, span)
    _scale(axes, chart.x, chart.y, space)


def _draw_one(axes: Axes, series: Series, top: float) -> None:
    colour, x = _colour(series.colour), series.x
    flags = _flags(series, top)
    hollow = flags[_MEDIAN]
    y = np.where(np.isfinite(series.y) & ~(series.y > top), series.y, np.nan)
    if series.low is not None and series.high is not None:
        # An interval without an end reaches beyond the picture.
        reach = 50.0 + np.nanmax(np.abs(np.append(y, 0.0)))
        low, high = (np.where(np.isnan(y), np.nan, np.clip(end, -reach, reach)) for end in (series.low, series.high))
        if series.line:
            axes.fill_between(x, low, high, color=colour, alpha=0.22, linewidth=0)
        else:
            axes.vlines(x, low, high, color=colour, lw=1.4)
    axes.plot(
        x, y, color=colour, ls=series.line or "none", lw=series.width, marker=series.marker or None, ms=series.size,
        markevery=list(np.flatnonzero(~hollow)) if series.marker else None, mfc="none" if series.hollow else None,
        label=with_symbols(series.label) or None,
    )  # fmt: skip
    if hollow.any():
        marker = series.marker or "o"
        axes.plot(x[hollow], y[hollow], ls="none", marker=marker, color=colour, mfc="white", zorder=3)
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


def _draw_span(axes: Axes, span: Span) -> None:
    colour, label = _colour(span.colour), with_symbols(span.label) or None
    if span.low == span.high:
        draw = axes.axvline if span.axis == "x" else axes.axhline
        draw(span.low, color=colour, lw=1.2, zorder=1, label=label)
    else:
        alpha = None if isinstance(span.colour, str) else 0.2
        shade = axes.axvspan if span.axis == "x" else axes.axhspan
        shade(span.low, span.high, color=colour, lw=0, alpha=alpha, zorder=0.5, label=label)


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
            [place for place, _ in x.ticks], names, rotation=0 if straight else 35, ha="center" if straight else "right"
        )
    if x.whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(broken(x.label, space[0]))
    axes.set_ylabel(broken(y.label, space[1]))


def _draw_rows(axes: Axes, chart: RowChart, space: tuple[float, float], longest: int) -> None:
    """Draw every value with its interval: an arrow and the number where it lies off the axis."""
    values, places = chart.values, np.arange(len(chart.names))
    axes.axvline(0.0, color="black", lw=0.9)
    shown = np.isfinite(chart.low) & np.isfinite(values)
    axes.hlines(places[shown], chart.low[shown], chart.high[shown], color=COLOURS[0], lw=2.2, alpha=0.55, zorder=1)
    left, right = chart.x.limits or (-math.inf, math.inf)
    for at, value in enumerate(values.tolist()):
        is_low, is_inside = value < left, left <= value <= right
        marker, size = ("*", 10.0) if at in chart.starred else ("o", 5.5)
        if math.isinf(value):
            axes.annotate("diverged", (0.02, at), xycoords=("axes fraction", "data"), va="center", color=COLOURS[0])
        elif is_inside:
            axes.plot([value], [at], marker=marker, ms=size, color=COLOURS[0], zorder=3)
        elif math.isfinite(value):
            edge, marker, side = (left, "<", "left") if is_low else (right, ">", "right")
            axes.plot([edge], [at], marker=marker, ms=size, color=COLOURS[0], zorder=3, clip_on=False)
            end = float((chart.high if is_low else chart.low)[at])  # the number stands inside of the interval
            end = float(np.clip(end if math.isfinite(end) else value, left, right))
            number = fixed(value, 2 if abs(value) < 10 else int(abs(value) < 100))
            axes.annotate(
                number, (end, at), xytext=(6 if is_low else -6, 0), textcoords="offset points",
                ha=side, va="center", fontsize=8,
            )  # fmt: skip
    axes.set_yticks(places, [with_symbols(shortened(name, longest)) for name in chart.names])
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    _scale(axes, chart.x, Scale(), space)


def legend_of(every: Iterable[Axes], charts: Iterable[Chart | RowChart]) -> list[Any]:
    """Return an entry for each label in some axes, and for each mark that occurs in their charts."""
    handles: dict[str, Any] = {}
    for axes in every:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    flags = [_flags(series, _top(one)) for one in charts if isinstance(one, Chart) for series in one.series]
    words = {_LOST: "some trials diverged", _BEYOND: "above the picture", _MEDIAN: "median, heavy tails"}
    for marker, text in words.items():
        if any(marks[marker].any() for marks in flags):
            fill = "white" if marker == _MEDIAN else "0.3"
            handles[text] = Line2D([], [], ls="none", marker=marker, color="0.3", mfc=fill, mew=1.5, label=text)
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
