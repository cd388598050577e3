"""Results of a sweep, labelled by the fields that vary, and saved as NetCDF, CSV and JSON."""

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.files import write_atomically
from psofed.common.numbers import json_object
from psofed.common.settings import takes
from psofed.common.types import FloatArray
from psofed.common.validation import check_choice
from psofed.render import Report, Reported
from psofed.render.charts import Panels
from psofed.results import Difference, Estimate, SimulationResult
from psofed.results.dataset import metric_variable, read_metrics, variable
from psofed.results.metrics import label_of
from psofed.results.netcdf import open_dataset, read_back, save_dataset
from psofed.results.reports.difference import paired_metrics
from psofed.scenario import Scenario
from psofed.settings.sweep import SweepSettings
from psofed.studies.sweeps.cell import CellResult
from psofed.studies.sweeps.chart import FacetFields, sweep_chart
from psofed.studies.sweeps.execute import CellStore, run_cells
from psofed.studies.sweeps.grid import RUN, Axis, Grid, make_grid, name_point
from psofed.studies.sweeps.report import sweep_report, sweep_to_latex

if TYPE_CHECKING:
    import pandas
    import xarray


SWEEP_TITLE, SWEEP_FILE = "psofed sweep", "sweep.nc"


def run_sweep(grid: Grid, **where: Any) -> "SweepResult":
    """Simulate every point of a grid; for `where` see :func:`psofed.studies.sweeps.run_cells`.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> from psofed.studies.sweeps import Axis
    >>> base = Scenario(num_clients=10, dimension=3, iterations=200)
    >>> result = run_sweep(Grid(base, (Axis(("num_shared",), ((1,), (3,))),), trials=8))
    >>> result.to_dataset()["network_mse"].sizes["num_shared"]
    2
    """
    return SweepResult(grid, tuple(run_cells(grid.cells(), **where)))


@takes(SweepSettings)
def sweep(base: Scenario | str | Path, grid: Mapping[Any, Any], settings: SweepSettings) -> "SweepResult":
    """Simulate every combination of some fields' values.

    Parameters
    ----------
    base : Scenario or path
        The scenario that all points share, or the TOML file that describes it.
    grid : mapping
        A list of values for each field that varies, by dotted name: ``{"num_shared": [1, 5]}``. A value may be a part:
        ``{"attack": [Gaussian(num_byzantine=5), SignFlip(num_byzantine=5)]}``. Fields that vary together stand in a
        tuple, with tuples of values. ``"attack.strength"`` is whatever field is the attack's strength.

    Returns
    -------
    SweepResult
        Labelled by the fields: ``.to_dataset()``, ``.to_dataframe()``, ``.plot()``, ``.select(...)``.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> base = Scenario(num_clients=10, dimension=3, iterations=200)
    >>> result = sweep(base, {"num_shared": [1, 3]}, trials=8)
    >>> result.to_dataset()["network_mse"].sizes["num_shared"]
    2
    >>> result.select(num_shared=3).cells[0].estimate("network_mse").mean < 0.05
    True
    """
    return run_sweep(
        make_grid(base, grid, **{name: getattr(settings, name) for name in RUN}),
        threads=settings.threads,
        executor=settings.executor,
        store=None if settings.store is None else CellStore(settings.store),
        progress=settings.progress,
    )


@dataclass(frozen=True, eq=False, repr=False)
class SweepResult(Reported):
    """The cells' results, in the order of the grid's points.

    Attributes
    ----------
    grid : Grid
        What was swept: base scenario, axes, trials and seed.
    cells : tuple of CellResult
        The last axis varies fastest.
    version : str
        Of the psofed that made it.
    """

    grid: Grid
    cells: tuple[CellResult, ...]
    version: str = __version__

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on how the points were computed, each once."""
        return tuple(dict.fromkeys(note for cell in self.cells for note in cell.notes))

    @property
    def defence_names(self) -> list[str]:
        """Names of the numbers that sum up a defence at any of the points."""
        return list(dict.fromkeys(name for cell in self.cells for name in cell.defence))

    @property
    def titles(self) -> dict[str, str]:
        """Metrics that were measured, with their titles; the one that decides first."""
        names = dict.fromkeys((self.grid.ranked_by, *(name for cell in self.cells for name in cell.steady_state)))
        return {name: label_of(name).title for name in names}

    def estimates(self, metric: str) -> list[Estimate]:
        """Return a metric's mean and median over the trials of every point."""
        return [cell.estimate(metric) for cell in self.cells]

    def levels(self, metric: str) -> FloatArray:
        """Return a metric's value to show at every point, the mean or the median; infinite where it diverged."""
        levels = np.array([value.typical[0] for value in self.estimates(metric)])
        return np.where(np.isfinite(levels), levels, math.inf)

    def points(self) -> list[dict[str, Any]]:
        """Return one plain row per point: its labels, and each metric's mean, standard error and dB."""
        rows = []
        for labels, cell in zip(self.labels(), self.cells, strict=True):
            row = {**labels, **{metric: cell.estimate(metric).to_json() for metric in self.titles}}
            row |= {"trials": cell.trials, "diverged_trials": cell.num_diverged, "unsteady": cell.unsteady_metrics}
            if cell.defence:
                row["defence"] = cell.defence
            rows.append(row)
        return rows

    def labels(self) -> list[dict[str, Any]]:
        """Return the labels of every point by field."""
        names = [axis.name for axis in self.grid.axes]
        points = itertools.product(*(axis.labels for axis in self.grid.axes))
        return [dict(zip(names, labels, strict=True)) for labels in points]

    def select(self, where: Mapping[str, Any] | None = None, **fields: Any) -> "SweepResult":
        """Return the part of the sweep where fields have one value, or one of a list.

        Parameters
        ----------
        where : mapping
            Values by field, for names with a dot: ``{"attack.kind": "gaussian"}``.
        **fields
            The same for names without one: ``num_shared=1``.
        """
        kept = [list(range(size)) for size in self.grid.shape]
        for field, wanted in {**(where or {}), **fields}.items():
            number = self.grid.place(field)
            axis, places = self.grid.axes[number], set[int]()
            for value in wanted if isinstance(wanted, list | tuple) else [wanted]:
                matches = {at for at in kept[number] if _is_label(axis, at, value)}
                if not matches:
                    raise InvalidValueError(field, value, f"one of {', '.join(map(str, axis.labels))}")
                places |= matches
            kept[number] = sorted(places)
        axes = tuple(
            Axis(axis.fields, tuple(axis.values[at] for at in places))
            for axis, places in zip(self.grid.axes, kept, strict=True)
        )
        numbers = np.arange(len(self.cells)).reshape(self.grid.shape)[np.ix_(*kept)].ravel()
        return SweepResult(replace(self.grid, axes=axes), tuple(self.cells[at] for at in numbers), self.version)

    def difference(self, first: Mapping[str, Any], second: Mapping[str, Any], confidence: float = 0.95) -> Difference:
        """Compare two points, trial by trial: by how much the first lies above (+) or below (−) the second.

        Parameters
        ----------
        first, second : mapping
            The points: a value for each field that varies.
        confidence : float
            Of the intervals; raise it where many points are compared at once.

        Returns
        -------
        Difference
            As ``a - b`` of two simulations.
        """
        a, b = self._only_cell(first), self._only_cell(second)
        changed = [field for field in first if first[field] != second.get(field)]
        names = [name_point({field: point[field] for field in changed}) for point in (first, second)]
        return paired_metrics(a.steady_state, b.steady_state, (names[0], names[1]), confidence)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists, ready for JSON; values that are not finite become None."""
        return json_object(
            {
                "axes": [{"fields": list(axis.fields), "values": axis.labels} for axis in self.grid.axes],
                "points": self.points(),
                "base": self.grid.base.to_mapping(),
                "trials": self.grid.trials,
                "ranked_by": self.grid.ranked_by,
                **({} if self.grid.precision is None else {"precision_db": self.grid.precision}),
                "seed": self.grid.seed,
                "version": self.version,
                **({"notes": list(self.notes)} if self.notes else {}),
            }
        )

    def to_dataset(self) -> "xarray.Dataset":
        """Return the steady state of every trial at every point, dimensions named after the fields."""
        import xarray

        names, shape = [axis.name for axis in self.grid.axes], self.grid.shape
        most = max(cell.trials for cell in self.cells)

        def by_trial(rows: list[Any], filler: float = math.nan) -> Any:
            padded = [np.pad(row, (0, most - len(row)), constant_values=filler) for row in rows]
            return np.stack(padded).reshape(*shape, most)

        variables: dict[str, Any] = {}
        dims = (*names, "trial")
        for metric in self.titles:
            levels = by_trial([cell.values(metric) for cell in self.cells])
            variables[metric] = metric_variable(dims, levels, metric, "steady-state {}, by trial")
            changes = by_trial([cell.change(metric) for cell in self.cells])
            words = "second half of the tail less its first: {}"
            variables[f"{metric}_tail_change"] = metric_variable(dims, changes, metric, words)
        words = "iteration in which the trial was seen to diverge, or -1"
        lost = by_trial([cell.diverged_at for cell in self.cells], -1)
        variables["diverged_at"] = variable(dims, lost, words, "iterations")
        trials = np.reshape([cell.trials for cell in self.cells], shape)
        variables["trials"] = variable(names, trials, "number of trials")
        for name in self.defence_names:
            measured = np.reshape([cell.defence.get(name, math.nan) for cell in self.cells], shape)
            variables[f"defence_{name}"] = variable(names, measured, f"defence: {name.replace('_', ' ')}")
        coordinates: dict[str, Any] = {"trial": variable("trial", np.arange(most), "number of the trial")}
        for axis in self.grid.axes:
            for place, field in enumerate(axis.fields):
                own = axis if not place else Axis((field,), tuple((v[place],) for v in axis.values))
                coordinates[field] = variable(axis.name, np.array(own.labels), field, None)
        # Numbers are for other programs: psofed reads its own cells, as they are in a store.
        cells = json.dumps({"grid": self.grid.to_plain(), "cells": [cell.to_plain() for cell in self.cells]})
        about = {"title": SWEEP_TITLE, "base": self.grid.base.to_toml(), "metrics": json.dumps(list(self.titles))}
        return xarray.Dataset(variables, coordinates, {**about, "version": self.version, "sweep": cells})

    def to_dataframe(self, table: str = "points") -> "pandas.DataFrame":
        """Return a tidy table, with a column for each field that varies.

        Parameters
        ----------
        table : str
            ``"points"``: a row per point and metric, with mean, median, their intervals, and diverged trials.
            ``"trials"``: a row per point and trial, with a column per metric.
        """
        import pandas

        check_choice("table", table, ("points", "trials"))
        pairs = list(zip(self.labels(), self.cells, strict=True))
        if table == "trials":
            columns = [
                {**labels, "trial": np.arange(cell.trials)}
                | {metric: cell.values(metric) for metric in self.titles}
                | {"diverged_at": cell.diverged_at}
                for labels, cell in pairs
            ]
            return pandas.concat(map(pandas.DataFrame, columns), ignore_index=True)
        rows = []
        for (labels, cell), metric in itertools.product(pairs, self.titles):
            value, lost = cell.estimate(metric), cell.num_diverged
            parts = {name: part for name, part in value.to_json().items() if not name.endswith("interval_95")}
            parts["low"], parts["high"] = value.interval
            parts["median_low"], parts["median_high"] = value.median_interval
            parts |= {f"defence_{name}": cell.defence.get(name, math.nan) for name in self.defence_names}
            rows.append({**labels, "metric": metric, **parts, "trials": cell.trials, "diverged_trials": lost})
        return pandas.DataFrame(rows)

    def save(self, folder: str | Path) -> list[Path]:
        """Write sweep.nc, which :func:`psofed.load_result` reads, and sweep.csv into a folder; return their paths."""
        netcdf, table = Path(folder) / SWEEP_FILE, Path(folder) / "sweep.csv"
        save_dataset(self.to_dataset(), netcdf)
        points = self.to_dataframe()
        lines = csv_text([points.columns, *points.itertuples(index=False)])
        write_atomically(table, lines.encode(), mode=0o666)
        return [netcdf, table]

    def report(self) -> Report:
        """Return every point's steady state with its interval, and notes."""
        return sweep_report(self)

    def to_latex(self, columns: str | None = None, metric: str | None = None) -> str:
        r"""Return a metric's steady states as a LaTeX table (``booktabs``), the lowest of each column in bold.

        Parameters
        ----------
        columns : str, optional
            The field whose values are the columns; the last one by default. All others are rows.
        metric : str

        Examples
        --------
        >>> from psofed.scenario import Scenario
        >>> base = Scenario(num_clients=10, dimension=3, iterations=200)
        >>> table = sweep(base, {"num_shared": [1, 3], "stepsize": [0.1, 0.2]}, trials=8).to_latex("stepsize")
        >>> print(table.splitlines()[5].strip())
        shared parameters M & stepsize $\mu$ = 0.1 (dB) & stepsize $\mu$ = 0.2 (dB) \\
        """
        return sweep_to_latex(self, columns, metric or self.grid.ranked_by)

    def chart(self, metric: str | None = None, theory: bool = False, **fields: Unpack[FacetFields]) -> Panels:
        """Return the steady states over one field, with colours and panels for the others: the picture of `plot`.

        Parameters
        ----------
        metric : str, optional
            By default the metric that the sweep ranks by: the first of its `metrics`, or the network MSE.
        theory : bool
            Show the exact theory as a line beside the points, wherever it covers them.
        **fields : str
            ``x``, ``hue``, ``col`` and ``row``: the fields that vary along the horizontal axis, in colour, and from
            panel to panel. By default the numeric field with the most values is the horizontal axis, another numeric
            one the colour, and the others make columns and rows.
        """
        return sweep_chart(self, metric or self.grid.ranked_by, theory, **fields)

    def _only_cell(self, point: Mapping[str, Any]) -> CellResult:
        found = self.select(point)
        if len(found.cells) != 1:
            open_fields = [axis.name for axis in found.grid.axes if len(axis.values) > 1]
            raise InvalidValueError("point", dict(point), f"complete; add a value for {', '.join(open_fields)}")
        return found.cells[0]


def _is_label(axis: Axis, place: int, value: Any) -> bool:
    """Whether a user's value means this point: the value itself, a part, or its label."""
    label = axis.labels[place]
    return bool(axis.values[place][0] == value or label == value or str(label) == value)


def load_result(path: str | Path) -> SimulationResult | SweepResult:
    """Read a result that psofed saved: a simulation (``--out result.nc``), a federation's, or a sweep.

    Parameters
    ----------
    path : path
        The NetCDF file; of a sweep also the folder it was written into.

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
        raise PsofedError(
            f"{file}: JSON is not read back; results are read from NetCDF (.nc), and advice is drawn when it is made: "
            "psofed advise --plot PICTURE"
        )
    if file.is_dir() and (file / SWEEP_FILE).exists():
        file = file / SWEEP_FILE
    data = open_dataset(file)
    make = sweep_from_dataset if data.attrs.get("title", "") == SWEEP_TITLE else SimulationResult.from_dataset
    result: SimulationResult | SweepResult = read_back(file, data, make)
    return result


def sweep_from_dataset(data: "xarray.Dataset") -> SweepResult:
    """Return the result that a data set of :meth:`SweepResult.to_dataset` describes."""
    if "sweep" not in data.attrs:
        raise PsofedError(f"saved by psofed {data.attrs.get('version')}, which wrote other files; run the sweep again")
    plain = json.loads(data.attrs["sweep"])
    read_metrics(data)  # the titles of a user's metrics
    grid, cells = Grid.from_plain(plain["grid"]), tuple(map(CellResult.from_plain, plain["cells"]))
    if len(cells) != math.prod(grid.shape):
        raise PsofedError(f"has {len(cells)} points, expected {math.prod(grid.shape)}")
    return SweepResult(grid, cells, str(data.attrs["version"]))
