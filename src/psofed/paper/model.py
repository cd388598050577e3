"""Content of a figure: series of points with their uncertainty, and the plan that leads to them."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed._version import __version__
from psofed.common.csv_text import csv_text
from psofed.common.files import write_atomically, write_json
from psofed.common.numbers import json_object, to_decibels
from psofed.common.types import FloatArray
from psofed.results.differences import DECIBELS_PER_NEPER
from psofed.results.netcdf import open_dataset, read_back, save_dataset
from psofed.scenario import UPLINKS, Scenario
from psofed.studies.sweeps import Cell, CellResult

if TYPE_CHECKING:
    import xarray

KINDS = ("simulation", "paper-theory", "exact-theory", "published")

# What files say of every series, and of every figure.
_ABOUT = ("label", "kind", "uplink")
_TEXTS = ("title", "caption", "x_label", "metric")

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
        (so it is marked, and drawn in both panels); None for printed points, whose system is not stated.
    x, y : array (points,)
        y is linear.
    curve : int
        Series of one figure with the same number are the same curve found in different ways.
    standard_error : array (points,) or None
        Of y; None for theory and printed points.
    trials : array (points, trials) or None
        What the simulation's y is the mean of, for paired comparisons.
    """

    label: str
    kind: str
    uplink: str | None
    x: FloatArray
    y: FloatArray
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

    @property
    def numbers(self) -> dict[str, FloatArray]:
        """Numbers that files hold of every point, by name; NaN where there is no standard error."""
        error = np.full(self.y.size, np.nan) if self.standard_error is None else self.standard_error
        return {"x": self.x, "y": self.y, "y_db": self.y_db, "standard_error": error}

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        about = {name: getattr(self, name) for name in (*_ABOUT, "curve")}
        lists = {name: values.tolist() for name, values in self.numbers.items()}
        return {**about, **lists, **({"standard_error": None} if self.standard_error is None else {})}


@dataclass(frozen=True, kw_only=True)
class FigureSubject:
    """Subject of a figure, in our words.

    Attributes
    ----------
    name, title, caption : str
    base : Scenario
        What all points have in common.
    x_label, metric : str
        The axes; the metric is ``"network_mse"``, ``"test_mse"`` or ``"term"``, for terms of the MSE.
    """

    name: str
    title: str
    caption: str
    base: Scenario
    x_label: str
    metric: str = "network_mse"


@dataclass(frozen=True, eq=False, kw_only=True)
class FigureData(FigureSubject):
    """A finished figure, with a panel for each uplink.

    Attributes
    ----------
    varied : dict
        The fields that vary, with their values.
    series : tuple of FigureSeries
    trials, seed : int
        Of the simulation.
    unsteady : tuple of str
        Points at which a simulation was not yet in its steady state.
    """

    varied: dict[str, list[Any]]
    series: tuple[FigureSeries, ...]
    trials: int
    seed: int
    unsteady: tuple[str, ...] = ()

    def select(self, **wanted: Any) -> list[FigureSeries]:
        """Return the series whose attributes have the given values."""
        return [one for one in self.series if all(getattr(one, key) == value for key, value in wanted.items())]

    def panel(self, uplink: str) -> list[FigureSeries]:
        """Return what is drawn in a panel: its uplink's series, the paper's theory and the printed points.

        A panel shows a curve only if it is simulated there; the paper's theory is shown in both.
        """
        simulated = {series.curve for series in self.select(kind="simulation", uplink=uplink)}
        drawn = [s for s in self.series if s.uplink in (uplink, None) or s.kind == "paper-theory"]
        return [s for s in drawn if s.curve in simulated]

    @property
    def curve_labels(self) -> dict[int, str]:
        """The label of every simulated curve, by its number, in order."""
        return dict(sorted({series.curve: series.label for series in self.select(kind="simulation")}.items()))

    @property
    def worst_standard_error_db(self) -> float:
        """The largest standard error of a simulated point, in dB."""
        errors = [series.standard_error_db for series in self.select(kind="simulation")]
        return max((float(np.max(error)) for error in errors if error is not None), default=math.nan)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts and lists; a number that is not finite (a trial diverged) becomes None."""
        names = (*_TEXTS, "worst_standard_error_db", "varied")
        return json_object(
            {
                "figure": self.name,
                **{name: getattr(self, name) for name in names},
                "series": [series.to_json() for series in self.series],
                "panels": list(UPLINKS),
                "unsteady": list(self.unsteady),
                "scenario": self.base.to_mapping(),
                **self._origin,
            }
        )

    @property
    def _origin(self) -> dict[str, Any]:
        return {"trials": self.trials, "seed": self.seed, "version": __version__}

    def to_dataset(self) -> "xarray.Dataset":
        """Return all series as one labelled table, padded with NaN to the longest."""
        import xarray

        longest = max(series.x.size for series in self.series)
        padded: dict[str, Any] = {}
        for name in self.series[0].numbers:
            rows = [np.append(s.numbers[name], np.full(longest - s.x.size, np.nan)) for s in self.series]
            padded[name] = ("series", "point"), np.stack(rows)
        about = {name: ("series", [str(getattr(s, name) or "") for s in self.series]) for name in _ABOUT}
        curves = {"curve": ("series", [series.curve for series in self.series])}
        texts = {name: getattr(self, name) for name in _TEXTS}
        origin = {"figure": self.name, **texts, "scenario": self.base.to_toml(), **self._origin}
        return xarray.Dataset(padded, coords=about | curves, attrs=origin)

    def save_data(self, folder: Path) -> None:
        """Write the series as JSON, NetCDF and CSV."""
        write_json(folder / f"{self.name}.json", self.to_json(), mode=0o666)
        save_dataset(self.to_dataset(), folder / f"{self.name}.nc")
        rows: list[Any] = [(*_ABOUT, *self.series[0].numbers)]
        for series in self.series:
            names = [getattr(series, name) or "" for name in _ABOUT]
            columns = (values.tolist() for values in series.numbers.values())
            rows += [(*names, *row) for row in zip(*columns, strict=True)]
        write_atomically(folder / f"{self.name}.csv", csv_text(rows).encode(), mode=0o666)


def read_figure(path: Path) -> FigureData | None:
    """Return a figure that `reproduce` wrote as NetCDF, without its trials; None if the file is another result."""
    data = open_dataset(path) if path.suffix.lower() == ".nc" else None
    if data is None or "figure" not in data.attrs:
        return None
    figure: FigureData = read_back(path, data, _from_dataset)
    return figure


def _from_dataset(data: "xarray.Dataset") -> FigureData:
    series = []
    for at in range(data.sizes["series"]):
        one = data.isel(series=at)
        label, kind, uplink = (str(one[name].values) for name in _ABOUT)
        size = int(np.isfinite(one["x"].values).sum())
        x, y, error = (one[name].values[:size] for name in ("x", "y", "standard_error"))
        curve, errors = int(one["curve"]), error if kind == "simulation" else None
        series.append(FigureSeries(label, kind, uplink or None, x, y, curve, errors))
    return FigureData(
        name=data.attrs["figure"],
        **{name: data.attrs[name] for name in _TEXTS},
        base=Scenario.from_toml(data.attrs["scenario"]),
        varied={},
        series=tuple(series),
        trials=int(data.attrs["trials"]),
        seed=int(data.attrs["seed"]),
    )


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


@dataclass(frozen=True, eq=False)
class Reproduction:
    """Some figures, and what it took to make them.

    Attributes
    ----------
    figures : dict of str to FigureData
        By name.
    quality : Quality
        How much was simulated.
    simulation_seconds, theory_seconds : float
        Wall time of both.
    computed_cells, cells : int
        Different cells simulated in this run, and all that the figures are made of.
    changes : dict
        Fields in which the figures' scenarios differ from the paper's.
    """

    figures: dict[str, FigureData]
    quality: Quality
    simulation_seconds: float
    theory_seconds: float
    computed_cells: int
    cells: int
    changes: dict[str, Any] = field(default_factory=dict)
