"""The nine figures of the paper, as data: a scenario, an axis and the curves of each.

Notes
-----
Of SignSGD the paper says neither which signs nor which vote. The one called SignSGD is fitted to its figure 1; two
plainer ones are shown next to it, because the paper's claim depends on the choice. The rivals have no redrawn uplink,
but with M = D PSO-Fed's server is Online-Fed's; so that panel, and the theories, take PSO-Fed with M = D for it.
"""

from typing import Any

from psofed.common.validation import check_choice
from psofed.paper.curves import FigurePlan, PlannedCurve, axis, curves_over, paper_scenario, stepsize_axis
from psofed.parts.attacks.by_value import Gaussian
from psofed.scenario import Scenario

__all__ = ["figure_names", "load_figure"]

# Trials for standard errors of at most 0.05 dB: of the MSE (192 by default), of its terms, and of test errors.
_TERM_TRIALS, _TEST_TRIALS = 448, 512

# Stochastic signs wander; it takes longer runs to know their mean as well as the others'.
_SIGN: dict[str, Any] = {"algorithm": "signsgd", "stepsize": 0.08}
_PLAIN_SIGN = {**_SIGN, "algorithm_options.signs": "deterministic"}
_PROBABILITIES = axis("attack.probability", 0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
_SHARED = axis("num_shared", 1, 2, 3, 4, 5)
_WITHOUT_ATTACK = {"attack.num_byzantine": 0}

_FIGURES = (
    # The paper runs 3000 iterations; all algorithms are in their steady state after a quarter of them.
    FigurePlan(
        name="fig1",
        title="PSO-Fed and its rivals over the number of Byzantine clients",
        caption="Steady-state test MSE at the server for 0 to 20 Byzantine clients of 100; attack variance 0.25, "
        "probability 1; every algorithm within the same communication budget, M = 1 number per participant "
        "and iteration. On the right, PSO-Fed and Online-Fed (M = 5) with the upload set redrawn.",
        base=Scenario(
            num_clients=100,
            dimension=5,
            iterations=1500,
            attack=Gaussian(num_byzantine=0, probability=1.0, variance=0.25),
        ),
        x_axis=axis("attack.num_byzantine", 0, 5, 10, 15, 20),
        x_label="Byzantine clients |S_B|",
        curve_field="algorithm",
        curves=(
            PlannedCurve("PSO-Fed", {}, {}),
            PlannedCurve("Online-Fed", {"algorithm": "online-fed"}, {"num_shared": 5}),
            PlannedCurve("SignSGD", {**_SIGN, "iterations": 4500}),
            PlannedCurve("CS-Fed", {"algorithm": "cs-fed"}),
            PlannedCurve("QS-Fed", {"algorithm": "qs-fed"}),
            PlannedCurve("SignSGD, plain signs, majority", _PLAIN_SIGN),
            PlannedCurve("SignSGD, plain signs, mean", {**_PLAIN_SIGN, "algorithm_options.vote": "mean"}),
        ),
        metric="test_mse",
        trials=_TEST_TRIALS,
    ),
    FigurePlan(
        name="fig2",
        title="MSE over the number of shared parameters",
        caption="Steady-state MSE of PSO-Fed for M = 1 … 5 shared parameters and 5 or 15 Byzantine clients; attack "
        "variance 0.5, probability 0.2. The paper calls it test MSE; its values are those of the network "
        "MSE, shown here.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
        x_axis=_SHARED,
        x_label="shared parameters M",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 5, 15),
        trials=_TERM_TRIALS,
    ),
    FigurePlan(
        name="fig3",
        title="MSE over the attack's strength",
        caption="Steady-state network MSE of PSO-Fed over the attack's variance for 5 or 15 Byzantine clients; "
        "M = 1, attack probability 0.2.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
        x_axis=axis("attack.variance", 0.0, 0.25, 0.5, 0.75, 1.0),
        x_label="attack variance σ_B²",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 5, 15),
    ),
    FigurePlan(
        name="fig4",
        title="MSE over the attack's probability, for two numbers of Byzantine clients",
        caption="Steady-state MSE of PSO-Fed over the attack's probability for 5 or 15 Byzantine clients; M = 1, "
        "attack variance 0.25. The paper calls it test MSE; its values are those of the network "
        "MSE, shown here.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.25),
        x_axis=_PROBABILITIES,
        x_label="attack probability p_a",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 5, 15),
    ),
    FigurePlan(
        name="fig5",
        title="MSE over the attack's probability, for partial and full sharing",
        caption="Steady-state MSE of PSO-Fed over the attack's probability for M = 1 or 5 shared parameters; 5 "
        "Byzantine clients, attack variance 0.25.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.25),
        x_axis=_PROBABILITIES,
        x_label="attack probability p_a",
        **curves_over("num_shared", "M = {}", 1, 5),
    ),
    FigurePlan(
        name="fig6",
        title="MSE over the stepsize, for three numbers of Byzantine clients",
        caption="Steady-state network MSE of PSO-Fed over the stepsize for 0, 5 or 15 Byzantine clients; M = 1, "
        "attack variance 0.25, probability 0.25.",
        base=paper_scenario(num_byzantine=5, probability=0.25, variance=0.25),
        x_axis=stepsize_axis(),
        x_label="stepsize μ",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 0, 5, 15),
    ),
    FigurePlan(
        name="fig7",
        title="MSE over the stepsize, for three attack strengths",
        caption="Steady-state network MSE of PSO-Fed over the stepsize for attack variances 0, 0.25 and 1; M = 1, 5 "
        "Byzantine clients, attack probability 0.25.",
        base=paper_scenario(num_byzantine=5, probability=0.25, variance=0.25),
        x_axis=stepsize_axis(),
        x_label="stepsize μ",
        **curves_over("attack.variance", "σ_B² = {}", 0.0, 0.25, 1.0),
    ),
    FigurePlan(
        name="fig8",
        title="The small-stepsize approximation",
        caption="Steady-state network MSE of PSO-Fed over the stepsize, and the paper's theory with and without its "
        "small-stepsize approximation, for 0 or 10 Byzantine clients; M = 1, attack variance 0.5, "
        "probability 0.25.",
        base=paper_scenario(num_byzantine=10, probability=0.25, variance=0.5),
        x_axis=stepsize_axis(),
        x_label="stepsize μ",
        **curves_over("attack.num_byzantine", "|S_B| = {}", 0, 10),
        small_stepsize=True,
    ),
    # The attack's perturbations have mean zero and are independent of everything else, so the simulation shows the
    # terms one by one: E_ω is the paired difference with and without the attack on the same draws, and E_φ is the MSE
    # without an attack less the noise term E_Θ = 1/K Σ σ_νk².
    FigurePlan(
        name="fig9",
        title="The terms of the MSE over the number of shared parameters",
        caption="E_ω, what the attack adds to the network MSE, and E_φ, what the data's noise adds, over M; "
        "attack variance 0.5, probability 0.2. Simulated terms are differences on the same draws.",
        base=paper_scenario(num_byzantine=5, probability=0.2, variance=0.5),
        x_axis=_SHARED,
        x_label="shared parameters M",
        curve_field="attack.num_byzantine",
        curves=(
            PlannedCurve("E_φ (data)", _WITHOUT_ATTACK, _WITHOUT_ATTACK, "data"),
            *(
                PlannedCurve(
                    f"E_ω (attack), |S_B| = {n}", {"attack.num_byzantine": n}, {"attack.num_byzantine": n}, "attack"
                )
                for n in (5, 15)
            ),
        ),
        metric="term",
        trials=_TERM_TRIALS,
    ),
)


def figure_names() -> tuple[str, ...]:
    """Names of all figures, in the order of the paper's captions.

    Examples
    --------
    >>> figure_names()[0], len(figure_names())
    ('fig1', 9)
    """
    return tuple(plan.name for plan in _FIGURES)


def load_figure(name: str) -> FigurePlan:
    """Return the figure called `name`."""
    return _FIGURES[figure_names().index(check_choice("figure", name, figure_names()))]
