"""Figure 2: MSE over the number of shared parameters M, for 5 and 15 Byzantine clients."""

from psofed.paper.curves import TERM_TRIALS, CurvesFigure, axis, paper_scenario

FIGURE = CurvesFigure(
    name="fig2",
    title="MSE over the number of shared parameters",
    caption=(
        "Steady-state MSE of PSO-Fed for M = 1 … 5 shared parameters and 5 or 15 Byzantine clients; attack "
        "variance 0.5, probability 0.2. The paper calls it test MSE; its values are those of the network "
        "MSE, shown here."
    ),
    base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
    x_axis=axis("num_shared", 1, 2, 3, 4, 5),
    curve_axis=axis("attack.num_byzantine", 5, 15),
    x_label="shared parameters M",
    curve_label="|S_B| = {}",
    trials=TERM_TRIALS,
)
