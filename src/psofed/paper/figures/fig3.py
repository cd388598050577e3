"""Figure 3: MSE over the attack's variance σ_B², for 5 and 15 Byzantine clients."""

from psofed.paper.curves import CurvesFigure, axis, paper_scenario

FIGURE = CurvesFigure(
    name="fig3",
    title="MSE over the attack's strength",
    caption=(
        "Steady-state network MSE of PSO-Fed over the attack's variance for 5 or 15 Byzantine clients; "
        "M = 1, attack probability 0.2."
    ),
    base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
    x_axis=axis("attack.variance", 0.0, 0.25, 0.5, 0.75, 1.0),
    curve_axis=axis("attack.num_byzantine", 5, 15),
    x_label="attack variance σ_B²",
    curve_label="|S_B| = {}",
)
