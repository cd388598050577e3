"""Charts for web pages, by Bokeh: they open from disk, and nothing is fetched.

A chart is made of layers. Everything that a page may want to switch is written into the models: a layer's curve,
kind and colour are its renderers' ``tags``, its numbers are the columns of its source. Nothing here knows where the
numbers come from, and no JavaScript of our own draws anything.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bokeh.plotting import figure as BokehFigure  # noqa: N812

# How a layer is drawn. Points with a band are what is looked at; the others are quieter, and lie below.
POINTS, HALO, DASHES, DOTS, RINGS, CROSSES, LABEL = (
    "points", "halo", "dashes", "dots", "rings", "crosses", "label",
)  # fmt: skip

# Matplotlib's letters for markers, in Bokeh's words.
MARKERS = {
    "o": "circle", "s": "square", "^": "triangle", "v": "inverted_triangle", "D": "diamond", "P": "plus",
    "*": "star", "X": "hex",
}  # fmt: skip

# Lines that can be seen on a light and on a dark page; what must be read gets its colour from the page.
GREY = "#808a94"
FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"


# The glyphs of every style, from below, and how each looks.
_STYLES: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    HALO: (("Line", {"line_width": 9, "line_alpha": 0.28, "line_cap": "round"}),),
    DASHES: (("Line", {"line_width": 1.5, "line_alpha": 0.85, "line_dash": [7, 4]}),),
    DOTS: (("Line", {"line_width": 1.8, "line_alpha": 0.85, "line_dash": [2, 4]}),),
    RINGS: (("Scatter", {"size": 14, "fill_alpha": 0, "line_alpha": 0.85}),),
    CROSSES: (("Scatter", {"marker": "x", "size": 9, "line_alpha": 0.8}),),
    POINTS: (
        ("VArea", {"y1": "low", "y2": "high", "fill_alpha": 0.18}),
        ("Line", {"line_width": 1.6, "line_alpha": 0.9}),
        ("Scatter", {"size": 8}),
    ),
    LABEL: (
        ("Text", {"x_offset": 12, "text_baseline": "middle", "text_font": {"value": FONT}, "text_font_size": "13px"}),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """One series, drawn one way.

    Attributes
    ----------
    curve, kind : str
        What a page can hide: a curve in all its kinds, a kind of all curves.
    style : str
        ``POINTS``, ``HALO``, ``DASHES``, ``DOTS``, ``RINGS``, ``CROSSES`` or ``LABEL``.
    label : str
        Of the curve, as HTML for the page (or the text itself, for a ``LABEL``).
    colour, marker : str
        The marker in Matplotlib's letters.
    columns : dict of str to list
        ``x`` and ``y``; ``low`` and ``high`` for a band. Others are carried along.
    """

    curve: str
    kind: str
    style: str
    label: str
    colour: str
    marker: str
    columns: Mapping[str, Sequence[float]]


def make_chart(
    name: str,
    layers: Sequence[Layer],
    *,
    height: int,
    x_ticks: Sequence[float] | None = None,
    x_range: tuple[float, float] | None = None,
    y_range: Any = None,
) -> "BokehFigure":
    """Return a chart that fills its place in width.

    Parameters
    ----------
    name : str
        By which the page finds it.
    layers : sequence of Layer
        Drawn in this order, quiet ones below.
    height : int
        In pixels.
    x_ticks : sequence of float, optional
        Where the abscissa is labelled.
    x_range : tuple of float, optional
        From where to where; what the layers need by default.
    y_range : optional
        The range of another chart, to share it.
    """
    from bokeh.models import BoxZoomTool, DataRange1d, FixedTicker, PanTool, Range1d
    from bokeh.models.annotations import Span
    from bokeh.plotting import figure

    plot = figure(
        name=name, height=height, sizing_mode="stretch_width", toolbar_location=None,
        tools=[PanTool(), BoxZoomTool()], active_drag=None,
        x_range=DataRange1d(range_padding=0.08) if x_range is None else Range1d(start=x_range[0], end=x_range[1]),
        y_range=y_range or DataRange1d(range_padding=0.07, only_visible=True),
        background_fill_color=None, border_fill_color=None, outline_line_color=None, min_border=4,
    )  # fmt: skip
    for grid in plot.grid:
        grid.grid_line_color, grid.grid_line_alpha = GREY, 0.22
    for axis in plot.axis:
        axis.axis_line_color, axis.major_tick_line_color, axis.minor_tick_line_color = GREY, GREY, None
        axis.major_label_text_font, axis.major_label_text_font_size = FONT, "12px"
        axis.axis_label = None
    if x_ticks is not None:
        plot.xaxis.ticker = FixedTicker(ticks=list(x_ticks))
    for layer in sorted(layers, key=lambda layer: list(_STYLES).index(layer.style)):
        _draw(plot, layer)
    cursor = Span(name="cursor", dimension="height", location=math.nan, visible=False)
    cursor.line_color, cursor.line_dash = GREY, "dotted"
    plot.add_layout(cursor)
    return plot


def embed(charts: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the charts as one script element, and the element of each chart's place."""
    from bokeh.document import Document
    from bokeh.embed import components

    document = Document()
    # Else Bokeh looks through all charts again for each that is added.
    with document.models.freeze():
        for chart in charts.values():
            document.add_root(chart)
    script, places = components(dict(charts))
    return script, places


def bokeh_script() -> str:
    """Return the script element with all of BokehJS that charts need."""
    from bokeh.resources import Resources

    # Not all that Resources would render: once a library that extends Bokeh (Panel) is imported, that has its files.
    scripts = Resources(mode="inline", components=["bokeh"]).js_raw
    return "\n".join(f'<script type="text/javascript">\n{script}\n</script>' for script in scripts)


def _draw(plot: "BokehFigure", layer: Layer) -> None:
    from bokeh import models

    # No attribute says of what a source is; the tags do, for the page's list of values.
    source = models.ColumnDataSource(
        {name: list(column) for name, column in layer.columns.items()},
        tags=[layer.curve, layer.kind, layer.label],
    )
    colour = layer.colour
    of_kind: dict[str, dict[str, Any]] = {
        "Line": {"y": "y", "line_color": colour},
        "Scatter": {"y": "y", "line_color": colour, "fill_color": colour,
                    "marker": MARKERS.get(layer.marker, "circle")},
        "Text": {"y": "y", "text_color": colour, "text": {"value": layer.label}},
        "VArea": {"fill_color": colour},
    }  # fmt: skip
    for kind, look in _STYLES[layer.style]:
        if kind != "VArea" or "low" in layer.columns:
            glyph = getattr(models, kind)(x="x", **(of_kind[kind] | look))
            plot.add_glyph(source, glyph, tags=[layer.curve, layer.kind, colour])
