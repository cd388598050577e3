"""``psofed predict``: what theory says a scenario will show."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from psofed.cli.common import (
    AsJson,
    Plugins,
    ScenarioFile,
    Settings,
    print_json,
    read_scenario_with,
)

if TYPE_CHECKING:
    from psofed.theory.prediction import Prediction


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(predict)


def predict(
    file: ScenarioFile,
    theory: Annotated[
        str, typer.Option(help='"exact", or "paper" for the paper\'s approximation.')
    ] = "exact",
    small_stepsize: Annotated[
        bool, typer.Option("--small-stepsize", help="Paper's theory: drop terms of order stepsize squared.")
    ] = False,
    curve: Annotated[bool, typer.Option("--curve", help="Also predict the learning curve.")] = False,
    as_json: AsJson = False,
    settings: Settings = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Predict what simulating a scenario will show: errors, their sources, stability, the best stepsize."""
    from psofed.theory.prediction import predict as predict_

    prediction = predict_(read_scenario_with(file, settings, plugins), theory, small_stepsize)
    if as_json:
        print_json(prediction.to_json() | ({"curve": _curve(prediction)} if curve else {}))
        return
    from psofed.render.text import print_report

    report = prediction.report()
    if curve:
        from psofed.theory.reports import curve_table

        report = report.adding(tables=(curve_table(prediction),))
    print_report(report, file=str(file))


def _curve(prediction: "Prediction") -> dict[str, Any]:
    curve = prediction.learning_curve()
    return {name: getattr(curve, name).tolist() for name in ("network_mse", "server_msd", "test_mse")}
