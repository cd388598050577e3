"""Figures that are one sweep: a field along the abscissa, a field that makes the curves, both uplinks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from psofed.paper.model import (
    CellResults,
    FigureData,
    FigureSeries,
    Quality,
    find_unsteady_points,
    other_metrics,
    simulated_series,
)
from psofed.paper.predictions import predicted_series
from psofed.paper.published import published_series
from psofed.parts.attacks.gaussian import Gaussian
from psofed.scenario import UPLINKS, Scenario
from psofed.studies.sweeps import Axis, Cell, Grid

# μ of the stepsize axes.
STEPSIZES = (0.01, 0.03, 0.05, 0.07, 0.09, 0.11, 0.13, 0.15, 0.17, 0.19, 0.2)

# Trials for standard errors of at most 0.05 dB: of the MSE, and of its terms (figure 9, of figure 2's cells).
TRIALS, TERM_TRIALS, QUICK_TRIALS = 192, 448, 16


def paper_scenario(*, num_byzantine: int, probability: float, variance: float, **fields: Any) -> Scenario:
    """Return the fleet of the paper's experiments 2 to 9: K = 50, D = 5, |S_n| = 5, M = 1, μ = 0.15.

    Notes
    -----
    The paper does not print μ of its figures 2 to 5; 0.15 fits their level. It runs 3000 iterations; half of
    them are enough for a steady state at this μ (a test and the report look at the drift).
    """
    attack = Gaussian(num_byzantine=num_byzantine, probability=probability, variance=variance)
    return Scenario(**{"num_clients": 50, "dimension": 5, "iterations": 1500, "attack": attack, **fields})


def stepsize_axis() -> Axis:
    """Return the stepsizes, each with iterations enough: twice 25/μ, ten times the slowest client's memory.

    The slowest mode, a client with ς² = 0.2 left alone, forgets as (1 − 2μς²)ⁿ ≈ exp(−0.4μn).
    """
    return Axis(("stepsize", "iterations"), tuple((mu, max(1500, round(50 / mu))) for mu in STEPSIZES))


@dataclass(frozen=True)
class CurvesFigure:
    """A figure of PSO-Fed alone.

    Attributes
    ----------
    name, title, caption : str
        See :class:`FigureData`.
    base : Scenario
        What all points have in common.
    x_axis, curve_axis : Axis
        What varies along the abscissa and between curves.
    x_label, curve_label : str
        How to name them; ``curve_label`` is a format for the curve's value.
    metric : str
        The ordinate.
    small_stepsize : bool
        Show the paper's theory in its small-stepsize approximation too.
    trials : int
        Of every point, for standard errors of at most 0.05 dB.
    """

    name: str
    title: str
    caption: str
    base: Scenario
    x_axis: Axis
    curve_axis: Axis
    x_label: str
    curve_label: str
    metric: str = "network_mse"
    small_stepsize: bool = False
    trials: int = TRIALS

    def cells(self, quality: Quality) -> list[Cell]:
        """Return every cell, uplink by uplink, curve by curve."""
        return self._grid(quality).cells()

    def build(self, quality: Quality, results: CellResults) -> FigureData:
        """Make the figure: simulation and both theories of every curve and uplink, and the printed points."""
        grid = self._grid(quality)
        cells = grid.cells()
        numbers = {value: number for number, value in enumerate(self.curve_axis.labels)}
        series = [*self._metric_series(cells, results, self.metric)]
        series += published_series(self.name, self.metric, numbers, "num_byzantine")
        others = [
            one
            for metric in other_metrics(self.metric)
            for one in self._metric_series(cells, results, metric)
        ]

        def describe(cell: Cell) -> str:
            place = cells.index(cell)
            point = self.x_axis.labels[place % len(self.x_axis.values)]
            return f"{self.x_label} = {point}, uplink {cell.scenario.uplink}"

        return FigureData(
            name=self.name, title=self.title, caption=self.caption, x_label=self.x_label, metric=self.metric,
            base=self.base, varied={axis.name: axis.labels for axis in grid.axes}, series=tuple(series),
            other_series=tuple(others), panels=UPLINKS, trials=grid.trials, seed=grid.seed,
            unsteady=find_unsteady_points(cells, results, describe),
        )  # fmt: skip

    def _grid(self, quality: Quality) -> Grid:
        uplinks = Axis(("uplink",), tuple((uplink,) for uplink in UPLINKS))
        trials = quality.choose(self.trials, QUICK_TRIALS)
        return Grid(self.base, (uplinks, self.curve_axis, self.x_axis), trials, quality.seed, tail=0.5)

    def _metric_series(self, cells: list[Cell], results: CellResults, metric: str) -> Iterator[FigureSeries]:
        x, points = self.x_axis.labels, len(self.x_axis.values)
        for block, first in enumerate(range(0, len(cells), points)):
            uplink = UPLINKS[block // len(self.curve_axis.values)]
            curve = block % len(self.curve_axis.values)
            label = self.curve_label.format(self.curve_axis.labels[curve])
            row = cells[first : first + points]
            scenarios = [cell.scenario for cell in row]
            common: dict[str, Any] = {"uplink": uplink, "curve": curve, "metric": metric}
            yield simulated_series(row, results, x, label=label, **common)
            yield predicted_series(scenarios, x, theory="exact", label=label, **common)
            # The paper's theory describes the redrawn uplink, whatever the equations say.
            if uplink == "redrawn":
                yield predicted_series(scenarios, x, theory="paper", label=label, **common)
                if self.small_stepsize:
                    yield predicted_series(
                        scenarios, x, theory="paper", label=f"{label}, small-stepsize approximation",
                        small_stepsize=True, **common,
                    )  # fmt: skip
