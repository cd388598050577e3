"""``psofed advise``: find out whether federating helps on a table."""

from pathlib import Path

import typer

from psofed.cli.flags import Given, command
from psofed.cli.inputs import OptionalScenario, TableOptions, read_table
from psofed.cli.outputs import PlotOutput, progress
from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.common.settings import call_with
from psofed.settings.advice import AdviceSettings
from psofed.settings.data import DataSettings


class AdviceOutput(PlotOutput):
    """Where advice goes."""

    out: Path | None = option(
        default=None,
        text="save everything (.json, or .nc for NetCDF), the clients (.csv), or the plan for `federation run` (.toml)",
    )


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    command(app)(advise)


def advise(
    source: OptionalScenario,
    settings: AdviceSettings,
    table: TableOptions,
    reading: Given[DataSettings],
    output: AdviceOutput,
) -> None:
    """Find out whether your clients should federate, how, and with what confidence.

    Each client alone, federations with each number of shared entries, and all data pooled are tuned on the past and
    judged by what follows. A scenario file or --set describes the federation: num_participants (all by default),
    model, selection, pre-aggregation, defence, attack (what Byzantine clients do).
    """
    if table.data is None and source.file is None:
        raise PsofedError("advise needs --data TABLE: a CSV or Parquet file, one row per observation.")
    output.check()
    if output.out is not None:
        from psofed.studies.advice.advice import check_out

        check_out(output.out)
    data = read_table(table, reading)
    scenario = source.fit(data, {} if data is None else {"num_participants": data.num_clients})
    if scenario.data.rows is None:
        raise PsofedError(
            f"{source.file} has no data of your own: add --data TABLE, or name a file in [data]."
        )
    from psofed.studies.advice import advise as run_advice

    with progress("comparing", "runs") as report:
        advice = call_with(run_advice, scenario, settings.replace(progress=report))
    if output.out is not None:
        advice.save(output.out)
    output.draw(advice)
    output.show(advice.to_json(), advice.report(), file=table.data or source.file)
