"""``psofed compare``: simulate and predict the same scenario."""

from pathlib import Path
from typing import Annotated

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
        from psofed.render.style import check_picture_format

        check_picture_format(plot)
    from psofed.comparison import compare as run

    with progress("simulating") as report:
        found = run(scenario, trials, seed, threads, theory=theory, progress=report)
    if plot is not None:
        from psofed.render.figures import save_figure

        save_figure(found.plot(), plot)
    if as_json:
        print_json(found.to_json())
    else:
        from psofed.render.text import print_report

        print_report(found.report(), file=str(file))
    raise typer.Exit(0 if found.agrees else 1)
