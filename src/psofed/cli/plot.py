"""``psofed plot``: draw a saved result."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from psofed.cli.completion import complete_metrics
from psofed.cli.inputs import Plugins
from psofed.cli.outputs import print_json
from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.common.settings import Settings

if TYPE_CHECKING:
    from psofed.render.charts import AnyChart
    from psofed.studies.sweeps import SweepResult


class SavedResult(Plugins):
    """A result, and the picture to draw of it."""

    group = "Output"

    result: Path = option(
        positional=True,
        metavar="RESULT",
        text="result saved by another command: NetCDF (.nc; also of reproduce), or a sweep's folder",
    )
    picture: Path = option(positional=True, metavar="PICTURE", text="picture to write (.png, .svg or .pdf)")
    width: str | None = option(
        default=None, metavar="WIDTH", text="width of the picture: column or page of a journal, or inches"
    )
    as_json: bool = option(default=False, flag="--json", text="print JSON instead of text")


class SweepLayout(Settings):
    """How a sweep is laid out in a picture."""

    group = "Sweeps only"

    x: str | None = option(default=None, metavar="FIELD", text="field along the horizontal axis")
    hue: str | None = option(default=None, metavar="FIELD", text="field shown by colour")
    col: str | None = option(default=None, metavar="FIELD", text="field of the columns of panels")
    row: str | None = option(default=None, metavar="FIELD", text="field of the rows of panels")
    metric: str | None = option(
        default=None,
        metavar="METRIC",
        complete=complete_metrics,
        text="metric to draw: network_mse, honest_mse, server_msd, test_mse or your own; by default that which "
        "the sweep ranks by",
    )
    theory: bool = option(default=False, text="show the exact theory as lines beside the points")
    only: Sequence[str] = option(
        default=(), metavar="FIELD=VALUE", repeat=True, text="draw only the points with this value; repeatable"
    )


def plot(source: SavedResult, layout: SweepLayout) -> None:
    """Draw a saved result: a simulation's learning curves, a sweep, or a figure of the paper.

    A sweep is drawn over one field, with colours for another and panels for two more. Fields that you do not assign
    are assigned automatically.
    """
    from psofed.paper.charts import figure_chart
    from psofed.paper.model import FigureData, read_figure
    from psofed.render.figures import draw_chart, save_figure
    from psofed.render.style import check_picture_format
    from psofed.results import SimulationResult
    from psofed.studies.sweeps import SweepResult, load_result

    check_picture_format(source.picture)
    source.load()
    result = read_figure(source.result) or load_result(source.result)
    if isinstance(result, SweepResult):
        chart: AnyChart = _select(result, layout.only).chart(
            layout.metric, layout.theory, x=layout.x, hue=layout.hue, col=layout.col, row=layout.row
        )
    else:
        kinds = {SimulationResult: "a simulation", FigureData: "a figure"}
        for name, field in layout.options().items():
            if getattr(layout, name) != field.default:
                raise PsofedError(f"--{name} is for sweeps, but {source.result} is {kinds[type(result)]}.")
        chart = figure_chart(result) if isinstance(result, FigureData) else result.chart()
    save_figure(draw_chart(chart, width=source.width), source.picture)
    if source.as_json:
        print_json({"picture": str(source.picture)})
    else:
        typer.echo(f"Drew {source.result} as {source.picture}.")


def _select(result: "SweepResult", only: Sequence[str]) -> "SweepResult":
    from psofed.scenario.changes import parse_setting

    where: dict[str, list[Any]] = {}
    for text in only:
        field, value = parse_setting(text, "--only")
        where.setdefault(field, []).append(value)
    return result.select(where)
