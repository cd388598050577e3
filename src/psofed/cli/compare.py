"""``psofed compare``: simulate and predict the same scenario."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psofed.cli.common import (
    AsJson,
    Plugins,
    ScenarioFile,
    Settings,
    print_json,
    progress,
    read_scenario_with,
)
from psofed.cli.simulate import Seed, Threads, Trials

if TYPE_CHECKING:
    from psofed.results import SimulationResult
    from psofed.theory.prediction import Prediction

# Agreement: within this ratio, or within so many standard errors, whichever is more.
TOLERANCES = {"network_mse": 0.005, "server_msd": 0.01, "test_mse": 0.01}
STANDARD_ERRORS = 3.5


@dataclass(frozen=True)
class Comparison:
    """One metric, simulated and predicted."""

    metric: str
    simulated: float
    standard_error: float
    predicted: float
    difference: float
    z_score: float
    agrees: bool


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(compare)


def compare(
    file: ScenarioFile,
    trials: Trials = 200,
    seed: Seed = 0,
    threads: Threads = None,
    theory: Annotated[str, typer.Option(help='"exact" or "paper".')] = "exact",
    as_json: AsJson = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Draw both learning curves (.png, .svg or .pdf).")
    ] = None,
    settings: Settings = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Simulate and predict a scenario; exit code 0 if they agree, 1 if not."""
    scenario = read_scenario_with(file, settings, plugins)
    if plot is not None:
        from psofed.plots.curves import check_picture_format

        check_picture_format(plot)
    from psofed.simulation.monte_carlo import simulate as run
    from psofed.theory.prediction import predict

    prediction = predict(scenario, theory)
    with progress("simulating") as report:
        result = run(scenario, trials, seed, threads, progress=report)
    rows = compare_metrics(result, prediction)
    agrees = all(row.agrees for row in rows)
    if plot is not None:
        from psofed.plots.curves import save_figure
        from psofed.plots.theory import plot_comparison

        save_figure(plot_comparison(result, {theory: prediction.learning_curve()}), plot)
    if as_json:
        print_json(
            {
                "agrees": agrees,
                "metrics": {
                    row.metric: {k: v for k, v in asdict(row).items() if k != "metric"} for row in rows
                },
                "tolerances": TOLERANCES,
                "standard_errors": STANDARD_ERRORS,
                "theory": theory,
                "trials": trials,
                "seed": seed,
                "scenario": scenario.to_mapping(),
            }
        )
    else:
        _print(rows, agrees, theory, result)
    raise typer.Exit(0 if agrees else 1)


def compare_metrics(result: "SimulationResult", prediction: "Prediction") -> list[Comparison]:
    """Compare every metric's steady state."""
    rows = []
    for metric, tolerance in TOLERANCES.items():
        simulated, predicted = getattr(result, metric), getattr(prediction, metric)
        difference = predicted - simulated.mean
        if not (math.isfinite(predicted) and math.isfinite(simulated.mean)):
            # Both diverge, or they disagree.
            agrees = not math.isfinite(predicted) and not math.isfinite(simulated.mean)
            rows.append(Comparison(metric, simulated.mean, math.nan, predicted, math.nan, math.nan, agrees))
            continue
        error = simulated.standard_error
        allowed = max(tolerance * simulated.mean, STANDARD_ERRORS * error)
        z_score = difference / error if error > 0 else math.nan
        agrees = abs(difference) <= allowed
        rows.append(
            Comparison(metric, simulated.mean, error, predicted, difference / simulated.mean, z_score, agrees)
        )
    return rows


def _print(rows: list[Comparison], agrees: bool, theory: str, result: "SimulationResult") -> None:
    from rich.console import Console
    from rich.table import Table

    from psofed.results import METRIC_TITLES

    table = Table(title=f"{result.trials} trials against the {theory} theory", title_justify="left")
    for name in ("", "simulated", "±", "predicted", "difference", "z", ""):
        table.add_column(name, justify="right" if name else "left")
    for row in rows:
        table.add_row(
            METRIC_TITLES[row.metric],
            f"{row.simulated:.6g}",
            f"{row.standard_error:.2g}",
            f"{row.predicted:.6g}",
            f"{row.difference:+.2%}",
            f"{row.z_score:+.2f}",
            "agrees" if row.agrees else "DIFFERS",
        )
    console = Console()
    console.print(table)
    allowed = ", ".join(
        f"{tolerance:.1%} for {METRIC_TITLES[metric]}" for metric, tolerance in TOLERANCES.items()
    )
    console.print(f"allowed: {STANDARD_ERRORS} standard errors, or {allowed}, whichever is more")
    console.print("agreement" if agrees else "[bold]no agreement[/bold]")
    for metric, change in result.unsteady_metrics.items():
        console.print(
            f"note: the simulated {METRIC_TITLES[metric]} still changes by {change:+.1%} within its tail"
        )
