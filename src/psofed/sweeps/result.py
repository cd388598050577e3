"""What a sweep found: labelled by the fields that vary, saved as NetCDF, CSV and JSON."""

import csv
import itertools
import math
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed._version import __version__
from psofed.common.files import atomic_path
from psofed.common.numbers import finite_or_none
from psofed.common.types import ProgressCallback
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario
from psofed.sweeps.cell import CellResult
from psofed.sweeps.execute import run_cells
from psofed.sweeps.grid import Grid, make_grid
from psofed.sweeps.store import CellStore

if TYPE_CHECKING:
    import xarray


def run_sweep(
    grid: Grid,
    *,
    threads: int | None = None,
    executor: Executor | None = None,
    store: CellStore | None = None,
    progress: ProgressCallback | None = None,
) -> "SweepResult":
    """Simulate every point of a grid; see :func:`psofed.sweeps.run_cells` for where and how.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> from psofed.sweeps import Axis
    >>> base = Scenario(num_clients=10, dimension=3, iterations=200)
    >>> result = run_sweep(Grid(base, (Axis(("num_shared",), ((1,), (3,))),), trials=8))
    >>> result.to_dataset()["network_mse"].sizes["num_shared"]
    2
    """
    results = run_cells(grid.cells(), threads=threads, executor=executor, store=store, progress=progress)
    return SweepResult(grid, tuple(results))


def sweep(
    base: Scenario,
    grid: Mapping[Any, Any],
    trials: int = 100,
    seed: int = 0,
    *,
    tail: float = 0.2,
    threads: int | None = None,
    executor: Executor | None = None,
    store: str | Path | None = None,
    progress: ProgressCallback | None = None,
) -> "SweepResult":
    """Simulate every combination of some fields' values.

    Parameters
    ----------
    base : Scenario
        What all points have in common.
    grid : mapping
        A list of values for each field that varies, by dotted name: ``{"num_shared": [1, 5]}``. A value may be a part:
        ``{"attack": [Gaussian(num_byzantine=5), SignFlip(num_byzantine=5)]}``. Fields that vary together stand in a
        tuple, with tuples of values. ``"attack.strength"`` is whatever field is the attack's strength.
    trials, seed : int
        Of every simulation; equal seeds make all comparisons within the grid paired.
    tail : float or int
        The end that counts as steady state: a fraction of the iterations below 1, or a number of them.
    threads : int, optional
        Points simulated at once on this machine; all cores by default.
    executor : concurrent.futures.Executor, optional
        Where they are simulated instead: processes, or a Dask cluster's ``Client.get_executor()``.
    store : path, optional
        A folder that keeps finished points; those there already are not simulated again.
    progress : callable, optional
        Called now and then with (done, total) in millions of client updates.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> base = Scenario(num_clients=10, dimension=3, iterations=200)
    >>> result = sweep(base, {"num_shared": [1, 3]}, trials=8)
    >>> result.to_dataset()["network_mse"].sizes["num_shared"]
    2
    """
    return run_sweep(
        make_grid(base, grid, trials, seed, tail),
        threads=threads,
        executor=executor,
        store=None if store is None else CellStore(store),
        progress=progress,
    )


@dataclass(frozen=True, eq=False)
class SweepResult:
    """The cells' results, in the order of the grid's points."""

    grid: Grid
    cells: tuple[CellResult, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What should be known of how the points were computed, each once."""
        return tuple(dict.fromkeys(note for cell in self.cells for note in cell.notes))

    def points(self) -> list[dict[str, Any]]:
        """Return one plain row per point: its labels, and each metric's mean, standard error and dB."""
        rows = []
        labels = itertools.product(*(axis.labels for axis in self.grid.axes))
        for values, cell in zip(labels, self.cells, strict=True):
            row: dict[str, Any] = dict(zip((axis.name for axis in self.grid.axes), values, strict=True))
            for metric in METRIC_TITLES:
                found = cell.estimate(metric)
                row[metric] = {
                    "mean": found.mean, "standard_error": found.standard_error,
                    "interval_95": list(found.interval), "mean_db": found.decibels,
                }  # fmt: skip
            row["diverged_trials"] = int((cell.diverged_at >= 0).sum())
            row["unsteady"] = cell.unsteady_metrics
            if cell.defence:
                row["defence"] = cell.defence
            rows.append(row)
        return rows

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists, ready for JSON: what is not finite is None."""
        plain = {
            "axes": [{"fields": list(axis.fields), "values": axis.labels} for axis in self.grid.axes],
            "points": self.points(),
            "base": self.grid.base.to_mapping(),
            "trials": self.grid.trials,
            "seed": self.grid.seed,
            "version": __version__,
            **({"notes": list(self.notes)} if self.notes else {}),
        }
        cleaned: dict[str, Any] = finite_or_none(plain)
        return cleaned

    def to_dataset(self) -> "xarray.Dataset":
        """Return the steady state of every trial at every point, dimensions named after the fields."""
        import xarray

        names = [axis.name for axis in self.grid.axes]
        shape = (*self.grid.shape, self.grid.trials)
        variables: dict[str, Any] = {}
        for metric, title in METRIC_TITLES.items():
            values = np.stack([cell.steady_state[metric] for cell in self.cells]).reshape(shape)
            variables[metric] = ((*names, "trial"), values, {"long_name": f"steady-state {title}"})
            errors = [cell.estimate(metric).standard_error for cell in self.cells]
            variables[f"{metric}_standard_error"] = (names, np.reshape(errors, self.grid.shape))
        for name in dict.fromkeys(name for cell in self.cells for name in cell.defence):
            measured = [cell.defence.get(name, np.nan) for cell in self.cells]
            variables[f"defence_{name}"] = (names, np.reshape(measured, self.grid.shape))
        diverged = np.stack([cell.diverged_at for cell in self.cells]).reshape(shape)
        variables["diverged_at"] = ((*names, "trial"), diverged)
        coordinates: dict[str, Any] = {axis.name: axis.labels for axis in self.grid.axes}
        for axis in self.grid.axes:
            for place, field in enumerate(axis.fields[1:], start=1):
                coordinates[field] = (axis.name, [point[place] for point in axis.values])
        return xarray.Dataset(
            variables,
            coords={**coordinates, "trial": np.arange(self.grid.trials)},
            attrs={
                "title": "psofed sweep",
                "base": self.grid.base.to_toml(),
                "seed": self.grid.seed,
                "version": __version__,
            },
        )

    def save(self, folder: str | Path) -> list[Path]:
        """Write sweep.nc and sweep.csv into a folder; return their paths."""
        folder = Path(folder)
        netcdf, table = folder / "sweep.nc", folder / "sweep.csv"
        with atomic_path(netcdf) as temporary:
            self.to_dataset().to_netcdf(temporary, engine="h5netcdf")
        with atomic_path(table) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            names = [axis.name for axis in self.grid.axes]
            columns = [
                f"{metric}{suffix}" for metric in METRIC_TITLES for suffix in ("", "_standard_error", "_db")
            ]
            writer.writerow([*names, *columns, "diverged_trials"])
            for row in self.points():
                numbers = [
                    row[metric][part]
                    for metric in METRIC_TITLES
                    for part in ("mean", "standard_error", "mean_db")
                ]
                cleaned = ["" if math.isnan(number) else number for number in numbers]
                writer.writerow([*(row[name] for name in names), *cleaned, row["diverged_trials"]])
        return [netcdf, table]
