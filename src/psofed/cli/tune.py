"""``psofed tune``: find the best stepsize and number of shared entries by theory."""

import typer

from psofed.cli.flags import Given, command
from psofed.cli.inputs import OptionalScenario, TableOptions, read_table
from psofed.cli.outputs import PlotOutput, progress
from psofed.common.settings import call_with
from psofed.settings.data import DataSettings
from psofed.settings.theory import TuningSettings


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    command(app)(tune)


def tune(
    source: OptionalScenario,
    settings: TuningSettings,
    table: TableOptions,
    reading: Given[DataSettings],
    output: PlotOutput,
) -> None:
    """Find the best stepsize for each number of shared entries, and recommend one.

    With --data, covariances and noise are measured in your table.
    """
    scenario = source.fit(read_table(table, reading))
    output.check()
    from psofed.theory.tuning import tune as run_tuning

    with progress("tuning", "numbers of shared entries") as report:
        tuning = call_with(run_tuning, scenario, settings.replace(progress=report))
    output.draw(tuning)
    more = {"theory": settings.theory, "scenario": scenario.to_mapping()}
    output.show(tuning.to_json() | more, tuning.report(), file=source.file)
