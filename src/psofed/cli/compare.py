"""``psofed compare``: simulate and predict the same scenario."""

import typer

from psofed.cli.flags import Given
from psofed.cli.inputs import ScenarioInput
from psofed.cli.outputs import PlotOutput, compute
from psofed.settings.data import DataSettings
from psofed.settings.theory import ComparisonSettings


def compare(
    settings: ComparisonSettings, source: ScenarioInput, reading: Given[DataSettings], output: PlotOutput
) -> None:
    """Check whether theory and simulation agree on a scenario.

    With --data, both are about your table. Exit code 0 if they agree, 1 if not.
    """
    scenario = source.fit(reading)
    output.check()
    from psofed.studies.comparison import compare as run_comparison

    comparison = compute("simulating", run_comparison, scenario, settings)
    output.present(comparison, source, reading, settings)
    raise typer.Exit(0 if comparison.agrees else 1)
