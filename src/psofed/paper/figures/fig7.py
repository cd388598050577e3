"""Figure 7 (the caption labelled fig6): MSE over the stepsize μ, for three attack variances σ_B²."""

from psofed.paper.curves import CurvesFigure, axis, paper_scenario, stepsize_axis

FIGURE = CurvesFigure(
    name="fig7",
    title="MSE over the stepsize, for three attack strengths",
    caption=(
        "Steady-state network MSE of PSO-Fed over the stepsize for attack variances 0, 0.25 and 1; M = 1, 5 "
        "Byzantine clients, attack probability 0.25."
    ),
    base=paper_scenario(num_byzantine=5, probability=0.25, variance=0.25),
    x_axis=stepsize_axis(),
    curve_axis=axis("attack.variance", 0.0, 0.25, 1.0),
    x_label="stepsize μ",
    curve_label="σ_B² = {}",
)
