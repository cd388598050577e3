"""Charts drawn by Matplotlib, as figures that display themselves in a notebook and are saved byte for byte alike."""

import io
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.files import atomic_path
from psofed.common.types import FloatArray
from psofed.render.charts import AnyChart, Chart, HeatMap, Panels, RowChart, Rows, Scale, Series, Span
from psofed.render.numbers import fixed
from psofed.render.style import (
    COLOURS,
    DOTS_PER_INCH,
    MATPLOTLIB,
    PICTURE_FORMATS,
    check_picture_format,
    check_width,
)

_FLAG = COLOURS[1]
_SYMBOL = re.compile(r"(?<!\w)(\w)_(\w)(²?)(?!\w)")
# Marks at the upper edge: of what diverged, and of what lies above the picture. No series has them.
_LOST, _BEYOND = r"$\infty$", r"$\uparrow$"
_MEDIAN = "o"  # in legends; hollow
_SCREEN = 100  # pixels per inch where a notebook shows a figure


class Figure(MatplotlibFigure):
    """A Matplotlib figure that no window manager knows of, and that a notebook shows without ``%matplotlib``."""

    def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
        width, height = self.get_size_inches()
        return figure_to_png(self), {"width": _SCREEN * width, "height": _SCREEN * height}


def make_figure(width: float, height: float, *, laid_out: bool = True) -> Figure:
    """Return an empty figure (safe in threads, nothing to close).

    Parameters
    ----------
    width, height : float
        In inches.
    laid_out : bool
        Make space for titles and legends automatically, which takes longer than the drawing.
    """
    figure = Figure(figsize=(width, height), layout="constrained" if laid_out else None)
    FigureCanvasAgg(figure)
    return figure


@contextmanager
def styled() -> Iterator[None]:
    """Apply the common style to everything drawn inside the block."""
    with mpl.rc_context(MATPLOTLIB):
        yield


def draw_chart(chart: AnyChart, axes: Axes | None = None, width: str | float | None = None) -> Figure:
    """Draw a chart.

    Parameters
    ----------
    chart : Chart, RowChart, HeatMap or Panels
    axes : Axes, optional
        Draw into these, of a figure of yours, instead of a figure of its own. The picture must have one panel.
    width : str or float, optional
        ``"column"`` or ``"page"`` of a journal, or inches; the height follows.
    """
    if axes is not None:
        return _draw_into(axes, chart, width)
    size = chart.size if width is None else _scaled(chart.size, check_width(width))
    with styled():
        figure = make_figure(*size)
        if isinstance(chart, Panels):
            _draw_panels(figure, chart)
        else:
            _draw_any(figure.add_subplot(), chart)
    return figure


def _scaled(size: tuple[float, float], width: float) -> tuple[float, float]:
    """Return a size of this width, of the same proportions unless the curves need more height."""
    return width, max(size[1] * width / size[0], min(size[1], 2.4))


def _draw_into(axes: Axes, chart: AnyChart, width: str | float | None) -> Figure:
    if width is not None:
        raise InvalidValueError("width", width, "absent where ax is given: the axes have their size")
    if isinstance(chart, Panels):
        [[alone, *others], *rows] = chart.charts
        if others or rows or not isinstance(alone, Chart):
            count = sum(panel is not None for row in chart.charts for panel in row)
            raise InvalidValueError("ax", "one Axes", f"absent: the picture has {count} panels")
        chart = replace(alone, x=replace(alone.x, label=chart.x), y=replace(alone.y, label=chart.y))
    with styled():
        _draw_any(axes, chart)
    figure: Any = axes.get_figure(root=True)
    return figure  # type: ignore[no-any-return]


def finish_axes(axes: Axes, x_label: str, y_label: str) -> None:
    """Label axes that were drawn by hand and give them the common look."""
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)


def figure_to_png(figure: MatplotlibFigure) -> bytes:
    """Return a figure as PNG, at twice the size of a screen."""
    return _picture(figure, ".png")


def figure_to_svg(figure: MatplotlibFigure) -> str:
    """Return a figure as SVG."""
    return _picture(figure, ".svg").decode()


def _picture(figure: MatplotlibFigure, suffix: str) -> bytes:
    """Return the bytes of a picture, the same for the same figure."""
    content = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "psofed", "svg.fonttype": "path"}):
        figure.savefig(content, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=PICTURE_FORMATS[suffix])
    return content.getvalue()


def save_figure(figure: MatplotlibFigure, path: str | Path) -> None:
    """Write a figure, whole or not at all; the same figure gives the same bytes."""
    check_picture_format(Path(path))
    # In memory first: on a full disk some of Matplotlib's writers stumble over their own error.
    content = _picture(figure, Path(path).suffix.lower())
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def _draw_any(axes: Axes, chart: Chart | RowChart | HeatMap) -> None:
    if isinstance(chart, RowChart):
        _draw_rows(axes, chart)
        return
    if isinstance(chart, HeatMap):
        image = _draw_cells(axes, chart)
        axes.figure.colorbar(image, ax=axes, label=chart.unit, shrink=0.7)
        return
    _draw_series(axes, chart)
    handles = _legend_of((chart,))
    if handles:
        axes.legend(handles=handles)


def _draw_series(axes: Axes, chart: Chart) -> None:
    top = _top(chart)
    for span in chart.spans:
        _draw_span(axes, span)
    for series in chart.series:
        _draw_one(axes, series, top)
    _scale(axes, chart.x, chart.y)
    if chart.title:
        axes.set_title(_text(chart.title))


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


def _scale(axes: Axes, x: Scale, y: Scale) -> None:
    for scale, place, name in ((x, axes.xaxis, "x"), (y, axes.yaxis, "y")):
        if scale.log:
            axes.set(**{f"{name}scale": "log"})
            place.set_major_formatter(lambda value, _: f"{value:,g}")
    if y.limits is not None:
        axes.set_ylim(*y.limits)
    if x.limits is not None:
        axes.set_xlim(*x.limits)
    if x.ticks is not None:
        names = [_text(name) for _, name in x.ticks]
        straight = _fits(names, axes.get_figure().get_size_inches()[0] / _columns_of(axes))  # type: ignore[union-attr]
        axes.set_xticks(
            [place for place, _ in x.ticks],
            names,
            rotation=0 if straight else 35,
            ha="center" if straight else "right",
        )
    if x.whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(_text(x.label))
    axes.set_ylabel(_text(y.label))


def _columns_of(axes: Axes) -> int:
    place = axes.get_subplotspec()
    return 1 if place is None else int(place.get_gridspec().ncols)


def _fits(names: list[str], width: float) -> bool:
    return sum(map(len, names)) * 0.075 + 0.1 * len(names) < width


def _draw_rows(axes: Axes, chart: RowChart) -> None:
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
    names = [_text(name) for name in chart.names]
    axes.set_yticks(places, names, fontsize=8 if len(names) > 12 else None)
    for at, label in enumerate(axes.get_yticklabels()):
        if at in chart.flagged:
            label.set_color(_FLAG)
            label.set_fontweight("bold")
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    _scale(axes, chart.x, Scale())
    axes.set_title(_text(chart.title), loc="left")
    handles = [
        Line2D([], [], **_row_style(rows), ls="none", label=_text(rows.label))
        for rows in chart.rows
        if rows.label
    ]
    if handles:
        axes.legend(
            handles=handles,
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=len(handles),
            borderaxespad=0.1,
        )


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


def _draw_cells(axes: Axes, chart: HeatMap) -> Any:
    low, high = chart.limits
    axes.set_facecolor("#e8e8e8")
    axes.grid(visible=False)
    values = np.clip(chart.values, low, high)
    image = axes.imshow(values, chart.colours, vmin=low, vmax=high, aspect="auto")
    is_dark = image.to_rgba(np.nan_to_num(values)) @ [0.3, 0.59, 0.11, 0.0] < 0.5
    for (i, j), value in np.ndenumerate(values):
        colour = "0.5" if math.isnan(value) else "white" if is_dark[i, j] else "black"
        axes.text(j, i, chart.texts[i][j], ha="center", va="center", fontsize=6, color=colour)
    axes.set_xticks(range(len(chart.columns)), chart.columns, rotation=40, ha="right", fontsize=7.5)
    axes.set_yticks(range(len(chart.rows)), chart.rows, fontsize=7.5)
    axes.set_title(_text(chart.title), fontsize=9.5)
    axes.tick_params(length=0)
    return image


def _draw_panels(figure: Figure, panels: Panels) -> None:
    down, across = len(panels.charts), max(map(len, panels.charts))
    colours, unit = None, ""
    grid = figure.subplots(
        down, across, sharex=panels.shared, sharey=panels.shared, squeeze=False, width_ratios=panels.widths
    )
    for row, charts in enumerate(panels.charts):
        for column in range(across):
            axes, chart = grid[row, column], charts[column] if column < len(charts) else None
            if chart is None:
                axes.set_visible(False)
                if row:  # what stands above an empty panel has the ticks
                    grid[row - 1, column].tick_params(labelbottom=True)
                continue
            if panels.shared and isinstance(chart, Chart):
                _draw_series(axes, chart)
            elif panels.shared and isinstance(chart, HeatMap):
                colours, unit = _draw_cells(axes, chart), chart.unit
            else:
                _draw_any(axes, chart)
        if row < len(panels.right):
            grid[row, across - 1].annotate(_text(panels.right[row]), (1.02, 0.5), xycoords="axes fraction",
                                           rotation=270, va="center", fontsize=8.5)  # fmt: skip
    if panels.shared:
        if panels.below:  # a label of the whole figure would lie on the legend
            for axes in grid[-1]:
                axes.set_xlabel(_text(panels.x))
        else:
            figure.supxlabel(_text(panels.x), fontsize=9.5)
        figure.supylabel(_text(panels.y), fontsize=9.5)
        handles = _legend_of(tuple(c for row in panels.charts for c in row if isinstance(c, Chart)))
        if handles:
            columns = 4 if panels.below else 1 if len(handles) <= 20 else 2
            figure.legend(
                handles=handles, title=_text(panels.legend) or None, ncols=columns, title_fontsize=8.5,
                loc="outside lower center" if panels.below else "outside right upper", alignment="left",
            )  # fmt: skip
    if colours is not None:
        figure.colorbar(colours, ax=grid, label=unit, shrink=0.7)
    if panels.title:
        figure.suptitle(_text(panels.title), fontsize=10, x=0.01, ha="left")


def _legend_of(charts: tuple[Chart, ...]) -> list[Any]:
    """Return an entry for each label, and for each mark that occurs."""
    from matplotlib.patches import Patch

    handles: dict[str, Any] = {}
    for chart in charts:
        for series in chart.series:
            if series.label and series.label not in handles:
                handles[series.label] = Line2D(
                    [], [], color=_colour(series.colour), ls=series.line or "none", lw=series.width,
                    marker=series.marker or None, ms=series.size, label=_text(series.label),
                    mfc="none" if series.hollow else None,
                )  # fmt: skip
        for span in chart.spans:
            if span.label and span.label not in handles:
                colour, label = _colour(span.colour), _text(span.label)
                handles[span.label] = (
                    Line2D([], [], color=colour, lw=1.2, label=label)
                    if span.low == span.high
                    else Patch(
                        color=colour, alpha=None if isinstance(span.colour, str) else 0.2, lw=0, label=label
                    )
                )
    flags = [_flags(series, _top(chart)) for chart in charts for series in chart.series]
    words = {_LOST: "some trials diverged", _BEYOND: "above the picture", _MEDIAN: "median, heavy tails"}
    for marker, text in words.items():
        if any(found[marker].any() for found in flags):
            fill = "white" if marker == _MEDIAN else "0.3"
            handles[text] = Line2D(
                [], [], ls="none", marker=marker, color="0.3", mfc=fill, mew=1.5, label=text
            )
    return list(handles.values())


def _text(text: str) -> str:
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
