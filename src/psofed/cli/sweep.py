"""``psofed sweep``: simulate every combination of values in a grid file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from psofed.cli.common import AsJson, Plugins, decibels, load_plugins, print_json, progress

GridFile = Annotated[
    Path, typer.Argument(metavar="GRID", help="Grid, a TOML file: [base] scenario and [grid] lists.")
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

    from psofed.common.errors import PsofedError
    from psofed.common.files import atomic_path
    from psofed.sweeps import CellStore, read_grid, run_sweep
    from psofed.sweeps.execute import connect

    load_plugins(plugins)
    description = read_grid(grid)
    changes: dict[str, Any] = {
        name: value for name, value in (("trials", trials), ("seed", seed)) if value is not None
    }
    description = dataclasses.replace(description, **changes)
    store = CellStore(out / "cells") if out is not None else None
    with connect(cluster) as executor, progress("sweep", "M updates") as report:
        result = run_sweep(description, threads=threads, executor=executor, store=store, progress=report)
    if store is not None and store.damaged:
        typer.echo(f"psofed: {len(store.damaged)} damaged cells were computed again", err=True)
    if out is not None:
        result.save(out)
    if plot is not None:
        from psofed.plots.sweeps import plot_sweep

        figure = plot_sweep(result)
        with atomic_path(plot) as temporary:
            try:
                figure.savefig(temporary)
            except ValueError as error:
                raise PsofedError(f"{plot}: cannot be drawn ({error})") from None
    if as_json:
        print_json(result.to_json())
        return
    names = [axis.name for axis in description.axes]
    rows = [
        [
            *(str(row[name]) for name in names),
            decibels(row["network_mse"]["mean"]),
            decibels(row["test_mse"]["mean"]),
        ]
        for row in result.points()
    ]
    _print_table([*names, "network MSE", "test MSE"], rows)


def _print_table(header: list[str], rows: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in [header, *rows]:
        typer.echo("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))
