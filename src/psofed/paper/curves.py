"""Plans of figures: curves over an axis, each simulated and predicted for one uplink or both."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.common.types import FloatArray
from psofed.paper.model import CellResults, FigureData, FigureSeries, Quality
from psofed.paper.predictions import predict_point
from psofed.paper.published import published_table
from psofed.parts.attacks.gaussian import Gaussian
from psofed.results import METRIC_TITLES
from psofed.scenario import UPLINKS, Data, Scenario
from psofed.scenario.changes import with_values
from psofed.studies.sweeps import Axis, Cell, CellResult, Grid

# μ of the stepsize axes.
STEPSIZES = (0.01, 0.03, 0.05, 0.07, 0.09, 0.11, 0.13, 0.15, 0.17, 0.19, 0.2)

# Of figures 2 to 9.
FLEET_SEED = 17

# Trials for standard errors of at most 0.05 dB: of the MSE, and of its terms (figure 9, of figure 2's cells).
TRIALS, TERM_TRIALS, QUICK_TRIALS = 192, 448, 16


def paper_scenario(*, num_byzantine: int, probability: float, variance: float, **fields: Any) -> Scenario:
    """Return the fleet of the paper's experiments 2 to 9: K = 50, D = 5, |S_n| = 5, M = 1, μ = 0.15.

    Notes
    -----
    The paper does not print μ of its figures 2 to 5; 0.15 fits their level. It runs 3000 iterations; half of
    them are enough for a steady state at this μ (a test and the report look at the drift). Its fleet is unknown;
    `FLEET_SEED` draws one whose theory is within 0.13 dB of the printed theory everywhere.
    """
    attack = Gaussian(num_byzantine=num_byzantine, probability=probability, variance=variance)
    data = Data(fleet_seed=FLEET_SEED)
    return Scenario(
        **{"num_clients": 50, "dimension": 5, "iterations": 1500, "attack": attack, "data": data, **fields}
    )


def axis(field: str, *values: float) -> Axis:
    """Return an axis along one field."""
    return Axis((field,), tuple((value,) for value in values))


def stepsize_axis() -> Axis:
    """Return the stepsizes, each with iterations enough: twice 25/μ, ten times the slowest client's memory.

    The slowest mode, a client with ς² = 0.2 left alone, forgets as (1 − 2μς²)ⁿ ≈ exp(−0.4μn).
    """
    return Axis(("stepsize", "iterations"), tuple((mu, max(1500, round(50 / mu))) for mu in STEPSIZES))


@dataclass(frozen=True)
class Row:
    """A curve of a figure, for one uplink.

    Attributes
    ----------
    label : str
        In the legend.
    uplink : str
        ``"same"`` or ``"redrawn"``.
    curve : int
        The curve's number, the same for both uplinks.
    changes : mapping
        Fields that differ from the figure's base scenario.
    predicted : mapping or None
        The same for the theories; None where they do not cover the curve.
    unpredicted : tuple of str
        Metrics that the theories do not cover.
    term : str
        Attribute of a prediction that the curve shows, if that is not the figure's metric.
    """

    label: str
    uplink: str
    curve: int
    changes: Mapping[str, Any]
    predicted: Mapping[str, Any] | None
    unpredicted: tuple[str, ...] = ()
    term: str = ""

    def series(self, kind: str, x: Iterable[float], y: Any, metric: str, **more: Any) -> FigureSeries:
        """Return one way in which the curve was found."""
        points = np.array(list(x), dtype=float), np.array(y, dtype=float)
        about: dict[str, Any] = {"label": self.label, "curve": self.curve, "uplink": self.uplink, **more}
        return FigureSeries(kind=kind, x=points[0], y=points[1], metric=metric, **about)

    def simulated(self, x: Iterable[float], trials: FloatArray, metric: str) -> FigureSeries:
        """Return the means over trials, shape (points, trials), with their standard errors."""
        count = trials.shape[1]
        with np.errstate(invalid="ignore"):
            spread = trials.std(axis=1, ddof=1) if count > 1 else np.full(len(trials), math.nan)
        error = spread / math.sqrt(count)
        return self.series("simulation", x, trials.mean(axis=1), metric, standard_error=error, trials=trials)


SimulatedRows = list[tuple[Row, list[CellResult]]]


@dataclass(frozen=True, kw_only=True)
class FigurePlan:
    """Content of a figure: its file holds it as ``FIGURE``.

    Attributes
    ----------
    name, title, caption, x_label, metric : str
        See :class:`FigureData`.
    base : Scenario
        What all points have in common.
    x_axis : Axis
        What varies along the abscissa.
    small_stepsize : bool
        Show the paper's theory in its small-stepsize approximation too.
    trials : int
        Of every point, for standard errors of at most 0.05 dB.
    is_changed : bool
        Whether the base is not the paper's: there are no printed points, and theory only where it applies.
    """

    name: str
    title: str
    caption: str
    base: Scenario
    x_axis: Axis
    x_label: str
    metric: str = "network_mse"
    small_stepsize: bool = False
    trials: int = TRIALS
    is_changed: bool = False

    def changed(self, changes: Mapping[str, Any]) -> "FigurePlan":
        """Return the figure with fields of its base set by dotted name."""
        if not changes:
            return self
        varied = {*self.varied, *self.x_axis.fields}
        for name, value in changes.items():
            if name in varied:
                raise InvalidValueError(name, value, f"left out: it varies in {self.name}")
        words = ", ".join(f"{name} = {value}" for name, value in changes.items())
        caption = f"{self.caption} Changed: {words}."
        return replace(self, base=with_values(self.base, changes), caption=caption, is_changed=True)

    @property
    def varied(self) -> dict[str, list[Any]]:
        """The fields that vary, with their values."""
        raise NotImplementedError

    def rows(self) -> Iterator[Row]:
        """Yield all simulated curves."""
        raise NotImplementedError

    def cells(self, quality: Quality) -> list[Cell]:
        """Return what has to be simulated, curve by curve."""
        return [cell for row in self.rows() for cell in self.row_cells(row, quality)]

    def row_cells(self, row: Row, quality: Quality) -> list[Cell]:
        """Return the points of one curve."""
        base = with_values(self.base, {**row.changes, "uplink": row.uplink})
        trials = quality.choose(self.trials, QUICK_TRIALS)
        return Grid(base, (self.x_axis,), trials, quality.seed, tail=0.5).cells()

    def build(self, quality: Quality, results: CellResults) -> FigureData:
        """Make the figure from the simulated cells, both theories and the printed points."""
        own, *others = dict.fromkeys((self.metric, *(METRIC_TITLES if self.metric in METRIC_TITLES else ())))
        rows = [(row, [results(cell) for cell in self.row_cells(row, quality)]) for row in self.rows()]
        unsteady = tuple(
            f"{row.label}, {self.x_label} = {x}, uplink {row.uplink}"
            for row, found in rows
            for x, result in zip(self.x_axis.labels, found, strict=True)
            if "network_mse" in result.unsteady_metrics
        )
        return FigureData(
            name=self.name, title=self.title, caption=self.caption, x_label=self.x_label, metric=self.metric,
            base=self.base, varied=self.varied, panels=UPLINKS,
            series=(*self.series(own, rows), *self._published()),
            other_series=tuple(one for metric in others for one in self.series(metric, rows)),
            trials=quality.choose(self.trials, QUICK_TRIALS), seed=quality.seed, unsteady=unsteady,
        )  # fmt: skip

    def series(self, metric: str, rows: SimulatedRows) -> Iterator[FigureSeries]:
        """Yield the steady states of all curves, simulated and predicted."""
        for row, results in rows:
            trials = np.stack([result.steady_state[metric] for result in results])
            yield row.simulated(self.x_axis.labels, trials, metric)
            if metric not in row.unpredicted:
                yield from self.predictions(row, metric)

    def examples(self) -> tuple[Scenario, Scenario]:
        """Return a point of the first and of the last curve that theory predicts, under the strongest attack."""
        predicted = [
            row.predicted for row in self.rows() if row.uplink == "same" and row.predicted is not None
        ]
        name, values = self.x_axis.name, self.x_axis.labels
        strongest = {name: values[-1]} if name.startswith("attack.") else {}
        first, last = (with_values(self.base, {**predicted[at], **strongest}) for at in (0, -1))
        return first, last

    def outline(self) -> Iterator[FigureSeries]:
        """Yield what is known without simulating: the exact theory for the equations as written, the printed points."""
        for row in self.rows():
            if row.uplink == "same" and self.metric not in row.unpredicted:
                yield from self.predictions(row, self.metric)
        yield from self._published()

    def predictions(self, row: Row, metric: str) -> Iterator[FigureSeries]:
        """Yield what the theories say of a curve."""
        if row.predicted is None:
            return
        base = with_values(self.base, {**row.predicted, "uplink": row.uplink})
        scenarios = [cell.scenario for cell in Grid(base, (self.x_axis,)).cells()]
        # The paper's theory describes the redrawn uplink, whatever the equations say.
        theories = [("exact", False), ("paper", False), ("paper", True)][: 2 + self.small_stepsize]
        for theory, small in theories if row.uplink == "redrawn" else theories[:1]:
            name = row.term or metric
            try:
                y = [getattr(predict_point(scenario, theory, small), name) for scenario in scenarios]
            except NotCoveredError:
                if not self.is_changed:
                    raise
                continue
            label = f"{row.label}, small-stepsize approximation" if small else row.label
            yield row.series(f"{theory}-theory", self.x_axis.labels, y, metric, label=label)

    def _published(self) -> Iterator[FigureSeries]:
        """Yield the curves printed in the paper, each with the number of ours that it should be."""
        numbers = {row.label: row.curve for row in self.rows()}
        for printed in () if self.is_changed else published_table().get(self.name, ()):
            name, kind = printed["curve"], printed["kind"]
            yield FigureSeries(
                f"{name}, printed {kind}", "published", None, np.array(printed["x"], dtype=float),
                10 ** (np.array(printed["y_db"]) / 10), self.metric, numbers[name],
            )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CurvesFigure(FigurePlan):
    """A figure of PSO-Fed alone: a sweep over two axes and both uplinks.

    Attributes
    ----------
    curve_axis : Axis
        What varies between curves.
    curve_label : str
        Names a curve: a format for its value.
    """

    curve_axis: Axis
    curve_label: str

    @property
    def varied(self) -> dict[str, list[Any]]:
        """The fields that vary, with their values."""
        axes = {axis.name: list(axis.labels) for axis in (self.curve_axis, self.x_axis)}
        return {"uplink": list(UPLINKS), **axes}

    def rows(self) -> Iterator[Row]:
        """Yield every curve, for the equations as written and for the redrawn uplink."""
        for uplink in UPLINKS:
            for curve, value in enumerate(self.curve_axis.labels):
                changes = {self.curve_axis.name: value}
                yield Row(self.curve_label.format(value), uplink, curve, changes, changes)
