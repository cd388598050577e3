"""``psofed predict``: predict what simulating a scenario will show."""

import typer

from psofed.cli.flags import Given, command
from psofed.cli.inputs import OptionalScenario, TableOptions, read_table
from psofed.cli.outputs import Output
from psofed.common.options import option
from psofed.common.settings import call_with
from psofed.settings.data import DataSettings
from psofed.settings.theory import PredictionSettings


class PredictionOutput(Output):
    """How a prediction is printed."""

    curve: bool = option(default=False, text="also predict the learning curve")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    command(app)(predict)


def predict(
    source: OptionalScenario,
    settings: PredictionSettings,
    table: TableOptions,
    reading: Given[DataSettings],
    output: PredictionOutput,
) -> None:
    """Predict what simulating a scenario will show: errors, their sources, stability and the best stepsize.

    With --data, covariances and noise are measured in your table.
    """
    from psofed.theory.prediction import predict as run_prediction

    prediction = call_with(run_prediction, source.fit(read_table(table, reading)), settings)
    value, report = prediction.to_json(), prediction.report()
    if output.curve:
        from psofed.theory.reports import curve_table

        curve = prediction.learning_curve()
        value["curve"] = {
            name: getattr(curve, name).tolist() for name in ("network_mse", "server_msd", "test_mse")
        }
        report = report.adding(tables=(curve_table(prediction),))
    output.show(value, report, file=source.file)
