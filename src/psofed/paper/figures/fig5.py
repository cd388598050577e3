"""Figure 5 (the caption labelled fig4_2): MSE over the attack's probability p_a, for M = 1 and M = 5."""

from psofed.paper.curves import CurvesFigure, axis, paper_scenario

FIGURE = CurvesFigure(
    name="fig5",
    title="MSE over the attack's probability, for partial and full sharing",
    caption=(
        "Steady-state MSE of PSO-Fed over the attack's probability for M = 1 or 5 shared parameters; 5 "
        "Byzantine clients, attack variance 0.25."
    ),
    base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.25),
    x_axis=axis("attack.probability", 0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    curve_axis=axis("num_shared", 1, 5),
    x_label="attack probability p_a",
    curve_label="M = {}",
)
