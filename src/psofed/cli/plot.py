"""``psofed plot``: draw a saved result, the learning curves of a simulation or the facets of a sweep."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from psofed.cli.common import Plugins, load_plugins
from psofed.cli.completion import complete_metrics

if TYPE_CHECKING:
    from psofed.sweeps import SweepResult

Field = Annotated[str | None, typer.Option(metavar="FIELD", help="Sweeps: the field along the abscissa.")]
Hue = Annotated[str | None, typer.Option(metavar="FIELD", help="Sweeps: the field that colours tell apart.")]
Column = Annotated[
    str | None, typer.Option(metavar="FIELD", help="Sweeps: the field of the panels' columns.")
]
Row = Annotated[str | None, typer.Option(metavar="FIELD", help="Sweeps: the field of the panels' rows.")]
Metric = Annotated[
    str,
    typer.Option(
        help="Sweeps: network_mse, server_msd or test_mse.", autocompletion=complete_metrics, metavar="METRIC"
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(plot)


def plot(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT",
            help="A result, saved as NetCDF by another command; a sweep's folder; or advice (.json).",
        ),
    ],
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="What to write (.png, .svg or .pdf).")],
    x: Field = None,
    hue: Hue = None,
    col: Column = None,
    row: Row = None,
    metric: Metric = "network_mse",
    only: Annotated[
        list[str],
        typer.Option(metavar="FIELD=VALUE", help="Sweeps: draw only the points with this value; repeatable."),
    ] = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Draw a saved result: a simulation's learning curves, a sweep, or advice.

    A sweep is drawn over one field, in colours for another and in panels for two more; what is not given is chosen.
    """
    from psofed.advice import Advice
    from psofed.common.errors import PsofedError
    from psofed.render.figures import save_figure
    from psofed.render.style import check_picture_format
    from psofed.results import SimulationResult
    from psofed.sweeps import load_result

    check_picture_format(picture)
    load_plugins(plugins)
    found = load_result(result)
    if isinstance(found, SimulationResult | Advice):
        given = {"--x": x, "--hue": hue, "--col": col, "--row": row, "--only": only}
        for option, value in given.items():
            if value:
                what = "a simulation" if isinstance(found, SimulationResult) else "advice"
                raise PsofedError(f"{option} is for sweeps; {result} is {what}")
        save_figure(found.plot(), picture)
        return
    save_figure(_select(found, only).plot(metric, x=x, hue=hue, col=col, row=row), picture)


def _select(result: "SweepResult", only: list[str]) -> "SweepResult":
    from psofed.scenario.changes import parse_setting

    where: dict[str, list[Any]] = {}
    for text in only:
        field, value = parse_setting(text, "--only")
        where.setdefault(field, []).append(value)
    return result.select(where)
