"""``psofed predict``: predict what simulating a scenario will show."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from psofed.cli.flags import Given
from psofed.cli.inputs import ScenarioInput
from psofed.cli.outputs import ReportOutput, progress
from psofed.common.options import option
from psofed.common.settings import call_with
from psofed.settings.data import DataSettings
from psofed.settings.theory import PredictionSettings

if TYPE_CHECKING:
    from psofed.render import Report


class PredictionOutput(ReportOutput):
    """How a prediction is printed."""

    curve: bool = option(default=False, text="also predict the learning curve")
    worst: bool = option(default=False, text="also find the worst additive attacks of the same power")


def predict(
    settings: PredictionSettings, source: ScenarioInput, reading: Given[DataSettings], output: PredictionOutput
) -> None:
    """Predict errors, their sources, stability and the best stepsize, without simulating.

    With --data, covariances and noise are measured in your table.
    """
    from psofed.theory.prediction import predict as run_prediction

    scenario = source.fit(reading)
    with progress("predicting"):
        prediction = call_with(run_prediction, scenario, settings)

    def to_json() -> dict[str, Any]:
        curve = asdict(prediction.learning_curve()) if output.curve else {}
        curves = {name: values.tolist() for name, values in curve.items()}
        worst = {"worst_attack": prediction.worst_attack().to_json()["steps"]} if output.worst else {}
        return {**prediction.to_json(), **({"curve": curves} if curves else {}), **worst}

    def report() -> "Report":
        from psofed.theory.reports import curve_table

        report = prediction.report().adding(tables=(curve_table(prediction),) if output.curve else ())
        if not output.worst:
            return report
        worst = prediction.worst_attack().report()
        return report.adding(worst.headline, tables=worst.tables)

    output.present(prediction, source, reading, settings, to_json=to_json, report=report)
