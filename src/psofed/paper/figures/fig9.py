"""Figure 9 (the caption labelled fig8): the terms E_ω and E_φ of the MSE over the number of shared parameters M.

Notes
-----
The attack's perturbations have mean zero and are independent of everything else, so the MSE is the MSE
without an attack plus E_ω, and the simulation shows the terms one by one: E_ω is the paired difference with
and without the attack on the same draws, and E_φ is the MSE without one less the noise term
E_Θ = 1/K Σ σ_νk².
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from psofed.fleet import draw_fleet
from psofed.paper.curves import TERM_TRIALS, FigurePlan, Row, SimulatedRows, axis, paper_scenario
from psofed.paper.model import FigureSeries
from psofed.scenario import UPLINKS

SHARED = (1, 2, 3, 4, 5)
BYZANTINE = (5, 15)


@dataclass(frozen=True, kw_only=True)
class TermsFigure(FigurePlan):
    """The two terms of the MSE, the attack's for both numbers of Byzantine clients."""

    @property
    def varied(self) -> dict[str, list[Any]]:
        """The fields that vary, with their values."""
        return {
            "uplink": list(UPLINKS),
            "attack.num_byzantine": [0, *BYZANTINE],
            "num_shared": list(SHARED),
        }

    def rows(self) -> Iterator[Row]:
        """Yield for each uplink E_φ, without attack, and E_ω for 5 and 15 Byzantine clients."""
        for uplink in UPLINKS:
            quiet, base = {"attack.num_byzantine": 0}, {"attack.num_byzantine": BYZANTINE[0]}
            yield Row("E_φ (data)", uplink, 0, quiet, base, term="data")
            for curve, count in enumerate(BYZANTINE, start=1):
                changes = {"attack.num_byzantine": count}
                yield Row(f"E_ω (attack), |S_B| = {count}", uplink, curve, changes, changes, term="attack")

    def series(self, metric: str, rows: SimulatedRows) -> Iterator[FigureSeries]:
        """Yield the terms: differences of simulations on the same draws, and the theories' terms."""
        noise, quiet = draw_fleet(self.base).noise_variance.mean(), np.array(0.0)
        for row, results in rows:
            trials = np.stack([result.steady_state["network_mse"] for result in results])
            if row.curve == 0:
                quiet = trials
            yield row.simulated(SHARED, trials - (quiet if row.curve else noise), metric)
            yield from self.predictions(row, metric)


FIGURE = TermsFigure(
    name="fig9",
    title="The terms of the MSE over the number of shared parameters",
    caption=(
        "E_ω, what the attack adds to the network MSE, and E_φ, what the data's noise adds, over M; "
        "attack variance 0.5, probability 0.2. Simulated terms are differences on the same draws."
    ),
    base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
    x_axis=axis("num_shared", *SHARED),
    x_label="shared parameters M",
    metric="term",
    trials=TERM_TRIALS,
)
