"""Charts drawn by Matplotlib, as figures that display themselves in a notebook and are saved byte for byte alike."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as MatplotlibFigure

from psofed.common.errors import InvalidValueError
from psofed.common.files import atomic_path
from psofed.render.axes import draw_any, draw_series, legend_of, with_symbols
from psofed.render.charts import AnyChart, Chart, Panels
from psofed.render.style import (
    DOTS_PER_INCH,
    MATPLOTLIB,
    PICTURE_FORMATS,
    check_picture_format,
    check_width,
)

_SCREEN = 100  # pixels per inch where a notebook shows a figure


class Figure(MatplotlibFigure):
    """A Matplotlib figure that no window manager knows of, and that a notebook shows without ``%matplotlib``."""

    is_shown = False

    def _repr_png_(self) -> tuple[bytes, dict[str, float]]:
        self.is_shown = True
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
def styled() -> Iterator[None]:
    """Apply the common style to everything drawn inside the block."""
    with mpl.rc_context(MATPLOTLIB):
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
    size = chart.size if width is None else _scaled(chart.size, check_width(width))
    with styled():
        figure = make_figure(*size)
        if isinstance(chart, Panels):
            _draw_panels(figure, chart)
        else:
            draw_any(figure.add_subplot(), chart)
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
        draw_any(axes, chart)
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


def _draw_panels(figure: Figure, panels: Panels) -> None:
    down, across = len(panels.charts), max(map(len, panels.charts))
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
                draw_series(axes, chart)
            else:
                draw_any(axes, chart)
        if row < len(panels.right):
            grid[row, across - 1].annotate(with_symbols(panels.right[row]), (1.02, 0.5), xycoords="axes fraction",
                                           rotation=270, va="center", fontsize=8.5)  # fmt: skip
    if panels.shared:
        if panels.below:  # a label of the whole figure would lie on the legend
            for axes in grid[-1]:
                axes.set_xlabel(with_symbols(panels.x))
        else:
            figure.supxlabel(with_symbols(panels.x), fontsize=9.5)
        figure.supylabel(with_symbols(panels.y), fontsize=9.5)
        handles = legend_of(tuple(c for row in panels.charts for c in row if isinstance(c, Chart)))
        if handles:
            columns = 4 if panels.below else 1 if len(handles) <= 20 else 2
            figure.legend(
                handles=handles, title=with_symbols(panels.legend) or None, ncols=columns, title_fontsize=8.5,
                loc="outside lower center" if panels.below else "outside right upper", alignment="left",
            )  # fmt: skip
    if panels.title:
        figure.suptitle(with_symbols(panels.title), fontsize=10, x=0.01, ha="left")
