"""Figure 1: test MSE of PSO-Fed and its rivals over the number of Byzantine clients.

Notes
-----
Of SignSGD the paper says neither which signs nor which vote. The one called SignSGD is fitted to its figure;
two plainer ones stand beside it, because the paper's claim depends on the choice. The rivals have no redrawn
uplink, but with M = D PSO-Fed's server is Online-Fed's; so that panel shows what the paper's analysis says of
both, and the theories' curves of Online-Fed are those of PSO-Fed with M = D.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from psofed.paper.curves import FigurePlan, Row, axis
from psofed.parts.attacks.gaussian import Gaussian
from psofed.scenario import UPLINKS, Scenario

BYZANTINE = (0, 5, 10, 15, 20)

# Curves in order: their label, and what they change in the base scenario.
SIGN: dict[str, Any] = {"algorithm": "signsgd", "stepsize": 0.08}
# Stochastic signs wander; it takes longer runs to know their mean as well as the others'.
STOCHASTIC_ITERATIONS = 4500
ALGORITHMS: dict[str, dict[str, Any]] = {
    "PSO-Fed": {},
    "Online-Fed": {"algorithm": "online-fed"},
    "SignSGD": {**SIGN, "iterations": STOCHASTIC_ITERATIONS},
    "CS-Fed": {"algorithm": "cs-fed"},
    "QS-Fed": {"algorithm": "qs-fed"},
    "SignSGD, plain signs, majority": {**SIGN, "algorithm_options.signs": "deterministic"},
    "SignSGD, plain signs, mean": {
        **SIGN, "algorithm_options.signs": "deterministic", "algorithm_options.vote": "mean",
    },
}  # fmt: skip

# What the theories are asked for; Online-Fed's server is PSO-Fed's with M = D.
PREDICTED: dict[str, dict[str, Any]] = {"PSO-Fed": {}, "Online-Fed": {"num_shared": 5}}
# Online-Fed has no models at its clients, so there only the server is PSO-Fed's with M = D.
UNPREDICTED = {"Online-Fed": ("network_mse",)}


@dataclass(frozen=True, kw_only=True)
class AlgorithmsFigure(FigurePlan):
    """PSO-Fed and its rivals, on the same budget and the same draws."""

    @property
    def varied(self) -> dict[str, list[Any]]:
        """The fields that vary, with their values."""
        return {
            "algorithm": list(ALGORITHMS),
            "attack.num_byzantine": list(BYZANTINE),
            "uplink": list(UPLINKS),
        }

    def rows(self) -> Iterator[Row]:
        """Yield all algorithms as the equations say, PSO-Fed and Online-Fed also redrawn."""
        numbers = list(ALGORITHMS)
        for uplink, curves in zip(UPLINKS, (ALGORITHMS, PREDICTED), strict=True):
            for label, changes in curves.items():
                predicted, unpredicted = PREDICTED.get(label), UNPREDICTED.get(label, ())
                yield Row(label, uplink, numbers.index(label), changes, predicted, unpredicted)


# K = 100, |S_n| = 5, M = 1, μ = 0.15. The paper runs 3000 iterations; all algorithms are in their steady state
# after a quarter of them.
FIGURE = AlgorithmsFigure(
    name="fig1",
    title="PSO-Fed and its rivals over the number of Byzantine clients",
    caption=(
        "Steady-state test MSE at the server for 0 to 20 Byzantine clients of 100; attack variance 0.25, "
        "probability 1; every algorithm within the same communication budget, M = 1 number per participant "
        "and iteration. On the right, PSO-Fed and Online-Fed (M = 5) with the upload set redrawn."
    ),
    base=Scenario(
        num_clients=100,
        dimension=5,
        iterations=1500,
        attack=Gaussian(num_byzantine=0, probability=1.0, variance=0.25),
    ),
    x_axis=axis("attack.num_byzantine", *BYZANTINE),
    x_label="Byzantine clients |S_B|",
    metric="test_mse",
    trials=512,
)
