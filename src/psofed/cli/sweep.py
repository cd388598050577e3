"""``psofed sweep``: simulate every combination of values in a grid file."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from psofed.cli.flags import Given
from psofed.cli.inputs import Cluster, Plugins
from psofed.cli.outputs import PlotOutput, progress
from psofed.common.options import option
from psofed.settings.sweep import SweepSettings

if TYPE_CHECKING:
    from psofed.studies.sweeps import CellStore


class GridFile(Plugins):
    """A grid file."""

    grid: Path = option(
        positional=True, metavar="GRID", text="grid, a TOML file with a [base] scenario and [grid] lists of values"
    )


class SweepOutput(PlotOutput):
    """Where a sweep goes."""

    out: Path | None = option(
        default=None, metavar="DIR", text="write sweep.nc, sweep.csv and the finished points to this folder"
    )


def sweep(source: GridFile, given: Given[SweepSettings], cluster: Cluster, output: SweepOutput) -> None:
    """Simulate every combination of values in a grid file.

    Options of the run replace what the file says. With --out, finished points are kept in DIR/cells; run the
    command again to continue an interrupted sweep.
    """
    from psofed.studies.sweeps import CellStore, SweepResult, read_grid, run_sweep

    output.check()
    source.load()
    settings = given.make()
    grid = read_grid(source.grid)
    changes = {name: getattr(settings, name) for name in given.values if name != "threads"}
    grid = dataclasses.replace(grid, **changes)
    store = CellStore(output.out / "cells") if output.out is not None else None
    if output.plot is not None:
        from psofed.studies.sweeps.chart import choose_layout

        choose_layout(SweepResult(grid, ()))  # refuses what cannot be drawn before anything is computed
    with keeping(store), cluster.connect() as executor, progress("sweep", "points") as report:
        result = run_sweep(grid, threads=settings.threads, executor=executor, store=store, progress=report)
    # With --out, the next command finds the finished points.
    where = output.replace(plot=None)
    output.present(result, source, given, cluster, where, out=output.out, rows=200)


@contextmanager
def keeping(store: "CellStore | None") -> Iterator[None]:
    """Say which points of the store were damaged; end with exit code 130 when interrupted, and say what is kept."""
    from psofed.studies.sweeps import SweepInterrupted

    try:
        yield
    except SweepInterrupted as stopped:
        hint = "" if stopped.is_kept else " (--out DIR keeps them)"
        typer.echo(f"psofed: {stopped}{hint}", err=True)
        raise typer.Exit(130) from None
    if store is not None and store.damaged:
        typer.echo(f"psofed: {len(store.damaged)} damaged points were simulated again", err=True)
