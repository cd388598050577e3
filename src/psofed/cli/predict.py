"""``psofed predict``: what theory says a scenario will show."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from psofed.cli.common import (
    AsJson,
    Plugins,
    ScenarioFile,
    Settings,
    decibels,
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
    _print(prediction)
    if curve:
        _print_curve(prediction)


def _curve(prediction: "Prediction") -> dict[str, Any]:
    curve = prediction.learning_curve()
    return {name: getattr(curve, name).tolist() for name in ("network_mse", "server_msd", "test_mse")}


def _print(prediction: "Prediction") -> None:
    from rich.console import Console
    from rich.table import Table

    scenario, terms = prediction.scenario, prediction.terms
    table = Table(title=f"{prediction.theory} theory, steady state", title_justify="left")
    table.add_column("")
    table.add_column("linear", justify="right")
    table.add_column("dB", justify="right")
    rows = [
        ("network MSE", prediction.network_mse),
        ("  from the data's noise, through the models", terms.data),
        ("  from the attack", terms.attack),
        ("  from the noise itself", terms.noise),
        *([("  from the target's walk", terms.drift)] if prediction.model.walk else []),
        *([("  from targets of their own", terms.targets)] if terms.targets else []),
        ("server MSD", prediction.server_msd),
        ("test MSE", prediction.test_mse),
        *_evasion_rows(prediction),
    ]
    for name, value in rows:
        table.add_row(name, f"{value:.6g}", decibels(value) if value != 0 else "none")
    console = Console()
    console.print(table)
    console.print(f"spectral radius        {prediction.spectral_radius:.6f}")
    limit = "paper's bound" if prediction.theory == "paper" else "limit"
    console.print(f"largest stepsize       {prediction.max_stepsize:.5g} ({limit}, mean square); "
                  f"{prediction.mean_max_stepsize:.5g} (mean)")  # fmt: skip
    if prediction.optimal_stepsize > 0:
        console.print(f"best stepsize          {prediction.optimal_stepsize:.5g} (now {scenario.stepsize:g})")
    else:
        console.print("best stepsize          0: without an attack, the smaller the better")
    error = prediction.steady_state.sampling_error if prediction.is_stable else None
    if error is not None and error.server > 0:
        console.print(
            f"averaged over a sample of the clients' offsets: standard error {error.excess:.2g} in network MSE, "
            f"{error.server:.2g} in server MSD"
        )
    if not prediction.is_stable:
        console.print(
            f"[bold]unstable:[/bold] at stepsize {scenario.stepsize:g} the mean square grows without bound; "
            f"choose one below {prediction.max_stepsize:.5g}"
        )


def _evasion_rows(prediction: "Prediction") -> list[tuple[str, float]]:
    from psofed.common.errors import NotCoveredError

    try:
        found = prediction.evasion
    except NotCoveredError as error:
        from rich.console import Console

        Console(stderr=True).print(f"note: {error}", markup=False)
        return []
    if found is None:
        return []
    return [("  with moved inputs, at least", found.lower), ("  with moved inputs, at most", found.upper)]


def _print_curve(prediction: "Prediction") -> None:
    from rich.console import Console
    from rich.table import Table

    curve = prediction.learning_curve()
    last = len(curve.network_mse) - 1
    table = Table(
        "iteration", "network MSE", "server MSD", "test MSE", title="learning curve", title_justify="left"
    )
    shown = sorted({0, last, *(int(last ** (step / 12)) for step in range(13))})
    for n in shown:
        table.add_row(
            str(n), *(decibels(float(x[n])) for x in (curve.network_mse, curve.server_msd, curve.test_mse))
        )
    Console().print(table)
