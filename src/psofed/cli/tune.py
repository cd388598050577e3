"""``psofed tune``: set up a fleet from theory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psofed.cli.common import AsJson, Plugins, Settings, print_json, progress
from psofed.cli.own_data import (
    ClientColumn,
    DataFile,
    Epochs,
    Features,
    LeaveOut,
    MinRows,
    OptionalScenarioFile,
    TargetColumn,
    read_own_data,
    scenario_for,
)

if TYPE_CHECKING:
    pass


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(tune)


def tune(
    file: OptionalScenarioFile = None,
    metric: Annotated[str, typer.Option(help="What to make small: network, test or msd.")] = "network",
    shared: Annotated[
        str | None,
        typer.Option(metavar="1..D", help="Numbers of shared entries: 1..5, or 1,2,5; all by default."),
    ] = None,
    theory: Annotated[str, typer.Option(help='"exact" or "paper".')] = "exact",
    horizon: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Make the mean error over the first N iterations small. Default: the steady state's; the mean over "
            "the scenario's iterations with --data, and without an attack or a walk.",
        ),
    ] = None,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Draw the error over the stepsize (.png, .svg or .pdf)."),
    ] = None,
    table: DataFile = None,
    client_column: ClientColumn = None,
    target_column: TargetColumn = None,
    features: Features = None,
    epochs: Epochs = 1,
    min_rows: MinRows = None,
    leave_out: LeaveOut = None,
    settings: Settings = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Find the best stepsize for each number of shared entries, and recommend what to use.

    With --data the fleet's covariances and noise are measured in a table of yours.
    """
    data = read_own_data(table, client_column, target_column, features, epochs, min_rows, leave_out)
    scenario = scenario_for(file, settings, plugins, data)
    measured = None
    if data is not None:
        from psofed.fleet.fitting import measured_scenario

        measured = data.fleet(scenario.model.make_features(data.num_columns, scenario.dimension))
        scenario = measured_scenario(scenario, data)
    if plot is not None:
        from psofed.render.style import check_picture_format

        check_picture_format(plot)
    from psofed.theory.tuning import tune as tune_

    counts = parse_shared(shared, scenario.dimension)
    if data is not None and horizon is None:
        horizon = scenario.iterations  # data of one's own end, most before a steady state
    with progress("tuning", "choices of M") as report:
        tuning = tune_(scenario, metric, counts, theory, horizon, report, measured)
    if plot is not None:
        from psofed.render.figures import save_figure

        save_figure(tuning.plot(), plot)
    if as_json:
        print_json(tuning.to_json() | {"theory": theory, "scenario": scenario.to_mapping()})
    else:
        from psofed.render.text import print_report

        found = tuning.report()
        if data is not None:
            from psofed.theory.reports import measured_notes

            found = found.adding(*measured_notes(scenario))
        print_report(found, file=str(file or ""))


def parse_shared(text: str | None, dimension: int) -> tuple[int, ...]:
    """Read ``1..5``, ``1,2,5`` or ``3``.

    Examples
    --------
    >>> parse_shared("2..4", 5), parse_shared("1,5", 5), parse_shared(None, 3)
    ((2, 3, 4), (1, 5), (1, 2, 3))
    """
    from psofed.common.errors import InvalidValueError

    if text is None:
        return tuple(range(1, dimension + 1))
    low, dots, high = text.partition("..")
    try:
        counts = range(int(low), int(high) + 1) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        counts = []
    if not counts or min(counts) < 1 or max(counts) > dimension:
        allowed = f"numbers from 1 to dimension = {dimension}, as 1..{dimension} or 1,{dimension}"
        raise InvalidValueError("--shared", text, allowed)
    return tuple(counts)
