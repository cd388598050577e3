"""Figure 8 (the caption labelled fig7): the small-stepsize approximation, for 0 and 10 Byzantine clients."""

from psofed.paper.curves import CurvesFigure, axis, paper_scenario, stepsize_axis

FIGURE = CurvesFigure(
    name="fig8",
    title="The small-stepsize approximation",
    caption=(
        "Steady-state network MSE of PSO-Fed over the stepsize, and the paper's theory with and without its "
        "small-stepsize approximation, for 0 or 10 Byzantine clients; M = 1, attack variance 0.5, "
        "probability 0.25."
    ),
    base=paper_scenario(num_byzantine=10, probability=0.25, variance=0.5),
    x_axis=stepsize_axis(),
    curve_axis=axis("attack.num_byzantine", 0, 10),
    x_label="stepsize μ",
    curve_label="|S_B| = {}",
    small_stepsize=True,
)
