"""``psofed advise``: say whether federating helps on a table of one's own."""

from pathlib import Path
from typing import Annotated

import typer

from psofed.cli.common import AsJson, Plugins, Settings, load_plugins, print_json, progress
from psofed.cli.own_data import (
    ClientColumn,
    DataFile,
    Features,
    LeaveOut,
    MinRows,
    OptionalScenarioFile,
    TargetColumn,
    read_own_data,
)


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(advise)


def advise(
    file: OptionalScenarioFile = None,
    table: DataFile = None,
    client_column: ClientColumn = None,
    target_column: TargetColumn = None,
    features: Features = None,
    min_rows: MinRows = None,
    leave_out: LeaveOut = None,
    liars: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Share of the clients that lie in a second look; 0 for none."),
    ] = 0.2,
    rule: Annotated[
        str | None,
        typer.Option(
            metavar="RULE",
            help="The robust rule that is tried beside the mean; the scenario's, or the median, by default.",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Draws of participants, masks and lies.")] = 16,
    seed: Annotated[int, typer.Option(min=0, help="Seed of these draws, and of who lies.")] = 0,
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Draw the answer (.png, .svg or .pdf).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Save everything (.json, or .nc for NetCDF), or the stations (.csv)."
        ),
    ] = None,
    settings: Settings = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Say whether the clients of your table should federate, how, and how sure that is.

    Each client alone, federations with each number of shared entries, and all data pooled are tuned on the past and
    judged by what follows. A scenario file or --set says more about the federation: num_participants (all by default),
    model, selection, pre-aggregation, defence, attack (what liars do).
    """
    if table is None:
        from psofed.common.errors import PsofedError

        raise PsofedError("advise needs --data TABLE: a CSV or Parquet file, one row per observation")
    load_plugins(plugins)
    if plot is not None:
        from psofed.render.style import check_picture_format

        check_picture_format(plot)
    if out is not None:
        from psofed.advice.advice import check_out

        check_out(out)
    data = read_own_data(
        table, client_column, target_column, features, min_rows=min_rows, leave_out=leave_out
    )
    from psofed.advice import advise as ask
    from psofed.scenario.changes import parse_setting, set_values
    from psofed.scenario.file import read_mapping

    assert data is not None
    mapping = {} if file is None else read_mapping(file)
    values = set_values(mapping, dict(parse_setting(text) for text in settings))
    with progress("comparing", "runs") as report:
        advice = ask(data, settings=values, liars=liars, rule=rule, trials=trials, seed=seed, progress=report)
    if out is not None:
        advice.save(out)
    if plot is not None:
        from psofed.render.figures import save_figure

        save_figure(advice.plot(), plot)
    if as_json:
        print_json(advice.to_json())
    else:
        from psofed.render.text import print_report

        print_report(advice.report(), file=table.name)
