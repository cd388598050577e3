"""Figure 1: test MSE of PSO-Fed and its rivals over the number of Byzantine clients.

Notes
-----
Of SignSGD the paper says neither which signs nor which vote. The one called SignSGD is fitted to its figure;
two plainer ones stand beside it, because the paper's claim depends on the choice. The rivals have no redrawn
uplink, but with M = D PSO-Fed's server is Online-Fed's; so that panel shows what the paper's analysis says of
both, and the theories' curves of Online-Fed are those of PSO-Fed with M = D.
"""

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
from psofed.scenario.changes import with_values
from psofed.studies.sweeps import Axis, Cell, Grid

BYZANTINE = (0, 5, 10, 15, 20)
TRIALS, QUICK_TRIALS = 512, 16

# Curves in order: their label, and what they change in the base scenario.
SIGN: dict[str, Any] = {"algorithm": "signsgd", "stepsize": 0.08}
# Stochastic signs wander; it takes longer runs to know their mean as well as the others'.
STOCHASTIC_ITERATIONS = 4500
ALGORITHMS: dict[str, dict[str, Any]] = {
    "PSO-Fed": {},
    "Online-Fed": {"algorithm": "online-fed"},
    "SignSGD": {**SIGN, "iterations": STOCHASTIC_ITERATIONS},
    "CS-Fed": {"algorithm": "cs-fed"},
    "QS-Fed": {"algorithm": "qs-fed"},
    "SignSGD, plain signs, majority": {**SIGN, "algorithm_options.signs": "deterministic"},
    "SignSGD, plain signs, mean": {
        **SIGN, "algorithm_options.signs": "deterministic", "algorithm_options.vote": "mean",
    },
}  # fmt: skip

# What the theories are asked for; Online-Fed's server is PSO-Fed's with M = D.
FULL_SHARING: dict[str, Any] = {"num_shared": 5}
PREDICTED: dict[str, dict[str, Any]] = {"PSO-Fed": {}, "Online-Fed": FULL_SHARING}


@dataclass(frozen=True)
class AlgorithmsFigure:
    """PSO-Fed and its rivals, on the same budget and the same draws."""

    name: str = "fig1"
    metric: str = "test_mse"

    @property
    def base(self) -> Scenario:
        """K = 100, |S_n| = 5, M = 1, μ = 0.15; attack variance 0.25, probability 1.

        The paper runs 3000 iterations; all algorithms are in their steady state after a quarter of them.
        """
        attack = Gaussian(num_byzantine=0, probability=1.0, variance=0.25)
        return Scenario(num_clients=100, dimension=5, iterations=1500, attack=attack)

    def cells(self, quality: Quality) -> list[Cell]:
        """Return every cell, curve by curve."""
        return [cell for _, _, row in self._rows(quality) for cell in row]

    def build(self, quality: Quality, results: CellResults) -> FigureData:
        """Make the figure: all algorithms as the equations say, PSO-Fed and Online-Fed also redrawn."""
        rows = list(self._rows(quality))
        numbers = {label: number for number, label in enumerate(ALGORITHMS)}
        series = [
            *self._series(rows, results, self.metric),
            *published_series(self.name, self.metric, numbers, "curve"),
        ]
        others = [one for metric in other_metrics(self.metric) for one in self._series(rows, results, metric)]
        return FigureData(
            name=self.name,
            title="PSO-Fed and its rivals over the number of Byzantine clients",
            caption=(
                "Steady-state test MSE at the server for 0 to 20 Byzantine clients of 100; attack variance 0.25, "
                "probability 1; every algorithm within the same communication budget, M = 1 number per participant "
                "and iteration. On the right, PSO-Fed and Online-Fed (M = 5) with the upload set redrawn."
            ),
            x_label="Byzantine clients |S_B|",
            metric=self.metric,
            base=self.base,
            varied={
                "algorithm": list(ALGORITHMS),
                "attack.num_byzantine": list(BYZANTINE),
                "uplink": list(UPLINKS),
            },
            series=tuple(series),
            other_series=tuple(others),
            panels=UPLINKS,
            trials=quality.choose(TRIALS, QUICK_TRIALS),
            seed=quality.seed,
            unsteady=find_unsteady_points(
                self.cells(quality),
                results,
                lambda cell: f"{cell.scenario.algorithm}, {cell.scenario.num_byzantine}",
            ),
        )

    def _rows(self, quality: Quality) -> Iterator[tuple[str, str, list[Cell]]]:
        """Yield label, uplink and cells of every simulated curve."""
        for label, changes in ALGORITHMS.items():
            yield label, "same", self._grid(changes, quality).cells()
        for label, changes in PREDICTED.items():
            yield label, "redrawn", self._grid({**changes, "uplink": "redrawn"}, quality).cells()

    def _grid(self, changes: dict[str, Any], quality: Quality) -> Grid:
        axis = Axis(("attack.num_byzantine",), tuple((count,) for count in BYZANTINE))
        trials = quality.choose(TRIALS, QUICK_TRIALS)
        return Grid(with_values(self.base, changes), (axis,), trials, quality.seed, tail=0.5)

    def _series(
        self, rows: list[tuple[str, str, list[Cell]]], results: CellResults, metric: str
    ) -> Iterator[FigureSeries]:
        for label, uplink, cells in rows:
            common: dict[str, Any] = {
                "label": label, "uplink": uplink, "curve": list(ALGORITHMS).index(label), "metric": metric,
            }  # fmt: skip
            yield simulated_series(cells, results, BYZANTINE, **common)
            # Online-Fed has no models at its clients, so there only the server is PSO-Fed's with M = D.
            if label not in PREDICTED or (label == "Online-Fed" and metric == "network_mse"):
                continue
            scenarios = [
                with_values(self.base, {**PREDICTED[label], "uplink": uplink, "attack.num_byzantine": count})
                for count in BYZANTINE
            ]
            for theory in ("exact", "paper") if uplink == "redrawn" else ("exact",):
                yield predicted_series(scenarios, BYZANTINE, theory=theory, **common)


FIGURE = AlgorithmsFigure()
