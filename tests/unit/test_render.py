"""Reports: one value, written alike for the terminal, notebooks and LaTeX."""

import math
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

import psofed
from psofed.common.errors import InvalidValueError
from psofed.render import Column, Kind, Measured, NextStep, Report, Table
from psofed.render.charts import Chart, Panels, RowChart, Scale, Series
from psofed.render.figures import draw_chart, figure_to_png, save_figure

pytestmark = pytest.mark.render

COLUMNS = (Column("metric"), Column("steady state", Kind.LEVEL, interval=True), Column("change", Kind.PERCENT))
ROWS = (
    ("network MSE", Measured(0.01, 0.009, 0.011), -0.05),
    ("server MSD", Measured(math.inf, math.nan, math.nan), None),
    ("a | b_c & d", Measured(0.1, 0.05, math.inf, "median"), 0.0),
)
REPORT = Report(
    "The network MSE settles at −20.00 dB.",
    "10 clients.",
    (Table("Steady state", COLUMNS, ROWS, ("Lower is better.",), frozenset({0})),),
    ("Something to know.",),
    NextStep("Check it", "psofed.compare(scenario)", "psofed compare FILE"),
)


def test_text_gives_the_answer_then_the_numbers_then_the_next_step() -> None:
    assert REPORT.to_text().splitlines() == [
        "The network MSE settles at −20.00 dB.",
        "10 clients.",
        "",
        "Steady state",
        "                    steady state",
        "  metric                    (dB)    95 % interval  change",
        "  network MSE *           −20.00  −20.46 … −19.59  −5.0 %",
        "  server MSD            diverged",
        "  a | b_c & d    −10.00 (median)       −13.01 … ∞   0.0 %",
        "Lower is better.",
        "",
        "Note: Something to know.",
        "",
        "Check it: psofed.compare(scenario)",
    ]


def test_the_next_step_is_a_command_where_the_file_is_known() -> None:
    assert REPORT.to_text(file="fleet.toml").endswith("Check it: psofed compare fleet.toml")


def test_long_tables_are_cut_in_a_terminal_and_whole_in_latex() -> None:
    rows = tuple((f"row {n}", Measured(0.1), None) for n in range(60))
    long = Report("Many.", tables=(Table("", COLUMNS, rows),))
    assert "… 50 more rows" in long.to_text(rows=10)
    assert "row 59" in long.to_latex()


def test_latex_escapes_what_means_something_to_it() -> None:
    latex = REPORT.to_latex()
    assert r"a | b\_c \& d" in latex
    assert r"\begin{tabular}{lrrr}" in latex
    assert r"95\,\% interval" in latex
    assert r"\textbf{$-$20.00}" in latex
    assert latex.count(r"\\") == 4


def test_latex_has_the_columns_that_are_asked_for() -> None:
    titles = [column.title for column in COLUMNS]
    assert r"\begin{tabular}{lr}" in REPORT.to_latex(columns=[titles[0], titles[2]])
    with pytest.raises(InvalidValueError, match="columns must be columns of one table"):
        REPORT.to_latex(columns=["colour"])


def test_a_sweep_becomes_a_latex_table_of_rows_by_columns() -> None:
    base = psofed.Scenario(num_clients=10, dimension=3, iterations=100)
    grid = {"num_shared": [1, 3], "stepsize": [0.1, 1.0], "uplink": ["same", "redrawn"]}
    sweep = psofed.sweep(base, grid, trials=2)
    latex = sweep.to_latex("stepsize", metric="server_msd")
    assert r"shared parameters M & uploads come from & stepsize $\mu$ = 0.1 (dB)" in latex
    assert latex.count(" & ") == 3 * 5
    assert latex.count(r"\textbf") == 2
    assert "Steady-state server MSD" in latex
    assert sweep.select(stepsize=0.1, uplink="same").to_latex(columns="num_shared").count(r"\textbf") == 2


def test_html_escapes_every_text() -> None:
    table = Table("<i>", (Column("<b>"),), (("<u>",),), ("<s>",))
    made = Report("<script>", "<p>", (table,), ("<em>",), NextStep("<a>", "<code2>")).to_html()
    for tag in ("<script>", "<p>", "<i>", "<b>", "<u>", "<s>", "<em>", "<a>", "<code2>"):
        assert made.count(tag) == (1 if tag == "<b>" else 0)  # the headline's own


def test_a_row_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="a row of 1 cells in a table of 3 columns"):
        Table("", COLUMNS, (("x",),))


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Measured(0.1, 0.098, 0.102), "−10.00 ± 0.09"),
        (Measured(0.1, 0.02, 0.11), "−10.00 [−16.99 … −9.59]"),
        (Measured(0.1), "−10.00"),
        (Measured(math.nan), "–"),
    ],
)
def test_intervals_without_a_column_stand_behind_the_number(cell: Measured, text: str) -> None:
    assert Table("", (Column("", Kind.LEVEL),), ((cell,),)).written()[2] == [[text]]


# Charts.


def chart() -> Chart:
    x = np.arange(1.0, 6.0)
    y = np.array([-1.0, -2.0, np.nan, 30.0, np.inf])
    series = Series("a $ b", x, y, y - 1, y + 1, marker="o", is_median=x == 2, is_lost=x == 5)
    return Chart("costs $5", Scale("x", log=True), Scale("y", limits=(-4.0, 4.0)), (series,))


def test_charts_mark_what_diverged_and_what_lies_above() -> None:
    figure = draw_chart(chart())
    axes = figure.axes[0]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == [r"a \$ b", "some trials diverged", "above the picture", "median, heavy tails"]
    assert axes.get_ylim() == (-4.0, 4.0)


def test_rows_and_panels_are_drawn() -> None:
    values = np.array([0.1, np.inf, np.nan])
    rows = RowChart("t", Scale("x"), ("a", "b", "c"), values, values - 1, values + 1)
    panels = Panels("both", (rows, chart(), chart()), 2, size=(8.0, 5.0))
    assert figure_to_png(draw_chart(panels)).startswith(b"\x89PNG")


def test_a_row_beyond_the_axis_shows_its_number_and_the_rest_of_its_interval() -> None:
    values = np.array([-22.5, 2.0])
    scale = Scale("x", limits=(-20.0, 5.0))
    chart = RowChart("t", scale, ("far", "near"), values, values - 7, values + 7)
    axes = draw_chart(chart).axes[0]
    assert [(text.get_text(), text.xy) for text in axes.texts] == [("−22.5", (-15.5, 0))]
    assert [tuple(ends[:, 0]) for ends in axes.collections[0].get_segments()] == [(-29.5, -15.5), (-5.0, 9.0)]


def test_a_chart_fits_a_journals_column_and_axes_of_ones_own() -> None:
    for width, inches in (("column", 3.5), ("page", 7.16), ("5.5", 5.5), (4, 4.0)):
        assert draw_chart(chart(), width=width).get_size_inches()[0] == inches
    own = Figure()
    axes = own.subplots()
    single = Panels("", (chart(),), 1, shared=True, x="shared parameters M", y="dB")
    assert draw_chart(single, axes) is own
    assert axes.get_xlabel() == "shared parameters M"
    assert axes.get_legend() is not None
    with pytest.raises(InvalidValueError, match="the picture has 2 panels"):
        draw_chart(Panels("", (chart(), chart()), 2), axes)
    for width in ("wide", 0.1, True):
        with pytest.raises(InvalidValueError, match=r'width must be "column", "page", or 1 to 50 inches'):
            draw_chart(chart(), width=width)
    with pytest.raises(InvalidValueError, match="absent where ax is given"):
        draw_chart(chart(), axes, "page")
    with pytest.raises(InvalidValueError, match="ax must be axes of Matplotlib"):
        draw_chart(chart(), 3)


def test_the_same_chart_is_saved_as_the_same_bytes(tmp_path) -> None:
    for suffix in (".png", ".svg", ".pdf"):
        contents = []
        for name in ("a", "b"):
            save_figure(draw_chart(chart()), tmp_path / f"{name}{suffix}")
            contents.append((tmp_path / f"{name}{suffix}").read_bytes())
        assert contents[0] == contents[1]


SHOWN = """
import sys
import psofed
fleet = psofed.Scenario(num_clients=6, dimension=3, iterations=40)
result = psofed.simulate(fleet, trials=3)
figure = result.plot()
# As a notebook does: it asks an object for what it can show, and nothing has set Matplotlib up.
assert figure._repr_png_()[0].startswith(b"\\x89PNG")
assert "matplotlib.pyplot" not in sys.modules
for shown in (fleet, result, result.network_mse):
    assert len(repr(shown)) < 1500, repr(shown)
    assert shown._repr_html_().startswith("<"), shown
print("shown")
"""


@pytest.mark.slow
def test_results_and_figures_show_themselves_in_a_fresh_notebook() -> None:
    done = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True)
    assert done.stdout == "shown\n"
