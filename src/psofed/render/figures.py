"""Charts drawn by Matplotlib, as figures that display themselves in a notebook and are saved byte for byte alike."""

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as MatplotlibFigure

from psofed.common.errors import InvalidValueError
from psofed.common.files import atomic_path
from psofed.render.axes import broken, draw_any, legend_of, with_symbols
from psofed.render.charts import AnyChart, Chart, Panels, RowChart
from psofed.render.style import (
    DOTS_PER_INCH,
    FONTS,
    MATPLOTLIB,
    PICTURE_FORMATS,
    PRINT,
    check_picture_format,
    check_width,
)

# Inches that a panel takes at least in print: with curves, with curves if it is one of many, with rows; and a row.
_PANEL, _SMALL_PANEL, _ROW_PANEL, _ROW = 2.3, 1.7, 3.0, 0.17
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
    panels = chart if isinstance(chart, Panels) else Panels("", ((chart,),), size=chart.size)
    if width is not None:
        panels = _for_print(panels, check_width(width))
    with styled({} if width is None else PRINT):
        figure = make_figure(*panels.size)
        _draw_panels(figure, panels)
    return figure


def _for_print(panels: Panels, width: float) -> Panels:
    """Return panels of this width: no title, which belongs in the caption, and no panel too narrow to be read."""
    charts, names, widths = panels.charts, panels.right, panels.widths
    rows = [len(chart.names) for row in charts for chart in row if isinstance(chart, RowChart)]
    columns = max(map(len, charts))
    narrowest = _ROW_PANEL if rows else _PANEL if columns * len(charts) < _MANY else _SMALL_PANEL
    across = max(1, min(columns, int(width / narrowest)))
    if across < columns:  # each panel names its row and column itself
        flat: list[Any] = [
            replace(chart, title=", ".join(filter(None, (chart.title or above.title, name))))
            for row, name in zip(charts, names or [""] * len(charts), strict=True)
            for chart, above in zip(row, charts[0], strict=False)
            if chart is not None and above is not None
        ]
        flat += [None] * (-len(flat) % across)
        charts = tuple(tuple(flat[at : at + across]) for at in range(0, len(flat), across))
        names, widths = (), None
    elif columns == len(charts) == 1 and charts[0][0] is not None:
        charts = ((replace(charts[0][0], title=""),),)
    least = max(_SMALL_PANEL, 0.8 + _ROW * max(rows, default=0))
    height = max(min(panels.size[1] / len(panels.charts), 0.7 * width / across), least)
    return replace(panels, title="", charts=charts, right=names, widths=widths, size=(width, height * len(charts)))


def _draw_into(axes: Axes, chart: AnyChart, width: str | float | None) -> Figure:
    if not isinstance(axes, Axes):
        raise InvalidValueError("ax", axes, "axes of Matplotlib, such as those of plt.subplots()")
    if width is not None:
        raise InvalidValueError("width", width, "absent where ax is given: the axes have their size")
    if isinstance(chart, Panels):
        [[alone, *others], *rows] = chart.charts
        if others or rows or not isinstance(alone, Chart):
            count = sum(panel is not None for row in chart.charts for panel in row)
            raise InvalidValueError("ax", "one Axes", f"absent: the picture has {count} panels")
        chart = replace(alone, x=replace(alone.x, label=chart.x), y=replace(alone.y, label=chart.y))
    with styled():
        draw_any(axes, chart)
        handles = legend_of((axes,), (chart,))
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
    down, across = len(panels.charts), max(map(len, panels.charts))
    grid = figure.subplots(
        down, across, sharex=panels.shared, sharey=panels.shared, squeeze=False, width_ratios=panels.widths
    )
    width, height = panels.size
    space = 0.8 * width / across, 0.8 * height / down
    for (row, column), axes in np.ndenumerate(grid):
        chart = panels.charts[row][column] if column < len(panels.charts[row]) else None
        if chart is None:
            axes.set_visible(False)
            continue
        draw_any(axes, chart, space)
        below = panels.charts[row + 1] if row + 1 < down else ()
        if panels.shared and (column >= len(below) or below[column] is None):
            axes.set_xlabel(broken(panels.x, space[0]))
            axes.tick_params(labelbottom=True)
    for row, name in enumerate(panels.right):
        grid[row, across - 1].annotate(
            broken(name, space[1]), (1.02, 0.5), xycoords="axes fraction", rotation=270, va="center"
        )
    if panels.shared:
        size = mpl.rcParams["axes.labelsize"]
        figure.supylabel(broken(panels.y, 0.8 * height), fontsize=size, multialignment="center")
    if panels.title:
        figure.suptitle(with_symbols(panels.title), fontsize=10, x=0.01, ha="left")
    _add_legend(figure, panels)


def _add_legend(figure: Figure, panels: Panels) -> None:
    """Add the legend below the charts, in as many columns as fit; the figure grows by its height."""
    handles = legend_of(figure.axes, [chart for row in panels.charts for chart in row if chart is not None])
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
