"""What a figure is made of: series of points with their uncertainty, and the plan that leads to them."""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.files import write_atomically
from psofed.common.numbers import to_decibels
from psofed.common.types import FloatArray
from psofed.results import METRIC_TITLES
from psofed.results.netcdf import save_dataset
from psofed.scenario import Scenario
from psofed.sweeps import Cell, CellResult

if TYPE_CHECKING:
    import xarray

KINDS = ("simulation", "paper-theory", "exact-theory", "published")

_DECIBELS_PER_NEPER = 10 / math.log(10)

CellResults = Callable[[Cell], CellResult]


@dataclass(frozen=True, eq=False)
class Series:
    """One curve of a figure.

    Attributes
    ----------
    label : str
        What varies between curves, say ``"|S_B| = 5"``, and how the curve was found where that is special.
    kind : str
        One of `KINDS`.
    uplink : str or None
        The system it describes: ``"same"`` or ``"redrawn"``. The paper's theory describes the redrawn one
        (so it is marked, and drawn beside both); None for printed points, whose system is not stated.
    x, y : array (points,)
        y is linear.
    standard_error : array (points,) or None
        Of y; None for theory and printed points.
    metric : str
        ``"network_mse"``, ``"test_mse"``, ``"server_msd"``, or a term of the MSE.
    curve : int
        Series of one figure with the same number are the same curve found in different ways.
    trials : array (points, trials) or None
        What the simulation's y is the mean of, for paired comparisons.
    """

    label: str
    kind: str
    uplink: str | None
    x: FloatArray
    y: FloatArray
    metric: str
    curve: int
    standard_error: FloatArray | None = None
    trials: FloatArray | None = field(default=None, repr=False)

    @property
    def y_db(self) -> FloatArray:
        """Y in decibels."""
        return to_decibels(self.y)

    @property
    def standard_error_db(self) -> FloatArray | None:
        """Standard error in decibels."""
        return None if self.standard_error is None else _DECIBELS_PER_NEPER * self.standard_error / self.y

    def to_json(self) -> dict[str, Any]:
        """Return plain lists; a number that is not finite (a trial diverged) becomes None."""
        error = self.standard_error
        return {
            "label": self.label,
            "kind": self.kind,
            "uplink": self.uplink,
            "x": self.x.tolist(),
            "y": finite_numbers(self.y),
            "y_db": finite_numbers(self.y_db),
            "standard_error": None if error is None else finite_numbers(error),
            "metric": self.metric,
            "curve": self.curve,
        }


@dataclass(frozen=True, eq=False)
class FigureData:
    """A finished figure.

    Attributes
    ----------
    name, title, caption : str
        What it is, in our words.
    x_label, metric : str
        The axes.
    base : Scenario
        What all points have in common.
    varied : dict
        The fields that vary, with their values.
    series : tuple of Series
        In the figure's own metric.
    other_series : tuple of Series
        The same in the other metrics.
    panels : tuple of str
        Uplinks, one panel each.
    trials, seed : int
        Of the simulation.
    unsteady : tuple of str
        Points at which a simulation was not yet in its steady state.
    """

    name: str
    title: str
    caption: str
    x_label: str
    metric: str
    base: Scenario
    varied: dict[str, list[Any]]
    series: tuple[Series, ...]
    other_series: tuple[Series, ...]
    panels: tuple[str, ...]
    trials: int
    seed: int
    unsteady: tuple[str, ...] = ()

    def select(self, **wanted: Any) -> list[Series]:
        """Return the series whose attributes have the given values, of any metric.

        A metric that is not asked for is the figure's own.
        """
        wanted.setdefault("metric", self.metric)
        every = (*self.series, *self.other_series)
        return [
            series for series in every if all(getattr(series, key) == value for key, value in wanted.items())
        ]

    def panel(self, uplink: str) -> list[Series]:
        """Return what is drawn in a panel: its uplink's series, the paper's theory and the printed points.

        A panel shows a curve only if it is simulated there; the paper's theory is shown beside both uplinks.
        """
        simulated = {s.curve for s in self.series if s.kind == "simulation" and s.uplink == uplink}
        drawn = [s for s in self.series if s.uplink in (uplink, None) or s.kind == "paper-theory"]
        return [s for s in drawn if s.curve in simulated]

    def without_trials(self) -> "FigureData":
        """Return the figure as it is drawn, without single trials: small enough to be sent to another process."""
        plain = tuple(dataclasses.replace(series, trials=None) for series in self.series)
        return dataclasses.replace(self, series=plain, other_series=())

    @property
    def curve_labels(self) -> dict[int, str]:
        """The label of every simulated curve, by its number, in order."""
        labels: dict[int, str] = {}
        for series in self.series:
            if series.kind == "simulation":
                labels.setdefault(series.curve, series.label)
        return dict(sorted(labels.items()))

    @property
    def worst_standard_error_db(self) -> float:
        """The largest standard error of a simulated point, in dB."""
        errors = [series.standard_error_db for series in self.select(kind="simulation")]
        return max((float(np.max(error)) for error in errors if error is not None), default=math.nan)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists."""
        return {
            "figure": self.name,
            "title": self.title,
            "caption": self.caption,
            "x_label": self.x_label,
            "metric": self.metric,
            "series": [series.to_json() for series in self.series],
            "other_metrics": [series.to_json() for series in self.other_series],
            "panels": list(self.panels),
            "worst_standard_error_db": finite_numbers(np.array([self.worst_standard_error_db]))[0],
            "unsteady": list(self.unsteady),
            "scenario": self.base.to_mapping(),
            "varied": self.varied,
            "trials": self.trials,
            "seed": self.seed,
            "version": __version__,
        }

    def to_dataset(self) -> "xarray.Dataset":
        """Return all series as one labelled table, padded with NaN to the longest."""
        import xarray

        every = (*self.series, *self.other_series)
        points = max(series.x.size for series in every)
        columns: dict[str, list[FloatArray | None]] = {
            "x": [series.x for series in every],
            "y": [series.y for series in every],
            "y_db": [series.y_db for series in every],
            "standard_error": [series.standard_error for series in every],
        }
        padded = {name: (("series", "point"), _pad(values, points)) for name, values in columns.items()}
        about = {
            name: ("series", [str(getattr(series, name) or "") for series in every])
            for name in ("label", "kind", "uplink", "metric")
        }
        return xarray.Dataset(
            padded,
            coords=about,
            attrs={
                "title": self.title,
                "figure": self.name,
                "scenario": self.base.to_toml(),
                "trials": self.trials,
                "seed": self.seed,
                "version": __version__,
            },
        )

    def save_data(self, folder: Path) -> list[Path]:
        """Write the series as NetCDF and CSV; return the paths."""
        netcdf, table = folder / f"{self.name}.nc", folder / f"{self.name}.csv"
        save_dataset(self.to_dataset(), netcdf)
        rows: list[list[Any]] = [["metric", "label", "kind", "uplink", "x", "y", "y_db", "standard_error"]]
        for series in (*self.series, *self.other_series):
            errors = [""] * series.x.size if series.standard_error is None else series.standard_error.tolist()
            about = [series.metric, series.label, series.kind, series.uplink or ""]
            columns = zip(series.x.tolist(), series.y.tolist(), series.y_db.tolist(), errors, strict=True)
            rows += [[*about, *row] for row in columns]
        write_atomically(table, csv_text(rows).encode(), mode=0o666)
        return [netcdf, table]


@dataclass(frozen=True)
class Quality:
    """How much is simulated.

    Attributes
    ----------
    quick : bool
        A rough version in seconds.
    trials : int or None
        Trials of every point, instead of each figure's own number.
    seed : int
        One for all figures: comparisons are paired.
    """

    quick: bool = False
    trials: int | None = None
    seed: int = 0

    def choose(self, full: int, quick: int) -> int:
        """Return the number of trials, given a figure's own for full and quick runs."""
        return self.trials if self.trials is not None else quick if self.quick else full


class FigurePlan(Protocol):
    """What a figure's file offers as ``FIGURE``."""

    @property
    def name(self) -> str:
        """``"fig1"`` …."""

    def cells(self, quality: Quality) -> list[Cell]:
        """Return what has to be simulated."""

    def build(self, quality: Quality, results: CellResults) -> FigureData:
        """Make the figure from the simulated cells and from theory."""


def simulated_series(
    cells: Iterable[Cell],
    results: CellResults,
    x: Iterable[float],
    *,
    label: str,
    uplink: str,
    curve: int,
    metric: str,
) -> Series:
    """Return the steady states of some cells as a series."""
    trials = np.stack([results(cell).steady_state[metric] for cell in cells])
    count = trials.shape[1]
    with np.errstate(invalid="ignore"):
        error = trials.std(axis=1, ddof=1) / math.sqrt(count) if count > 1 else np.full(len(trials), math.nan)
    return Series(
        label=label, kind="simulation", uplink=uplink, x=np.array(list(x), dtype=float),
        y=trials.mean(axis=1), metric=metric, curve=curve, standard_error=error, trials=trials,
    )  # fmt: skip


def find_unsteady_points(
    cells: Iterable[Cell], results: CellResults, describe: Callable[[Cell], str]
) -> tuple[str, ...]:
    """Describe the cells whose network MSE still changes."""
    return tuple(describe(cell) for cell in cells if "network_mse" in results(cell).unsteady_metrics)


def other_metrics(metric: str) -> list[str]:
    """Return the metrics that a figure does not draw."""
    return [name for name in METRIC_TITLES if name != metric]


def finite_numbers(values: FloatArray) -> list[float | None]:
    """Return a list in which what is not finite is None, as strict JSON needs it."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _pad(values: list[FloatArray | None], size: int) -> FloatArray:
    out = np.full((len(values), size), np.nan)
    for row, value in zip(out, values, strict=True):
        if value is not None:
            row[: value.size] = value
    return out
