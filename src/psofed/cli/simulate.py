"""``psofed simulate``: simulate a scenario and say what came out."""

from pathlib import Path
from typing import Annotated

import typer

from psofed.cli.common import (
    AsJson,
    Plugins,
    Settings,
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
    read_own_data,
    scenario_for,
)

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
        float, typer.Option(help="Steady state: the last iterations, by number or as a fraction below 1.")
    ] = 0.2,
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
        from psofed.render.style import check_picture_format

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
        found = (result - second).named(*_names(file, versus))
    if out is not None:
        result.save(out)
    if plot is not None:
        from psofed.render.figures import save_figure

        save_figure(result.plot() if other is None else found.plot(), plot)
    if as_json:
        more = {} if other is None else {"versus": second.to_json(), "difference": found.to_json()}
        print_json(result.to_json() | more)
        return
    from psofed.render.text import print_report

    if other is not None:
        print_report(found.report())
        return
    answer = result.report()
    if result.diverged_trials.size and data is None:
        from psofed.theory.reports import with_remedy

        answer = with_remedy(answer, scenario)
    print_report(answer, file=str(table or file or ""))


def _names(file: Path | None, versus: Path | None) -> tuple[str, str]:
    first = "the data's own scenario" if file is None else str(file)
    return first, f"{versus} (the second)" if file == versus else str(versus)
