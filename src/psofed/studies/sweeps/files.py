"""Sweeps in files: NetCDF that reads back, CSV for spreadsheets; and the reader of any result of psofed's."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.csv_text import csv_text
from psofed.common.files import write_atomically
from psofed.common.toml import parse_toml
from psofed.common.validation import check_choice
from psofed.results import SimulationResult
from psofed.results.dataset import (
    check_size,
    metric_variable,
    numbers,
    read_metrics,
    simulation_from_dataset,
    variable,
)
from psofed.results.estimates import CONFIDENCE
from psofed.results.metrics import HONEST, metric_name
from psofed.results.netcdf import open_dataset, read_back, save_dataset
from psofed.scenario import Scenario
from psofed.scenario.file import mapping_to_toml
from psofed.studies.sweeps.cell import Cell, CellResult
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
    kind = make.get(data.attrs.get("title", ""), simulation_from_dataset)
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

    def gather(values: list[Any], filler: float = math.nan) -> Any:
        rows = [np.pad(row, (0, most - len(row)), constant_values=filler) for row in values]
        return np.stack(rows).reshape(*grid.shape, most)

    variables: dict[str, Any] = {}
    for metric in result.titles:
        change = gather(
            [cell.tail_change.get(metric, cell.tail_change["network_mse"]) for cell in result.cells]
        )
        words = "second half of the tail less its first: {}"
        variables[f"{metric}_tail_change"] = metric_variable(by_trial, change, metric, words)
        values = gather([cell.values(metric) for cell in result.cells])
        variables[metric] = metric_variable(by_trial, values, metric, "steady-state {}, by trial")
        found = [cell.estimate(metric) for cell in result.cells]
        statistics = {
            "mean": ("mean over trials", [value.mean for value in found]),
            "standard_error": ("standard error of the mean", [value.standard_error for value in found]),
            "median": ("median over trials", [value.median for value in found]),
        }
        for name, (what, values_at) in statistics.items():
            points = np.reshape(values_at, grid.shape)
            variables[f"{metric}_{name}"] = metric_variable(names, points, metric, f"{what}: {{}}")
    for name in _watched_names(result):
        measured = [cell.defence.get(name, math.nan) for cell in result.cells]
        variables[f"defence_{name}"] = variable(
            names, np.reshape(measured, grid.shape), f"defence: {name.replace('_', ' ')}"
        )
    variables["diverged_at"] = variable(
        by_trial,
        gather([cell.diverged_at for cell in result.cells], -1),
        "iteration in which the trial was seen to diverge, or -1",
        "iterations",
    )
    variables["trials"] = variable(
        names, np.reshape([cell.trials for cell in result.cells], grid.shape), "number of trials"
    )
    coordinates: dict[str, Any] = {
        axis.name: variable(axis.name, np.array(axis.labels), axis.name, None) for axis in grid.axes
    }
    for axis in grid.axes:
        for place, field in enumerate(axis.fields[1:], start=1):
            labels = Axis((field,), tuple((point[place],) for point in axis.values)).labels
            coordinates[field] = variable(axis.name, np.array(labels), field, None)
    coordinates["trial"] = variable("trial", np.arange(most), "number of the trial")
    return xarray.Dataset(
        variables,
        coords=coordinates,
        attrs={
            "title": SWEEP_TITLE,
            "base": mapping_to_toml(grid.base.to_mapping()),
            "axes": json.dumps(axes_to_json(grid.axes)),
            "seed": grid.seed,
            "tail": grid.tail,
            "trials": grid.trials,
            "metrics": json.dumps(list(result.titles)),
            "asked_metrics": json.dumps([metric_name(metric) for metric in grid.metrics]),
            "confidence": result.cells[0].confidence,
            **({} if grid.precision is None else {"precision": grid.precision}),
            "version": result.version,
            "engine": json.dumps([cell.engine for cell in result.cells[:1]]),
            "seconds": json.dumps([cell.seconds for cell in result.cells]),
            "notes": json.dumps(result.notes),
            "defence": json.dumps([cell.defence for cell in result.cells]),
        },
    )


def sweep_to_dataframe(result: SweepResult, table: str) -> "pandas.DataFrame":
    """Return one of a sweep's tables (see :meth:`SweepResult.to_dataframe`)."""
    import pandas

    check_choice("table", table, TABLES)
    rows = []
    if table == "points":
        for labels, cell in zip(result.labels(), result.cells, strict=True):
            for metric in result.titles:
                found = cell.estimate(metric)
                rows.append(
                    {
                        **labels, "metric": metric, "mean": found.mean, "standard_error": found.standard_error,
                        "low": found.interval[0], "high": found.interval[1], "mean_db": found.decibels,
                        "median": found.median, "median_low": found.median_interval[0],
                        "median_high": found.median_interval[1], "median_db": found.median_decibels,
                        "heavy_tailed": found.is_heavy_tailed, "trials": cell.trials,
                        "diverged_trials": cell.num_diverged,
                    }
                )  # fmt: skip
        return pandas.DataFrame(rows)
    frames = []
    for labels, cell in zip(result.labels(), result.cells, strict=True):
        trials, values = np.arange(cell.trials), {metric: cell.values(metric) for metric in result.titles}
        frames.append(
            pandas.DataFrame({**labels, "trial": trials, **values, "diverged_at": cell.diverged_at})
        )
    return pandas.concat(frames, ignore_index=True)


def save_sweep(result: SweepResult, folder: Path) -> list[Path]:
    """Write sweep.nc and sweep.csv into a folder; return their paths."""
    netcdf, table = folder / SWEEP_FILE, folder / "sweep.csv"
    save_dataset(sweep_to_dataset(result), netcdf)
    names = [axis.name for axis in result.grid.axes]
    parts = ("mean", "standard_error", "mean_db", "median", "median_db")
    suffixes = ("", "_standard_error", "_db", "_median", "_median_db")
    columns = [f"{metric}{suffix}" for metric in result.titles for suffix in suffixes]
    watched = _watched_names(result)
    rows = [[*names, *columns, "diverged_trials", *(f"defence_{name}" for name in watched)]]
    for row, cell in zip(result.points(), result.cells, strict=True):
        values = [row[metric][part] for metric in result.titles for part in parts]
        values += [row["diverged_trials"], *(cell.defence.get(name, math.nan) for name in watched)]
        rows.append([*(row[name] for name in names), *values])
    write_atomically(table, csv_text(rows).encode(), mode=0o666)
    return [netcdf, table]


def _watched_names(result: SweepResult) -> list[str]:
    """Return what is known of a defence at any of the points."""
    return list(dict.fromkeys(name for cell in result.cells for name in cell.defence))


def _sweep_from_dataset(data: "xarray.Dataset") -> SweepResult:
    tail = float(data.attrs["tail"])
    grid = Grid(
        base=Scenario.from_mapping(parse_toml(data.attrs["base"])),
        axes=axes_from_json(json.loads(data.attrs["axes"])),
        trials=int(data.attrs.get("trials", data.sizes["trial"])),
        seed=int(data.attrs["seed"]),
        tail=int(tail) if tail >= 1 else tail,
        metrics=tuple(map(str, json.loads(data.attrs.get("asked_metrics", "[]")))),
        precision=data.attrs.get("precision"),
    )
    metrics = read_metrics(data)
    count = math.prod(grid.shape)
    names = tuple(axis.name for axis in grid.axes)
    for name, size in zip(names, grid.shape, strict=True):
        check_size(data, name, size)

    def by_cell(name: str, kind: str = "f") -> Any:
        return numbers(data, name, (*names, "trial"), kind).reshape(count, -1)

    steady = {metric: by_cell(metric) for metric in metrics}
    change = {metric: by_cell(f"{metric}_tail_change") for metric in metrics}
    sizes = numbers(data, "trials", names, "i").ravel() if "trials" in data else [data.sizes["trial"]] * count
    diverged, seconds = by_cell("diverged_at", "i"), json.loads(data.attrs["seconds"])
    notes, engine = tuple(json.loads(data.attrs["notes"])), json.loads(data.attrs["engine"])
    defences = json.loads(data.attrs.get("defence", "[]"))
    cells = []
    for place, scenario in enumerate(grid.scenarios()):
        end, names_at = sizes[place], list(metrics)
        if HONEST in metrics and HONEST not in grid.metrics and not Cell(scenario, 1).scenario.num_byzantine:
            names_at.remove(HONEST)  # in the file it is the network MSE
        cells.append(
            CellResult(
                steady_state={metric: steady[metric][place, :end] for metric in names_at},
                tail_change={metric: change[metric][place, :end] for metric in names_at},
                diverged_at=diverged[place, :end],
                engine=engine[0] if engine else "",
                seconds=float(seconds[place]),
                notes=notes if place == 0 else (),
                defence=defences[place] if defences else {},
                confidence=float(data.attrs.get("confidence", CONFIDENCE)),
            )
        )
    return SweepResult(grid, tuple(cells), str(data.attrs["version"]))
