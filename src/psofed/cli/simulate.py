"""``psofed simulate``: simulate a scenario and say what came out."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from psofed.cli.common import (
    AsJson,
    Plugins,
    Settings,
    decibels,
    number,
    print_json,
    progress,
)
from psofed.cli.own_data import (
    ClientColumn,
    DataFile,
    Epochs,
    Features,
    LeaveOut,
    MinRows,
    OptionalScenarioFile,
    TargetColumn,
    print_data_summary,
    read_own_data,
    scenario_for,
)

if TYPE_CHECKING:
    from psofed.results import Difference, SimulationResult

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
    out: Annotated[Path | None, typer.Option(metavar="PATH", help="Save the result as NetCDF (.nc).")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Draw the learning curves (.png, .svg or .pdf).")
    ] = None,
    versus: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare with a second scenario, trial by trial; --set changes both."
        ),
    ] = None,
    table: DataFile = None,
    client_column: ClientColumn = None,
    target_column: TargetColumn = None,
    features: Features = None,
    epochs: Epochs = 1,
    min_rows: MinRows = None,
    leave_out: LeaveOut = None,
    settings: Settings = [],  # noqa: B006 (Typer reads it, nobody writes it)
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Simulate a scenario many times over and report MSE and MSD with their uncertainty.

    With --data clients learn from a table of yours; each is compared with itself alone and with all data pooled.

    With --versus a second scenario is simulated on the same draws, and the difference said in dB and per cent; --plot
    draws it.
    """
    data = read_own_data(table, client_column, target_column, features, epochs, min_rows, leave_out)
    scenario = scenario_for(file, settings, plugins, data)
    other = None if versus is None else scenario_for(versus, settings, plugins, data)
    if plot is not None:
        from psofed.plots.curves import check_picture_format

        check_picture_format(plot)
    if out is not None:
        if other is not None:
            from psofed.common.errors import InvalidValueError

            raise InvalidValueError(
                "out", str(out), "nothing with --versus: a file keeps one result, not two"
            )
        from psofed.results.netcdf import check_netcdf_name

        check_netcdf_name(out)
    from psofed.simulation.monte_carlo import simulate as run

    with progress("simulating") as report:
        result = run(scenario, trials, seed, threads, tail=tail, progress=report, data=data)
    if other is not None:
        with progress("simulating the second") as report:
            second = run(other, trials, seed, threads, tail=tail, progress=report, data=data)
        found = result - second
    if out is not None:
        result.save(out)
    if plot is not None:
        from psofed.plots.curves import plot_learning_curves, save_figure

        save_figure(plot_learning_curves(result) if other is None else found.plot(), plot)
    if as_json:
        more = {} if other is None else {"versus": second.to_json(), "difference": found.to_json()}
        print_json(result.to_json() | more)
    elif other is not None:
        _print_difference(found, _names(file, versus), (result, second))
    else:
        _print_summary(result)
        if data is not None:
            print_data_summary(data, result)


def _print_summary(result: "SimulationResult") -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from psofed.results.metrics import ALL_TITLES

    scenario, console = result.scenario, Console()
    table = Table(
        title=f"Steady state: last {result.tail} of {scenario.iterations} iterations, {result.trials} trials"
    )
    for heading in ("", "mean", "standard error", "95 % interval", "in dB"):
        table.add_column(heading, justify="left" if not heading else "right")
    for metric, value in result.estimates().items():
        if math.isnan(value.mean):
            continue  # not measured
        low, high = value.interval
        error = (
            "–" if math.isnan(value.standard_error) or value.is_heavy_tailed else number(value.standard_error)
        )
        table.add_row(ALL_TITLES[metric], number(value.mean), error, _ends(low, high), decibels(value.mean))
        if not value.is_typical and result.trials > 1:
            middle, (low, high) = value.median, value.median_interval
            table.add_row("  median", number(middle), "", _ends(low, high), decibels(middle))
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
    for line in result.remarks():
        console.print(f"[bold]Note:[/bold] {escape(line)}")


def _ends(low: float, high: float) -> str:
    return "–" if math.isnan(low) else f"{number(low)} … {number(high)}"


def _names(file: Path | None, versus: Path | None) -> tuple[str, str]:
    first = "the data's own scenario" if file is None else str(file)
    return first, f"{versus} (the second)" if file == versus else str(versus)


def _print_difference(
    found: "Difference", names: tuple[str, str], results: "tuple[SimulationResult, SimulationResult]"
) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from psofed.results.metrics import ALL_TITLES
    from psofed.results.show import show_estimate

    console = Console()
    table = Table(title="Steady state, 95 % intervals", title_justify="left")
    for heading in ("", *names, "difference"):
        table.add_column(escape(heading), justify="left" if not heading else "right")
    every = [result.estimates() for result in results]
    for metric in found.metrics:
        shown = ["\n".join(filter(None, show_estimate(estimates[metric]))) for estimates in every]
        low, high = found[metric].interval
        ends = "" if math.isnan(low) else f"\n{low:+.2f} … {high:+.2f} dB"
        table.add_row(ALL_TITLES[metric], *shown, f"{found[metric].decibels:+.2f} dB{ends}")
    console.print(table)
    console.print(escape(found.describe("network_mse", *names)), highlight=False)
    for name, result in zip(names, results, strict=True):
        for line in result.remarks():
            console.print(f"[bold]Note[/bold] on {escape(name)}: {escape(line)}")
