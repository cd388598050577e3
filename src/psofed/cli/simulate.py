"""``psofed simulate``: simulate a scenario and say what came out."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psofed.cli.common import (
    AsJson,
    Plugins,
    Settings,
    decibels,
    print_json,
    progress,
)
from psofed.cli.own_data import (
    ClientColumn,
    DataFile,
    Epochs,
    Features,
    OptionalScenarioFile,
    TargetColumn,
    print_data_summary,
    read_own_data,
    scenario_for,
)

if TYPE_CHECKING:
    from psofed.results import SimulationResult

Trials = Annotated[int, typer.Option(min=1, help="Independent repetitions.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of all randomness but the fleet's.")]
Threads = Annotated[
    int | None, typer.Option(min=1, help="Threads; all cores by default. Never changes the result.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(simulate)


def simulate(
    file: OptionalScenarioFile = None,
    trials: Trials = 100,
    seed: Seed = 0,
    threads: Threads = None,
    tail: Annotated[
        int | None,
        typer.Option(min=1, help="Iterations at the end taken as steady state; a fifth by default."),
    ] = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(metavar="PATH", help="Save the result as NetCDF.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Draw the learning curves (.png, .svg or .pdf).")
    ] = None,
    table: DataFile = None,
    client_column: ClientColumn = None,
    target_column: TargetColumn = None,
    features: Features = None,
    epochs: Epochs = 1,
    settings: Settings = [],  # noqa: B006 (Typer reads it, nobody writes it)
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Simulate a scenario many times over and report MSE and MSD with their uncertainty.

    With --data clients learn from a table of yours; each is compared with itself alone and with all data pooled.
    """
    data = read_own_data(table, client_column, target_column, features, epochs)
    scenario = scenario_for(file, settings, plugins, data)
    if plot is not None:
        from psofed.plots.curves import check_picture_format

        check_picture_format(plot)
    from psofed.simulation.monte_carlo import simulate as run

    with progress("simulating") as report:
        result = run(scenario, trials, seed, threads, tail=tail, progress=report, data=data)
    if out is not None:
        result.save(out)
    if plot is not None:
        from psofed.plots.curves import plot_learning_curves, save_figure

        save_figure(plot_learning_curves(result), plot)
    if as_json:
        print_json(result.to_json())
    else:
        _print_summary(result)
        if data is not None:
            print_data_summary(data, result)


def _print_summary(result: "SimulationResult") -> None:
    from rich.console import Console
    from rich.table import Table

    from psofed.results import METRIC_TITLES

    scenario, console = result.scenario, Console()
    table = Table(
        title=f"Steady state: last {result.tail} of {scenario.iterations} iterations, {result.trials} trials"
    )
    for heading in ("", "mean", "standard error", "95 % interval", "in dB"):
        table.add_column(heading, justify="left" if not heading else "right")
    for metric, title in METRIC_TITLES.items():
        value = getattr(result, metric)
        low, high = value.interval
        table.add_row(
            title,
            f"{value.mean:.6f}",
            f"{value.standard_error:.6f}",
            f"{low:.6f} … {high:.6f}",
            decibels(value.mean),
        )
    console.print(table)
    traffic = result.communication
    console.print(
        f"Traffic per iteration: {traffic.numbers_down:g} numbers down and {traffic.numbers_up:g} up, "
        f"{traffic.ratio_to_full_sharing:.0%} of full sharing."
    )
    if result.tracking is not None:
        console.print(result.tracking.describe())
    if result.defence is not None:
        console.print(result.defence.describe())
    console.print(f"{result.client_updates_per_second / 1e6:.1f} million client updates per second.")
    for line in _warnings(result):
        console.print(f"[bold]Note:[/bold] {line}")


def _warnings(result: "SimulationResult") -> list[str]:
    from psofed.results import METRIC_TITLES

    lines = []
    diverged = result.diverged_trials
    if diverged.size:
        times = result.diverged_at[diverged]
        lines.append(
            f"{diverged.size} of {result.trials} trials diverged (trial {diverged[times.argmin()]} first, "
            f"at iteration {times.min()}): the stepsize {result.scenario.stepsize:g} is too large for this fleet."
        )
    remedy = (
        "the data are not stationary"
        if "data" in result.details
        else "no steady state yet, give more iterations"
    )
    for metric, change in result.unsteady_metrics.items():
        lines.append(f"the {METRIC_TITLES[metric]} still changes by {change:+.1%} within the tail: {remedy}.")
    return [*lines, *(f"{note}." for note in result.notes)]
