"""``psofed sweep``: simulate every combination of values in a grid file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from psofed.cli.common import AsJson, Plugins, load_plugins, print_json, progress

GridFile = Annotated[
    Path, typer.Argument(metavar="GRID", help="Grid, a TOML file: \\[base] scenario and \\[grid] lists.")
]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Run on the Dask cluster at tcp://host:port."),
]


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(sweep)


def sweep(
    grid: GridFile,
    trials: Annotated[int | None, typer.Option(help="Trials of each point, instead of the file's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all points, instead of the file's.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="Points computed at once; all cores by default.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write sweep.nc, sweep.csv and the finished cells here."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the result (.svg, .png or .pdf).")
    ] = None,
    cluster: Cluster = None,
    as_json: AsJson = False,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Simulate every combination of values in a grid file; run it again to go on where it was stopped.

    Finished points are kept in DIR/cells and never computed twice.
    """
    import dataclasses

    from psofed.render.figures import save_figure
    from psofed.render.style import check_picture_format
    from psofed.render.text import print_report
    from psofed.sweeps import CellStore, SweepResult, read_grid, run_sweep
    from psofed.sweeps.chart import choose_layout
    from psofed.sweeps.execute import connect

    if plot is not None:
        check_picture_format(plot)
    load_plugins(plugins)
    description = read_grid(grid)
    changes: dict[str, Any] = {
        name: value for name, value in (("trials", trials), ("seed", seed)) if value is not None
    }
    description = dataclasses.replace(description, **changes)
    store = CellStore(out / "cells") if out is not None else None
    if plot is not None:
        choose_layout(
            SweepResult(description, ())
        )  # refuses what cannot be drawn, before anything is computed
    with stopped_by_hand(), connect(cluster) as executor, progress("sweep", "points") as report:
        result = run_sweep(description, threads=threads, executor=executor, store=store, progress=report)
    if store is not None and store.damaged:
        typer.echo(f"psofed: {len(store.damaged)} damaged cells were computed again", err=True)
    if out is not None:
        result.save(out)
    if plot is not None:
        save_figure(result.plot(), plot)
    if as_json:
        print_json(result.to_json())
        return
    print_report(result.report(), file=str(grid), rows=200)


@contextmanager
def stopped_by_hand() -> Iterator[None]:
    """End with exit code 130 where a sweep is interrupted, and say how much of it is kept."""
    from psofed.sweeps import SweepInterrupted

    try:
        yield
    except SweepInterrupted as stopped:
        hint = "" if stopped.is_kept else " (--out DIR keeps them)"
        typer.echo(f"psofed: {stopped}{hint}", err=True)
        raise typer.Exit(130) from None
