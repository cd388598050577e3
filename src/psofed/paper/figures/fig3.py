"""Figure 3: MSE over the attack's variance σ_B², for 5 and 15 Byzantine clients."""

from psofed.paper.curves import CurvesFigure, paper_scenario
from psofed.studies.sweeps import Axis

FIGURE = CurvesFigure(
    name="fig3",
    title="MSE over the attack's strength",
    caption=(
        "Steady-state network MSE of PSO-Fed over the attack's variance for 5 or 15 Byzantine clients; "
        "M = 1, attack probability 0.2."
    ),
    base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
    x_axis=Axis(("attack.variance",), ((0.0,), (0.25,), (0.5,), (0.75,), (1.0,))),
    curve_axis=Axis(("attack.num_byzantine",), ((5,), (15,))),
    x_label="attack variance σ_B²",
    curve_label="|S_B| = {}",
)
