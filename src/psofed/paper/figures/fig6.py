"""Figure 6 (the caption labelled fig5): MSE over the stepsize μ, for 0, 5 and 15 Byzantine clients."""

from psofed.paper.curves import CurvesFigure, axis, paper_scenario, stepsize_axis

FIGURE = CurvesFigure(
    name="fig6",
    title="MSE over the stepsize, for three numbers of Byzantine clients",
    caption=(
        "Steady-state network MSE of PSO-Fed over the stepsize for 0, 5 or 15 Byzantine clients; M = 1, "
        "attack variance 0.25, probability 0.25."
    ),
    base=paper_scenario(num_byzantine=5, probability=0.25, variance=0.25),
    x_axis=stepsize_axis(),
    curve_axis=axis("attack.num_byzantine", 0, 5, 15),
    x_label="stepsize μ",
    curve_label="|S_B| = {}",
)
