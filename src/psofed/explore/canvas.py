"""How the explorer's charts look, and the words around each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bokeh.models import CustomJSTickFormatter, Range1d
from bokeh.plotting import figure

SIDE_COLOURS = {"light": {"A": "#0072B2", "B": "#D55E00"}, "dark": {"A": "#56B4E9", "B": "#FF9D5C"}}
INK = {
    "light": {"text": "#3A4350", "grid": "#E6E9EE", "axis": "#9AA4B2", "paper": "#FFFFFF"},
    "dark": {"text": "#C7D0DB", "grid": "#2B333F", "axis": "#667080", "paper": "#171C24"},
}
ORDINATE = "dB (lower is better)"
_TOOLS = "pan,wheel_zoom,box_zoom,reset,save"
FONT = "system-ui, sans-serif"
HEIGHT = 270  # pixels
_MINUS_FORMATTER = "return tick.toLocaleString('en', {maximumSignificantDigits: 4}).replace('-', '−')"


@dataclass(frozen=True)
class ChartText:
    """Words around a chart.

    Attributes
    ----------
    caption : str
        Below it; a chart without one is not shown.
    summary : str
        The text alternative.
    gaps : tuple of (str, str)
        Sides without anything to draw, each with the reason and what to do.
    empty : bool
        Whether there is nothing to draw for any side.
    """

    caption: str
    summary: str = ""
    gaps: tuple[tuple[str, str], ...] = ()
    empty: bool = False


def make_figure(title: str, x_label: str, y_label: str, x_log: bool, **options: Any) -> Any:
    """Return an empty chart that fills its place in width."""
    plot: Any = figure(
        title=title, x_axis_label=x_label, y_axis_label=y_label or None, height=HEIGHT, sizing_mode="stretch_width",
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
    plot.title.text_font = plot.axis.axis_label_text_font = plot.axis.major_label_text_font = FONT
    plot.axis.axis_label_text_font_size = plot.axis.major_label_text_font_size = "13px"
    plot.axis.minor_tick_line_color = None
    if not options:
        plot.yaxis.formatter = CustomJSTickFormatter(code=_MINUS_FORMATTER)
    plot.outline_line_color = None
    plot.xgrid.visible = False
    return plot


def apply_ink(plot: Any, ink: Mapping[str, str]) -> None:
    """Colour everything but the curves."""
    plot.background_fill_color = plot.border_fill_color = ink["paper"]
    plot.title.text_color = ink["text"]
    plot.axis.axis_label_text_color = plot.axis.major_label_text_color = ink["text"]
    plot.axis.axis_line_color = plot.axis.major_tick_line_color = ink["axis"]
    plot.grid.grid_line_color = ink["grid"]


def move_axis(axis: Any, start: float, end: float) -> None:
    """Change the ends of an axis, if they change."""
    if (axis.start, axis.end) != (start, end):
        axis.update(start=start, end=end, reset_start=start, reset_end=end)
