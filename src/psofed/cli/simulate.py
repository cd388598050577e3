"""``psofed simulate``: simulate a scenario and report the result."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from psofed.cli.flags import Given
from psofed.cli.inputs import Cluster, ScenarioInput
from psofed.cli.outputs import PlotOutput, compute
from psofed.common.errors import PsofedError
from psofed.common.options import option
from psofed.settings.data import DataSettings
from psofed.settings.simulation import SimulationSettings

if TYPE_CHECKING:
    from psofed.render import Report


class SimulatedScenario(ScenarioInput):
    """A scenario file, and one to compare it with."""

    versus: Path | None = option(
        default=None, metavar="FILE", text="compare with a second scenario, trial by trial; --set changes both"
    )


class SimulationOutput(PlotOutput):
    """Where a simulation goes."""

    out: Path | None = option(default=None, text="save the result as NetCDF (.nc)")


def simulate(
    run: SimulationSettings,
    source: SimulatedScenario,
    reading: Given[DataSettings],
    cluster: Cluster,
    output: SimulationOutput,
) -> None:
    """Simulate a scenario many times and report its errors with their uncertainty.

    With --data, clients learn from your table. The federation is compared with each client alone and with all data
    pooled.

    With --versus, a second scenario is simulated on the same draws and the difference is reported.
    """
    scenario = source.fit(reading)
    rows = None if source.data is None else scenario.own_data
    other = None if source.versus is None else source.replace(file=source.versus).read(rows=rows)
    if other == scenario:
        raise PsofedError(f"--versus {source.versus}: the same scenario (--set changes both); change a copy of it.")
    output.check(output.out)
    if other is not None:
        from psofed.results.reports.difference import check_pairs

        check_pairs(scenario, other)
    if output.out is not None:
        from psofed.results.netcdf import check_netcdf_name

        if other is not None:
            raise PsofedError("--out keeps one result, and --versus makes two: leave out one of them.")
        check_netcdf_name(output.out)
    from psofed.simulation.monte_carlo import simulate as run_simulation

    with cluster.connect() as executor:
        run = run.replace(executor=executor)
        result = compute("simulating", run_simulation, scenario, run)
        if other is not None:
            second = compute("simulating the second", run_simulation, other, run)
    if other is not None:
        first = "the data's own scenario" if source.file is None else str(source.file)
        difference = (result - second).named(first, str(source.versus))

        def both() -> dict[str, Any]:
            return {**result.to_json(), "versus": second.to_json(), "difference": difference.to_json()}

        output.present(difference, source, reading, run, cluster, to_json=both)
        return

    def answer() -> "Report":
        if not result.diverged_trials.size:
            return result.report()
        from psofed.theory.reports import with_remedy

        return with_remedy(result.report(), scenario)

    output.present(result, source, reading, run, cluster, out=output.out, report=answer)
