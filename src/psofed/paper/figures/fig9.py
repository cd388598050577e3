"""Figure 9 (the caption labelled fig8): the terms E_ω and E_φ of the MSE over the number of shared entries M.

Notes
-----
The attack's perturbations have mean zero and are independent of everything else, so the MSE is the MSE
without an attack plus E_ω, and the simulation shows the terms one by one: E_ω is the paired difference with
and without the attack on the same draws, and E_φ is the MSE without one less the noise term
E_Θ = 1/K Σ σ_νk².
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.fleet import draw_fleet
from psofed.paper.curves import QUICK_TRIALS, TERM_TRIALS, paper_scenario
from psofed.paper.model import CellResults, FigureData, FigureSeries, Quality, find_unsteady_points
from psofed.paper.predictions import predict_point
from psofed.scenario import UPLINKS, Scenario
from psofed.scenario.changes import with_values
from psofed.studies.sweeps import Axis, Cell, Grid

SHARED = (1, 2, 3, 4, 5)
BYZANTINE = (5, 15)
TERM_TITLES = {"attack": "E_ω (attack)", "data": "E_φ (data)"}


@dataclass(frozen=True)
class TermsFigure:
    """The two terms of the MSE, each for both numbers of Byzantine clients."""

    name: str = "fig9"

    @property
    def base(self) -> Scenario:
        """Scenario that all points have in common."""
        return paper_scenario(num_byzantine=5, probability=0.2, variance=0.5)

    def cells(self, quality: Quality) -> list[Cell]:
        """Return every cell: without attack, and with 5 and 15 Byzantine clients."""
        return self._grid(quality).cells()

    def build(self, quality: Quality, results: CellResults) -> FigureData:
        """Make the figure: E_ω for both attacks, E_φ (which does not depend on them)."""
        grid = self._grid(quality)
        cells = grid.cells()
        return FigureData(
            name=self.name,
            title="The terms of the MSE over the number of shared entries",
            caption=(
                "E_ω, what the attack adds to the network MSE, and E_φ, what the data's noise adds, over M; "
                "attack variance 0.5, probability 0.2. Simulated terms are differences on the same draws."
            ),
            x_label="shared entries M",
            metric="term",
            base=self.base,
            varied={axis.name: axis.labels for axis in grid.axes},
            series=tuple(self._series(cells, results)),
            other_series=(),
            panels=UPLINKS,
            trials=grid.trials,
            seed=grid.seed,
            unsteady=find_unsteady_points(
                cells, results, lambda cell: f"M = {cell.scenario.num_shared}, uplink {cell.scenario.uplink}"
            ),
        )

    def _grid(self, quality: Quality) -> Grid:
        axes = (
            Axis(("uplink",), tuple((uplink,) for uplink in UPLINKS)),
            Axis(("attack.num_byzantine",), tuple((count,) for count in (0, *BYZANTINE))),
            Axis(("num_shared",), tuple((count,) for count in SHARED)),
        )
        return Grid(self.base, axes, quality.choose(TERM_TRIALS, QUICK_TRIALS), quality.seed, tail=0.5)

    def _series(self, cells: list[Cell], results: CellResults) -> Iterator[FigureSeries]:
        rows = iter(np.array_split(np.arange(len(cells)), len(cells) // len(SHARED)))
        noise = float(draw_fleet(self.base).noise_variance.mean())
        for uplink in UPLINKS:
            quiet = _trials(cells, next(rows), results)
            yield from self._term("data", None, uplink, quiet - noise, curve=0)
            for curve, count in enumerate(BYZANTINE, start=1):
                attacked = _trials(cells, next(rows), results)
                yield from self._term("attack", count, uplink, attacked - quiet, curve=curve)

    def _term(
        self, term: str, count: int | None, uplink: str, trials: FloatArray, curve: int
    ) -> Iterator[FigureSeries]:
        label = TERM_TITLES[term] + ("" if count is None else f", |S_B| = {count}")
        x = np.array(SHARED, dtype=float)
        error = trials.std(axis=1, ddof=1) / math.sqrt(trials.shape[1])
        yield FigureSeries(
            label=label, kind="simulation", uplink=uplink, x=x, y=trials.mean(axis=1), metric="term",
            curve=curve, standard_error=error, trials=trials,
        )  # fmt: skip
        scenarios = [
            with_values(
                self.base, {"uplink": uplink, "num_shared": m, "attack.num_byzantine": count or BYZANTINE[0]}
            )
            for m in SHARED
        ]
        for theory in ("exact", "paper") if uplink == "redrawn" else ("exact",):
            y = np.array([getattr(predict_point(scenario, theory), term) for scenario in scenarios])
            yield FigureSeries(
                label=label, kind=f"{theory}-theory", uplink=uplink, x=x, y=y, metric="term", curve=curve
            )


def _trials(cells: list[Cell], row: Any, results: CellResults) -> FloatArray:
    return np.stack([results(cells[int(place)]).steady_state["network_mse"] for place in row])


FIGURE = TermsFigure()
