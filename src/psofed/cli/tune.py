"""``psofed tune``: find the best stepsize and number of shared parameters by theory."""

from psofed.cli.flags import Given
from psofed.cli.inputs import ScenarioInput
from psofed.cli.outputs import PlotOutput, compute
from psofed.settings.data import DataSettings
from psofed.settings.theory import TuningSettings


def tune(settings: TuningSettings, source: ScenarioInput, reading: Given[DataSettings], output: PlotOutput) -> None:
    """Find the best stepsize for each number of shared parameters, and recommend one.

    With --data, covariances and noise are measured in your table.
    """
    scenario = source.fit(reading)
    output.check()
    from psofed.theory.tuning import tune as run_tuning

    tuning = compute("tuning", run_tuning, scenario, settings, "numbers of shared parameters")
    output.present(tuning, source, reading, settings)
