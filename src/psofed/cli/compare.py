"""``psofed compare``: simulate and predict the same scenario."""

import typer

from psofed.cli.flags import command
from psofed.cli.inputs import ScenarioFile
from psofed.cli.outputs import PlotOutput, progress
from psofed.common.settings import call_with
from psofed.settings.theory import ComparisonSettings


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    command(app)(compare)


def compare(source: ScenarioFile, settings: ComparisonSettings, output: PlotOutput) -> None:
    """Check whether theory and simulation agree on a scenario.

    Exit code 0 if they agree, 1 if not.
    """
    scenario = source.read()
    output.check()
    from psofed.comparison import compare as run_comparison

    with progress("simulating") as report:
        comparison = call_with(run_comparison, scenario, settings.replace(progress=report))
    output.draw(comparison)
    output.show(comparison.to_json(), comparison.report(), file=source.file)
    raise typer.Exit(0 if comparison.agrees else 1)
