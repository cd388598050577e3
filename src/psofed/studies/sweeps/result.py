"""Results of a sweep, labelled by the fields that vary, and saved as NetCDF, CSV and JSON."""

import itertools
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from psofed._version import __version__
from psofed.common.errors import InvalidValueError
from psofed.common.numbers import json_object
from psofed.common.settings import takes
from psofed.common.types import ProgressCallback
from psofed.render import Report, Reported
from psofed.results import Difference
from psofed.results.differences import paired_metrics
from psofed.results.metrics import METRIC_TITLES, label_of
from psofed.scenario import Scenario
from psofed.settings.sweep import SweepSettings
from psofed.studies.sweeps.cell import CellResult
from psofed.studies.sweeps.execute import run_cells
from psofed.studies.sweeps.grid import Axis, Grid, make_grid
from psofed.studies.sweeps.ranking import name_point
from psofed.studies.sweeps.store import CellStore

if TYPE_CHECKING:
    import pandas
    import xarray
    from matplotlib.axes import Axes

    from psofed.render.charts import Panels
    from psofed.render.figures import Figure
    from psofed.studies.sweeps.chart import FacetFields


_GRID_SETTINGS = ("trials", "seed", "tail", "metrics", "precision")


def run_sweep(
    grid: Grid,
    *,
    threads: int | None = None,
    executor: Executor | None = None,
    store: CellStore | None = None,
    progress: ProgressCallback | None = None,
) -> "SweepResult":
    """Simulate every point of a grid; see :func:`psofed.studies.sweeps.run_cells` for where and how.

    Examples
    --------
    >>> from psofed.scenario import Scenario
    >>> from psofed.studies.sweeps import Axis
    >>> base = Scenario(num_clients=10, dimension=3, iterations=200)
    >>> result = run_sweep(Grid(base, (Axis(("num_shared",), ((1,), (3,))),), trials=8))
    >>> result.to_dataset()["network_mse"].sizes["num_shared"]
    2
    """
    results = run_cells(grid.cells(), threads=threads, executor=executor, store=store, progress=progress)
    return SweepResult(grid, tuple(results))


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
        make_grid(base, grid, **{name: getattr(settings, name) for name in _GRID_SETTINGS}),
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
        return {name: label_of(name).title for name in names or METRIC_TITLES}

    def points(self) -> list[dict[str, Any]]:
        """Return one plain row per point: its labels, and each metric's mean, standard error and dB."""
        rows = []
        for labels, cell in zip(self.labels(), self.cells, strict=True):
            row: dict[str, Any] = dict(labels)
            for metric in self.titles:
                row[metric] = cell.estimate(metric).to_json()
            row["trials"] = cell.trials
            row["diverged_trials"] = cell.num_diverged
            row["unsteady"] = cell.unsteady_metrics
            if cell.defence:
                row["defence"] = cell.defence
            rows.append(row)
        return rows

    def labels(self) -> list[dict[str, Any]]:
        """Return the labels of every point by field."""
        names = [axis.name for axis in self.grid.axes]
        return [
            dict(zip(names, labels, strict=True))
            for labels in itertools.product(*(axis.labels for axis in self.grid.axes))
        ]

    def select(self, where: Mapping[str, Any] | None = None, **fields: Any) -> "SweepResult":
        """Return the part of the sweep where fields have one value, or one of a list.

        Parameters
        ----------
        where : mapping
            Values by field, for names with a dot: ``{"attack.kind": "gaussian"}``.
        **fields
            The same for names without one: ``num_shared=1``.
        """
        kept = [list(range(len(axis.values))) for axis in self.grid.axes]
        for field, wanted in {**(where or {}), **fields}.items():
            number = self.grid.place(field)
            axis = self.grid.axes[number]
            values = wanted if isinstance(wanted, list | tuple) else [wanted]
            for value in values:
                if not any(_is_label(axis, at, value) for at in kept[number]):
                    raise InvalidValueError(field, value, f"one of {', '.join(map(str, axis.labels))}")
            kept[number] = [at for at in kept[number] if any(_is_label(axis, at, value) for value in values)]
        axes = tuple(
            Axis(
                axis.fields,
                tuple(axis.values[at] for at in places),
                tuple(axis.names[at] for at in places if axis.names),
            )
            for axis, places in zip(self.grid.axes, kept, strict=True)
        )
        numbers = np.arange(len(self.cells)).reshape(self.grid.shape)[np.ix_(*kept)].ravel()
        grid = replace(self.grid, axes=axes)
        return SweepResult(grid, tuple(self.cells[at] for at in numbers), self.version)

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
        from psofed.studies.sweeps.files import sweep_to_dataset

        return sweep_to_dataset(self)

    def to_dataframe(self, table: str = "points") -> "pandas.DataFrame":
        """Return a tidy table, with a column for each field that varies.

        Parameters
        ----------
        table : str
            ``"points"``: a row per point and metric, with mean, median, their intervals, and diverged trials.
            ``"trials"``: a row per point and trial, with a column per metric.
        """
        from psofed.studies.sweeps.files import sweep_to_dataframe

        return sweep_to_dataframe(self, table)

    def save(self, folder: str | Path) -> list[Path]:
        """Write sweep.nc, which :func:`psofed.load_result` reads, and sweep.csv into a folder; return their paths."""
        from psofed.studies.sweeps.files import save_sweep

        return save_sweep(self, Path(folder))

    def report(self) -> Report:
        """Return every point's steady state with its interval, and notes."""
        from psofed.studies.sweeps.report import sweep_report

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
        from psofed.studies.sweeps.latex import sweep_to_latex

        return sweep_to_latex(self, columns, metric or self.grid.ranked_by)

    def chart(self, metric: str | None = None, theory: bool = False, **fields: "Unpack[FacetFields]") -> "Panels":
        """Return the picture of :meth:`plot` as a value."""
        from psofed.studies.sweeps.chart import sweep_chart

        return sweep_chart(self, metric or self.grid.ranked_by, theory, **fields)

    def plot(
        self, metric: str | None = None, theory: bool = False, *, ax: "Axes | None" = None,
        width: "str | float | None" = None, **fields: "Unpack[FacetFields]",
    ) -> "Figure":  # fmt: skip
        """Draw the steady states over one field, with colours and panels for the others; returns a Matplotlib figure.

        Parameters
        ----------
        metric : str, optional
            By default the metric that the sweep ranks by: the first of its `metrics`, or the network MSE.
        theory : bool
            Show the exact theory as a line beside the points, wherever it covers them.
        ax : matplotlib Axes, optional
            Draw into these instead of a figure of its own, if the picture has one panel.
        width : str or float, optional
            ``"column"`` or ``"page"`` of a journal (3.5 and 7.16 inches), or inches.
        **fields : str
            ``x``, ``hue``, ``col`` and ``row``: the fields that vary along the horizontal axis, in colour, and from
            panel to panel. By default the numeric field with the most values is the horizontal axis, another numeric
            one the colour, and the others make columns and rows.
        """
        return super().plot(metric, theory, ax=ax, width=width, **fields)

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
