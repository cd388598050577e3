"""Content of a figure: series of points with their uncertainty, and the plan that leads to them."""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.files import write_atomically, write_json
from psofed.common.numbers import finite_or_none, to_decibels
from psofed.common.types import FloatArray
from psofed.results.metric_difference import DECIBELS_PER_NEPER
from psofed.results.netcdf import save_dataset
from psofed.scenario import Scenario
from psofed.studies.sweeps import Cell, CellResult

if TYPE_CHECKING:
    import xarray

KINDS = ("simulation", "paper-theory", "exact-theory", "published")

CellResults = Callable[[Cell], CellResult]


@dataclass(frozen=True, eq=False)
class FigureSeries:
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
        return None if self.standard_error is None else DECIBELS_PER_NEPER * self.standard_error / self.y

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        error = self.standard_error
        return {
            "label": self.label,
            "kind": self.kind,
            "uplink": self.uplink,
            "x": self.x.tolist(),
            "y": self.y.tolist(),
            "y_db": self.y_db.tolist(),
            "standard_error": None if error is None else error.tolist(),
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
    series : tuple of FigureSeries
        In the figure's own metric.
    other_series : tuple of FigureSeries
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
    series: tuple[FigureSeries, ...]
    other_series: tuple[FigureSeries, ...]
    panels: tuple[str, ...]
    trials: int
    seed: int
    unsteady: tuple[str, ...] = ()

    def select(self, **wanted: Any) -> list[FigureSeries]:
        """Return the series whose attributes have the given values, of any metric.

        A metric that is not asked for is the figure's own.
        """
        wanted.setdefault("metric", self.metric)
        every = (*self.series, *self.other_series)
        return [
            series for series in every if all(getattr(series, key) == value for key, value in wanted.items())
        ]

    def panel(self, uplink: str) -> list[FigureSeries]:
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

    def misfit_db(self, kind: str, uplink: str) -> float | None:
        """Return how far a theory lies above the simulation where it is farthest from it; None without that theory."""
        distances = [
            distance
            for theory in self.panel(uplink)
            if theory.kind == kind
            for series in self.select(kind="simulation", uplink=uplink, label=theory.label)
            for distance in (theory.y_db - series.y_db).tolist()
        ]
        return max(distances, key=abs, default=None)

    @property
    def worst_standard_error_db(self) -> float:
        """The largest standard error of a simulated point, in dB."""
        errors = [series.standard_error_db for series in self.select(kind="simulation")]
        return max((float(np.max(error)) for error in errors if error is not None), default=math.nan)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists; a number that is not finite (a trial diverged) becomes None."""
        plain: dict[str, Any] = finite_or_none({
            "figure": self.name,
            "title": self.title,
            "caption": self.caption,
            "x_label": self.x_label,
            "metric": self.metric,
            "series": [series.to_json() for series in self.series],
            "other_metrics": [series.to_json() for series in self.other_series],
            "panels": list(self.panels),
            "worst_standard_error_db": self.worst_standard_error_db,
            "unsteady": list(self.unsteady),
            "scenario": self.base.to_mapping(),
            "varied": self.varied,
            "trials": self.trials,
            "seed": self.seed,
            "version": __version__,
        })  # fmt: skip
        return plain

    def to_dataset(self) -> "xarray.Dataset":
        """Return all series as one labelled table, padded with NaN to the longest."""
        import xarray

        every = (*self.series, *self.other_series)
        points = max(series.x.size for series in every)
        padded = {}
        for name in ("x", "y", "y_db", "standard_error"):
            table = np.full((len(every), points), np.nan)
            for row, series in zip(table, every, strict=True):
                if (values := getattr(series, name)) is not None:
                    row[: values.size] = values
            padded[name] = ("series", "point"), table
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

    def save_data(self, folder: Path) -> None:
        """Write the series as JSON, NetCDF and CSV."""
        write_json(folder / f"{self.name}.json", self.to_json(), mode=0o666)
        save_dataset(self.to_dataset(), folder / f"{self.name}.nc")
        about, numbers = ("metric", "label", "kind", "uplink"), ("x", "y", "y_db", "standard_error")
        rows: list[Any] = [(*about, *numbers)]
        for series in (*self.series, *self.other_series):
            names = [getattr(series, name) or "" for name in about]
            columns = [getattr(series, name) for name in numbers]
            filled = [[""] * series.x.size if column is None else column.tolist() for column in columns]
            rows += [(*names, *row) for row in zip(*filled, strict=True)]
        write_atomically(folder / f"{self.name}.csv", csv_text(rows).encode(), mode=0o666)


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
