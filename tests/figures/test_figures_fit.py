"""At every width, no text of a figure overlaps another, leaves the canvas or covers the data."""

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.text import Text

import psofed
from psofed import Scenario
from psofed.paper.charts import figure_chart
from psofed.paper.figures import figure_names
from psofed.render.charts import Panels, Scale
from psofed.render.figures import draw_chart, save_figure

pytestmark = [pytest.mark.paper, pytest.mark.takes(40)]

WIDTHS = (None, "page", "column")


def table(clients: int):
    """A table of clients with long names, whose last one follows another law."""
    rng = np.random.default_rng(0)
    rows, names = 80, [f"station {number} at the river" for number in range(clients)]
    weights = np.full((clients, 3), 0.6)
    weights[-1] = -2.0
    x = rng.standard_normal((rows, clients, 3))
    y = (x * weights).sum(axis=2) + rng.standard_normal((rows, clients))
    return psofed.from_arrays(x.reshape(-1, 3), y.reshape(-1), np.tile(names, rows))


@pytest.fixture(scope="session")
def charts(reproduction):
    attack = {"kind": "gaussian", "num_byzantine": 5}
    scenario = Scenario.from_mapping({"num_clients": 20, "dimension": 5, "iterations": 300, "attack": attack})
    facets = {
        "stepsize": [0.02, 0.05, 0.1, 0.2],
        "num_shared": [1, 3, 5],
        "attack.num_byzantine": [0, 2, 5],
        "attack.kind": ["gaussian", "sign-flip"],
    }
    names = {"attack.kind": ["gaussian", "sign-flip", "label-poisoning", "inner-product"], "num_shared": [1, 5]}
    panels = {"stepsize": [0.1, 0.2], "num_shared": [1, 2, 3, 4, 5]}
    simulation = psofed.simulate(scenario, trials=8)
    other = psofed.simulate(scenario.replace(num_shared=5), trials=8)
    made = {
        "simulation": simulation.chart(),
        "prediction": psofed.predict(scenario).chart(),
        "comparison": psofed.compare(scenario, trials=8).chart(),
        "difference": (simulation - other).chart(),
        "tuning": psofed.tune(scenario).chart(),
        "sweep over names": psofed.sweep(scenario, names, trials=2).chart(),
        "sweep with panels": psofed.sweep(scenario, panels, trials=2).chart(x="stepsize", col="num_shared"),
        "sweep with facets": psofed.sweep(scenario, facets, trials=2).chart(),
        "advice": psofed.advise(table(14)).chart(),
        "advice of many": psofed.advise(table(45), byzantine=0).chart(),
    }
    title = "aggregation rule = centred-clipping, uploads come from = redrawn"
    panel = replace(made["simulation"], title=title, x=Scale(log=True), y=Scale())
    made["many panels"] = Panels("", (panel,) * 14, 7, shared=True, x="iteration", y="error", size=(15.0, 5.8))
    for name in figure_names():
        made[name] = figure_chart(reproduction.figures[name])
    return made


def texts_of(figure):
    """Visible texts with their boxes in pixels, after the figure has been laid out."""
    figure.draw_without_rendering()
    hidden = {id(text) for axes in figure.axes if not axes.get_visible() for text in axes.findobj(Text)}
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):  # ticks beyond the axis are not drawn
            drawn = {id(tick) for tick in axis._update_ticks()}
            every = (*axis.get_major_ticks(), *axis.get_minor_ticks())
            hidden |= {id(text) for tick in every if id(tick) not in drawn for text in tick.findobj(Text)}
    shown = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    return [(text.get_text(), text.get_window_extent()) for text in shown if id(text) not in hidden]


def problems(figure):
    """Texts that overlap, or are cut off, and legends over the data."""
    texts, canvas = texts_of(figure), figure.bbox
    cut = [
        f"{text!r} leaves the canvas"
        for text, box in texts
        if box.x0 < -0.5 or box.y0 < -0.5 or box.x1 > canvas.x1 + 0.5 or box.y1 > canvas.y1 + 0.5
    ]
    overlapping = [
        f"{first!r} overlaps {second!r}"
        for (first, a), (second, b) in itertools.combinations(texts, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 0.5 and min(a.y1, b.y1) - max(a.y0, b.y0) > 0.5
    ]
    covering = [
        "a legend covers data"
        for legend, axes in itertools.product(figure.legends, figure.axes)
        if axes.get_visible() and legend.get_window_extent().overlaps(axes.get_window_extent())
    ]
    narrow = ["a panel is too small" for axes in figure.axes
              if axes.get_visible() and min(axes.get_window_extent().size) / figure.dpi < 0.9]  # fmt: skip
    return cut + overlapping + covering + narrow


@pytest.mark.parametrize("width", WIDTHS)
def test_no_text_overlaps_leaves_the_canvas_or_covers_data(charts, width):
    found = {name: problems(draw_chart(chart, width=width)) for name, chart in charts.items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize("width", ["page", "column"])
def test_figures_for_a_journal_have_its_width_and_no_title(charts, width):
    for chart in charts.values():
        figure = draw_chart(chart, width=width)
        assert figure.get_size_inches()[0] == {"page": 7.16, "column": 3.5}[width]
        assert figure.get_suptitle() == ""
        if len(figure.axes) == 1:
            assert figure.axes[0].get_title() == ""


def test_fonts_are_embedded_as_truetype(charts, tmp_path):
    save_figure(draw_chart(charts["fig1"], width="column"), tmp_path / "fig1.pdf")
    content = (tmp_path / "fig1.pdf").read_bytes()
    assert b"/Type3" not in content
    assert re.search(rb"/Subtype /(CIDFontType2|TrueType)", content)
