"""Charts drawn by Matplotlib, as figures that display themselves in a notebook and are saved byte for byte alike."""

import io
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullFormatter
from numpy.typing import NDArray

from psofed.common.errors import InvalidValueError
from psofed.common.files import atomic_path
from psofed.render.charts import AnyChart, Chart, Panels, RowChart, Scale, Series
from psofed.render.numbers import fixed, shortened
from psofed.render.style import (
    COLOURS,
    DOTS_PER_INCH,
    FONTS,
    MATPLOTLIB,
    PICTURE_FORMATS,
    PRINT,
    check_picture_format,
    check_width,
)

# Width in inches that a panel has at least in print: with curves, with curves if it is one of many, with rows.
_PANEL, _SMALL_PANEL, _ROW_PANEL = 2.3, 1.7, 3.0
_HEIGHT, _ROW = 1.9, 0.17  # least height of a panel, and of a row in it
_MANY = 4  # panels that have to be small
_SCREEN = 100  # pixels per inch where a notebook shows a figure


class Figure(MatplotlibFigure):
    """A Matplotlib figure that no window manager knows of, and that a notebook shows without ``%matplotlib``."""

    is_shown: bool = False

    def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
        self.is_shown = True
        width, height = self.get_size_inches()
        return figure_to_png(self), {"width": _SCREEN * width, "height": _SCREEN * height}


def make_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches (safe in threads, nothing to close)."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def show_after_cell(figure: Figure) -> None:
    """Show a figure when the notebook's cell ends, unless the cell shows it as its value: for ``result.plot();``."""
    notebook: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if not hasattr(notebook, "kernel"):
        return

    def show() -> None:
        notebook.events.unregister("post_execute", show)
        if not figure.is_shown:
            import_module("IPython.display").display(figure)

    notebook.events.register("post_execute", show)


@contextmanager
def styled(changes: Mapping[Any, Any] = MappingProxyType({})) -> Iterator[None]:
    """Apply the common style, with changes, to everything drawn inside the block."""
    with mpl.rc_context({**MATPLOTLIB, **changes}):
        yield


def draw_chart(chart: AnyChart, axes: Axes | None = None, width: str | float | None = None) -> Figure:
    """Draw a chart.

    Parameters
    ----------
    chart : Chart, RowChart or Panels
    axes : Axes, optional
        Draw into these, of a figure of yours, instead of a figure of its own. The picture must have one panel.
    width : str or float, optional
        ``"column"`` or ``"page"`` of a journal, or inches; the height follows.
    """
    if axes is not None:
        return _draw_into(axes, chart, width)
    panels = chart if isinstance(chart, Panels) else Panels("", (chart,), 1, size=chart.size)
    if width is not None:
        panels = _for_print(panels, check_width(width))
    with styled({} if width is None else PRINT):
        figure = make_figure(*panels.size)
        _draw_panels(figure, panels)
    return figure


def _for_print(panels: Panels, width: float) -> Panels:
    """Return panels of this width: no title, which belongs in the caption, and no panel too narrow to be read."""
    charts = panels.charts
    if len(charts) == 1:
        charts = (replace(charts[0], title=""),)
    if any(isinstance(chart, RowChart) for chart in charts):
        narrowest = _ROW_PANEL
    else:
        narrowest = _PANEL if len(charts) < _MANY else _SMALL_PANEL
    across = max(1, min(panels.across, int(width / narrowest)))
    height = min(panels.size[1] / len(panels.rows), 0.7 * width / across)
    panels = replace(panels, title="", charts=charts, across=across)
    return replace(panels, size=(width, sum(max(height, _least_height(row)) for row in panels.rows)))


def _least_height(row: tuple[Chart | RowChart, ...]) -> float:
    """Return the inches that charts side by side need: each named row takes some."""
    return max([_HEIGHT, *(0.8 + _ROW * len(chart.names) for chart in row if isinstance(chart, RowChart))])


def _draw_into(axes: Axes, chart: AnyChart, width: str | float | None) -> Figure:
    if not isinstance(axes, Axes):
        raise InvalidValueError("ax", axes, "axes of Matplotlib, such as those of plt.subplots()")
    if width is not None:
        raise InvalidValueError("width", width, "absent where ax is given: the axes have their size")
    alone: Any = chart
    if isinstance(chart, Panels):
        if len(chart.charts) > 1:
            raise InvalidValueError("ax", "one Axes", f"absent: the picture has {len(chart.charts)} panels")
        alone = chart.charts[0]
        alone = replace(alone, x=replace(alone.x, label=chart.x), y=replace(alone.y, label=chart.y))
    with styled():
        draw_any(axes, alone)
        handles = legend_of((axes,), (alone,))
        if handles:
            axes.legend(handles=handles)
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


def _picture(figure: MatplotlibFigure, suffix: str) -> bytes:
    """Return the bytes of a picture, the same for the same figure."""
    content = io.BytesIO()
    with mpl.rc_context(FONTS):
        figure.savefig(content, format=suffix[1:], dpi=DOTS_PER_INCH, metadata=PICTURE_FORMATS[suffix])
    return content.getvalue()


def save_figure(figure: MatplotlibFigure, path: str | Path) -> None:
    """Write a figure, whole or not at all; the same figure gives the same bytes."""
    check_picture_format(Path(path))
    # In memory first: on a full disk some of Matplotlib's writers stumble over their own error.
    content = _picture(figure, Path(path).suffix.lower())
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def _draw_panels(figure: Figure, panels: Panels) -> None:
    width, height = panels.size
    heights = [_least_height(row) for row in panels.rows]
    grid = figure.subplots(
        len(heights), panels.across, sharex=panels.shared, sharey=panels.shared, squeeze=False, height_ratios=heights
    ).ravel()
    space = 0.8 * width / panels.across, 0.8 * height / len(heights)
    count = len(panels.charts)
    for axes in grid[count:]:
        axes.set_visible(False)
    for place, (chart, axes) in enumerate(zip(panels.charts, grid[:count], strict=True)):
        draw_any(axes, chart, space)
        if panels.shared and place + panels.across >= count:  # nothing below
            axes.set_xlabel(broken(panels.x, space[0]))
            axes.tick_params(labelbottom=True)
    if panels.shared:
        size = mpl.rcParams["axes.labelsize"]
        figure.supylabel(broken(panels.y, 0.8 * height), fontsize=size, multialignment="center")
    if panels.title:
        figure.suptitle(with_symbols(panels.title), fontsize=10, x=0.01, ha="left")
    _add_legend(figure, panels)


def _add_legend(figure: Figure, panels: Panels) -> None:
    """Add the legend below the charts, in as many columns as fit; the figure grows by its height."""
    handles = legend_of(figure.axes, panels.charts)
    width, height = panels.size
    for columns in range(min(len(handles), 5), 0, -1):
        legend = figure.legend(
            handles=handles, title=broken(panels.legend, width) or None, ncols=columns,
            title_fontsize=mpl.rcParams["legend.fontsize"], loc="outside lower center",
        )  # fmt: skip
        box = legend.get_window_extent()
        if box.width < 0.96 * figure.bbox.width or columns == 1:
            figure.set_size_inches(width, height + box.height / figure.dpi)
            return
        legend.remove()


_SYMBOL = re.compile(r"(?<!\w)(\w)_(\w)(²?)(?!\w)")
# Marks at the upper edge: of what diverged, and of what lies above the picture. No series has them.
_LOST, _BEYOND = r"$\infty$", r"$\uparrow$"
_LETTER = 0.0072  # inches that a letter takes, on average, for each point of its font
_MEDIAN = "o"  # in legends; hollow


def draw_any(axes: Axes, chart: Chart | RowChart, space: tuple[float, float] = (6.0, 4.0)) -> None:
    """Draw a chart of any kind without its legend; `space`, in inches, is what its words are broken to."""
    if isinstance(chart, RowChart):
        letter = _letter("ytick.labelsize")
        names = [shortened(name, int(0.72 * space[0] / letter)) for name in chart.names]
        beside = letter * max(map(len, names), default=0)
        space = max(0.5 * space[0], space[0] - beside), space[1]
        _draw_rows(axes, chart, names, space)
    else:
        _draw_series(axes, chart, space)
    if chart.title:
        axes.set_title(broken(chart.title, space[0]))


def _letter(setting: Any) -> float:
    """Return the inches that a letter takes, on average, by Matplotlib's setting of its size."""
    return _LETTER * FontProperties(size=mpl.rcParams[setting]).get_size_in_points()


def broken(text: str, inches: float) -> str:
    """Break text into lines that fit, and set its symbols."""
    longest = max(8, int(inches / _letter("axes.labelsize")))
    # A number stays with its unit or noun.
    paragraphs = re.sub(r" (?=[=%(])|(?<=[=\d]) ", "\N{NO-BREAK SPACE}", text).split("\n")
    whole = partial(textwrap.wrap, width=longest, break_on_hyphens=False, break_long_words=False)
    # Only words that are longer than a line are broken, at their hyphens.
    pieces = (piece for text in paragraphs for line in whole(text) for piece in textwrap.wrap(line, longest))
    return with_symbols("\n".join(pieces).replace("\N{NO-BREAK SPACE}", " "))


def _draw_series(axes: Axes, chart: Chart, space: tuple[float, float]) -> None:
    top = _top(chart)
    for series in chart.series:
        _draw_one(axes, series, top)
    _scale(axes, chart.x, chart.y, space)


def _draw_one(axes: Axes, series: Series, top: float) -> None:
    colour = _colour(series.colour)
    x = series.x
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
    lost = none if series.is_lost is None else series.is_lost
    beyond = series.y > top
    medians = none if series.is_median is None else series.is_median
    return {_LOST: lost, _BEYOND: beyond & ~lost, _MEDIAN: medians & np.isfinite(series.y) & ~beyond}


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


def _draw_rows(axes: Axes, chart: RowChart, names: list[str], space: tuple[float, float]) -> None:
    """Draw every value with its interval: an arrow and the number where it lies off the axis."""
    places = np.arange(len(names))
    colour = COLOURS[0]
    axes.axvline(0.0, color="black", lw=0.9)
    shown = np.isfinite(chart.low) & np.isfinite(chart.values)
    axes.hlines(places[shown], chart.low[shown], chart.high[shown], color=colour, lw=2.2, alpha=0.55, zorder=1)
    left, right = chart.x.limits or (-math.inf, math.inf)
    for at, value in enumerate(chart.values.tolist()):
        if math.isinf(value):
            axes.annotate("diverged", (0.02, at), xycoords=("axes fraction", "data"), va="center", color=colour)
        elif value < left:
            _point_beyond(axes, chart, at, "<", left)
        elif value > right:
            _point_beyond(axes, chart, at, ">", right)
        else:
            marker, size = ("*", 10.0) if at in chart.starred else ("o", 5.5)
            axes.plot([value], [at], marker=marker, ms=size, color=colour, zorder=3)
    axes.set_yticks(places, [with_symbols(name) for name in names])
    axes.set_ylim(len(places) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    _scale(axes, chart.x, Scale(), space)


def _point_beyond(axes: Axes, chart: RowChart, at: int, marker: str, edge: float) -> None:
    """Mark a value beyond the `edge` of the axis, and write it inside of its interval."""
    value = float(chart.values[at])
    is_low = marker == "<"
    axes.plot([edge], [at], marker=marker, ms=5.5, color=COLOURS[0], zorder=3, clip_on=False)
    end = float((chart.high if is_low else chart.low)[at])
    place = np.clip(end if math.isfinite(end) else value, *(chart.x.limits or (edge, edge)))
    number = fixed(value, 2 if abs(value) < 10 else int(abs(value) < 100))
    axes.annotate(
        number, (place, at), xytext=(6 if is_low else -6, 0), textcoords="offset points",
        ha="left" if is_low else "right", va="center", fontsize=8,
    )  # fmt: skip


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
