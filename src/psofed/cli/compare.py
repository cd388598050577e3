"""``psofed compare``: simulate and predict the same scenario."""

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
from psofed.cli.simulate import Seed, Threads

if TYPE_CHECKING:
    from psofed.comparison import Comparison


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(compare)


def compare(
    file: ScenarioFile,
    trials: Annotated[int, typer.Option(min=2, help="Independent repetitions.")] = 200,
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
    from psofed.comparison import compare as run

    with progress("simulating") as report:
        found = run(scenario, trials, seed, threads, theory=theory, progress=report)
    if plot is not None:
        from psofed.plots.curves import save_figure

        save_figure(found.plot(), plot)
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    raise typer.Exit(0 if found.agrees else 1)


def _print(found: "Comparison") -> None:
    from rich.console import Console
    from rich.table import Table

    from psofed.comparison import TOLERANCES
    from psofed.comparison.agreement import HEAD
    from psofed.results import METRIC_TITLES

    result, theory = found.simulation, found.prediction.theory
    table = Table(title=f"{result.trials} trials against the {theory} theory", title_justify="left")
    for name in HEAD:
        table.add_column(name, justify="right" if name else "left")
    for row in found.rows():
        table.add_row(*row)
    console = Console()
    console.print(table)
    allowed = ", ".join(
        f"{tolerance:.1%} for {METRIC_TITLES[metric]}" for metric, tolerance in TOLERANCES.items()
    )
    console.print(f"allowed: {found.standard_errors:.2g} standard errors, or {allowed}, whichever is more")
    console.print(found.verdict if found.agrees else f"[bold]{found.verdict}[/bold]")
    for metric, change in result.unsteady_metrics.items():
        console.print(
            f"note: the simulated {METRIC_TITLES[metric]} still changes by {change:+.1%} within its tail"
        )
