"""``psofed simulate``: simulate a scenario and report the result."""

from pathlib import Path

import typer

from psofed.cli.flags import Given, command
from psofed.cli.inputs import OptionalScenario, TableOptions, read_table
from psofed.cli.outputs import PlotOutput, progress
from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.common.settings import call_with
from psofed.settings.data import DataSettings
from psofed.settings.simulation import SimulationSettings


class SimulatedScenario(OptionalScenario):
    """A scenario file, and one to compare it with."""

    versus: Path | None = option(
        default=None,
        metavar="FILE",
        text="compare with a second scenario, trial by trial; --set changes both",
    )


class SimulationOutput(PlotOutput):
    """Where a simulation goes."""

    out: Path | None = option(default=None, text="save the result as NetCDF (.nc)")


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    command(app)(simulate)


def simulate(
    source: SimulatedScenario,
    run: SimulationSettings,
    table: TableOptions,
    reading: Given[DataSettings],
    output: SimulationOutput,
) -> None:
    """Simulate a scenario many times and report its errors with their uncertainty.

    With --data, clients learn from your table. The federation is compared with each client alone and with all data
    pooled.

    With --versus, a second scenario is simulated on the same draws and the difference is reported.
    """
    data = read_table(table, reading)
    scenario = source.fit(data)
    other = None if source.versus is None else source.replace(file=source.versus).fit(data)
    output.check()
    if output.out is not None:
        from psofed.results.netcdf import check_netcdf_name

        if other is not None:
            raise PsofedError("--out keeps one result, and --versus makes two: leave out one of them.")
        check_netcdf_name(output.out)
    from psofed.simulation.monte_carlo import simulate as run_simulation

    with progress("simulating") as report:
        result = call_with(run_simulation, scenario, run.replace(progress=report))
    if other is not None:
        with progress("simulating the second") as report:
            second = call_with(run_simulation, other, run.replace(progress=report))
        difference = (result - second).named(*_names(source))
        output.draw(difference)
        both = {"versus": second.to_json(), "difference": difference.to_json()}
        output.show(result.to_json() | both, difference.report())
        return
    if output.out is not None:
        result.save(output.out)
    output.draw(result)
    answer = result.report()
    if result.diverged_trials.size and not output.as_json:
        from psofed.theory.reports import with_remedy

        answer = with_remedy(answer, scenario)
    output.show(result.to_json(), answer, file=table.data or source.file)


def _names(source: SimulatedScenario) -> tuple[str, str]:
    first = "the data's own scenario" if source.file is None else str(source.file)
    return first, f"{source.versus} (the second)" if source.file == source.versus else str(source.versus)
