"""Figure 4: MSE over the attack's probability p_a, for 5 and 15 Byzantine clients."""

from psofed.paper.curves import CurvesFigure, axis, paper_scenario

FIGURE = CurvesFigure(
    name="fig4",
    title="MSE over the attack's probability, for two numbers of Byzantine clients",
    caption=(
        "Steady-state MSE of PSO-Fed over the attack's probability for 5 or 15 Byzantine clients; M = 1, "
        "attack variance 0.25. The paper calls it test MSE; its values are those of the network "
        "MSE, shown here."
    ),
    base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.25),
    x_axis=axis("attack.probability", 0.0, 0.2, 0.4, 0.6, 0.8, 1.0),
    curve_axis=axis("attack.num_byzantine", 5, 15),
    x_label="attack probability p_a",
    curve_label="|S_B| = {}",
)
