"""Sweeps in files: NetCDF that reads back, CSV for spreadsheets; and the reader of any result of psofed's."""

import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.csv_text import csv_text
from psofed.common.files import write_atomically
from psofed.common.toml import parse_toml
from psofed.common.validation import check_choice
from psofed.results import SimulationResult
from psofed.results.dataset import check_size, metric_variable, numbers, read_metrics, variable
from psofed.results.metrics import metric_name
from psofed.results.netcdf import open_dataset, read_back, save_dataset
from psofed.scenario import Scenario
from psofed.scenario.file import mapping_to_toml
from psofed.studies.sweeps.cell import CellResult
from psofed.studies.sweeps.grid import Axis, Grid, axes_from_json, axes_to_json
from psofed.studies.sweeps.result import SweepResult

if TYPE_CHECKING:
    import pandas
    import xarray

    from psofed.studies.advice import Advice

SWEEP_TITLE = "psofed sweep"
ADVICE_TITLE = "psofed advice"
SWEEP_FILE = "sweep.nc"
TABLES = ("points", "trials")


def load_result(path: str | Path) -> "SimulationResult | SweepResult | Advice":
    """Read a result that psofed saved: a simulation (``--out result.nc``), a federation's, a sweep, or advice.

    Parameters
    ----------
    path : path
        The NetCDF file; of a sweep also the folder it was written into, of advice also the JSON file.

    Examples
    --------
    >>> import tempfile
    >>> from psofed import Scenario, simulate
    >>> result = simulate(Scenario(num_clients=10, dimension=2, iterations=50), trials=4)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(Path(folder) / "result.nc")
    ...     load_result(Path(folder) / "result.nc").network_mse.mean == result.network_mse.mean
    True
    """
    file = Path(path)
    if file.suffix.lower() == ".json" and file.is_file():
        what = "a saved advice, the only result that is read from JSON"
        advice: Advice = read_back(file, file, _read_advice, what)
        return advice
    if file.is_dir() and (file / SWEEP_FILE).exists():
        file = file / SWEEP_FILE
    data = open_dataset(file)
    make = {SWEEP_TITLE: _sweep_from_dataset, ADVICE_TITLE: _read_advice}
    kind = make.get(data.attrs.get("title", ""), SimulationResult.from_dataset)
    result: SimulationResult | SweepResult = read_back(file, data, kind)
    return result


def _read_advice(source: "Path | xarray.Dataset") -> "Advice":
    from psofed.studies.advice.advice import advice_from_json

    text = source.read_text(encoding="utf-8") if isinstance(source, Path) else source.attrs["advice"]
    return advice_from_json(json.loads(text))


def sweep_to_dataset(result: SweepResult) -> "xarray.Dataset":
    """Return the steady state of every trial at every point, with all that is needed to make the result again."""
    import xarray

    grid = result.grid
    names = [axis.name for axis in grid.axes]
    most = max(cell.trials for cell in result.cells)
    by_trial = (*names, "trial")

    def gather(rows: list[Any], filler: float = math.nan) -> Any:
        padded = [np.pad(row, (0, most - len(row)), constant_values=filler) for row in rows]
        return np.stack(padded).reshape(*grid.shape, most)

    variables: dict[str, Any] = {}
    for metric in result.titles:
        change = gather([cell.change(metric) for cell in result.cells])
        words = "second half of the tail less its first: {}"
        variables[f"{metric}_tail_change"] = metric_variable(by_trial, change, metric, words)
        values = gather([cell.values(metric) for cell in result.cells])
        variables[metric] = metric_variable(by_trial, values, metric, "steady-state {}, by trial")
    for name in result.defence_names:
        measured = np.reshape([cell.defence.get(name, math.nan) for cell in result.cells], grid.shape)
        variables[f"defence_{name}"] = variable(names, measured, f"defence: {name.replace('_', ' ')}")
    lost = "iteration in which the trial was seen to diverge, or -1"
    variables["diverged_at"] = variable(
        by_trial, gather([cell.diverged_at for cell in result.cells], -1), lost, "iterations"
    )
    counts = np.reshape([cell.trials for cell in result.cells], grid.shape)
    variables["trials"] = variable(names, counts, "number of trials")
    coordinates: dict[str, Any] = {"trial": variable("trial", np.arange(most), "number of the trial")}
    for axis in grid.axes:
        for place, field in enumerate(axis.fields):
            labels = axis.labels if not place else Axis((field,), tuple((v[place],) for v in axis.values)).labels
            coordinates[field] = variable(axis.name, np.array(labels), field, None)
    return xarray.Dataset(
        variables,
        coords=coordinates,
        attrs={
            "title": SWEEP_TITLE,
            "base": mapping_to_toml(grid.base.to_mapping()),
            "axes": json.dumps(axes_to_json(grid.axes)),
            "settings": json.dumps(
                {name: getattr(grid, name) for name in ("trials", "seed", "tail", "precision")}
                | {"metrics": [metric_name(metric) for metric in grid.metrics]}
            ),
            "metrics": json.dumps(list(result.titles)),
            "version": result.version,
            "cells": json.dumps([cell.about for cell in result.cells]),
        },
    )


def sweep_to_dataframe(result: SweepResult, table: str) -> "pandas.DataFrame":
    """Return one of a sweep's tables (see :meth:`SweepResult.to_dataframe`)."""
    import pandas

    check_choice("table", table, TABLES)
    pairs = list(zip(result.labels(), result.cells, strict=True))
    if table == "trials":
        frames = [
            pandas.DataFrame(
                {**labels, "trial": np.arange(cell.trials)}
                | {metric: cell.values(metric) for metric in result.titles}
                | {"diverged_at": cell.diverged_at}
            )
            for labels, cell in pairs
        ]
        return pandas.concat(frames, ignore_index=True)
    rows = []
    for labels, cell in pairs:
        for metric in result.titles:
            value = cell.estimate(metric)
            rows.append(
                {
                    **labels, "metric": metric, "mean": value.mean, "standard_error": value.standard_error,
                    "low": value.interval[0], "high": value.interval[1], "mean_db": value.decibels,
                    "median": value.median, "median_low": value.median_interval[0],
                    "median_high": value.median_interval[1], "median_db": value.median_decibels,
                    "heavy_tailed": value.is_heavy_tailed, "trials": cell.trials,
                    "diverged_trials": cell.num_diverged,
                }
            )  # fmt: skip
    return pandas.DataFrame(rows)


def save_sweep(result: SweepResult, folder: Path) -> list[Path]:
    """Write sweep.nc and sweep.csv into a folder; return their paths."""
    netcdf, table = folder / SWEEP_FILE, folder / "sweep.csv"
    save_dataset(sweep_to_dataset(result), netcdf)
    parts = {
        "": "mean",
        "_standard_error": "standard_error",
        "_db": "mean_db",
        "_median": "median",
        "_median_db": "median_db",
    }
    rows = []
    for labels, point, cell in zip(result.labels(), result.points(), result.cells, strict=True):
        values = {f"{m}{suffix}": point[m][part] for m in result.titles for suffix, part in parts.items()}
        defence = {f"defence_{name}": cell.defence.get(name, math.nan) for name in result.defence_names}
        rows.append(labels | values | {"diverged_trials": cell.num_diverged} | defence)
    lines = [list(rows[0]), *(list(row.values()) for row in rows)]
    write_atomically(table, csv_text(lines).encode(), mode=0o666)
    return [netcdf, table]


def _sweep_from_dataset(data: "xarray.Dataset") -> SweepResult:
    axes, settings = axes_from_json(json.loads(data.attrs["axes"])), json.loads(data.attrs["settings"])
    grid = Grid(Scenario.from_mapping(parse_toml(data.attrs["base"])), axes, **settings)
    names = tuple(axis.name for axis in axes)
    for name, size in zip(names, grid.shape, strict=True):
        check_size(data, name, size)
    cells = json.loads(data.attrs["cells"])
    read_metrics(data)  # the titles of a user's metrics

    def read(place: int, trials: int, name: str) -> Any:
        kind = "i" if name == "diverged_at" else "f"
        values = numbers(data, name, (*names, "trial"), kind).reshape(math.prod(grid.shape), -1)
        return values[place, :trials].astype(np.int64 if kind == "i" else np.float64)

    results = tuple(
        CellResult.restored(cells[place], partial(read, place, cells[place]["trials"]))
        for place in range(math.prod(grid.shape))
    )
    return SweepResult(grid, results, str(data.attrs["version"]))
