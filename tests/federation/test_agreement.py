"""The federation with its own masks, participants and attacks behaves as the simulator says, over many seeds."""

import numpy as np
import pytest
from nodes import make_node

import psofed
from psofed import Data, Scenario, Selection
from psofed.attacks import Gaussian
from psofed.federation.client.gateway import Rehearsal
from psofed.federation.client.node import Node
from psofed.federation.client.online import OnlineRegression
from psofed.federation.client.sources import SyntheticSource
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.loop import Server
from psofed.federation.server.ready_made import evaluate_model
from psofed.federation.transport.in_process import InProcessHub

pytestmark = [pytest.mark.federation, pytest.mark.takes(13)]

SEEDS, ROUNDS = 32, 10
LOOKED_AT = (2, 5, 10)  # iterations


def server_msd(scenario: Scenario, seed: int, *, share_with: Scenario | None = None) -> list[float]:
    """Return ‖w_n − w‖² after each round of one federation."""

    def make(name: str, k: int) -> Node:
        attack, source = scenario.attack, SyntheticSource(scenario, partition=k, seed=seed)
        lies = attack is not None and k < attack.num_byzantine
        learner = OnlineRegression(source, scenario.stepsize, samples_per_round=1)
        return make_node(name, learner.learn, catch_up=True, corruption=Rehearsal(attack, seed) if lies else None)

    curve: list[float] = []
    shared = share_with or scenario
    server = Server(
        Sharing(shared.num_shared, shared.selection.pattern, shared.selection.coordinated),
        aggregation="mean",
        num_participants=scenario.num_participants,
        rounds=RoundPlan(newcomers="zeros"),
        seed=seed,
        on_round=lambda state: curve.append(evaluate_model(scenario, state.model, seed)["server-msd"]),
    )
    names = [str(10**18 + 7919 * k + seed) for k in range(scenario.num_clients)]  # large and arbitrary
    hub = InProcessHub({name: make(name, k) for k, name in enumerate(names)})
    server.run(hub, {"0": np.zeros(scenario.dimension)}, scenario.iterations)
    return curve


def scores(scenario: Scenario, **options: Scenario) -> list[float]:
    """Return (federation − simulation) in standard errors at a few iterations."""
    simulated = psofed.simulate(scenario.replace(iterations=ROUNDS + 1), trials=4000, seed=1)
    curves = np.array([server_msd(scenario, seed, **options) for seed in range(SEEDS)])
    found = []
    for n in LOOKED_AT:
        # The simulator's iteration n holds the model before it, that is after n rounds.
        difference = curves[:, n - 1].mean() - simulated.curve["server_msd"][n]
        error = np.hypot(curves[:, n - 1].std(ddof=1) / np.sqrt(SEEDS), simulated.curve_standard_error["server_msd"][n])
        found.append(float(difference / error))
    return found


BASE = Scenario(
    num_clients=4,
    dimension=4,
    num_participants=2,
    num_shared=2,
    iterations=ROUNDS,
    stepsize=0.2,
    data=Data(noise_variance=0.01),
)
CASES = {
    "attacked": BASE.replace(attack=Gaussian(num_byzantine=1, probability=0.5, variance=0.3)),
    "own-masks": BASE.replace(selection=Selection(coordinated=False)),
    "round-robin": BASE.replace(selection=Selection(pattern="round-robin")),
}


@pytest.mark.parametrize("case", ["attacked", *(pytest.param(c, marks=pytest.mark.slow) for c in list(CASES)[1:])])
def test_the_federations_mean_is_the_simulations(case):
    """Nine comparisons in all: |t| of 31 degrees of freedom passes 3.9 in one run of 230."""
    assert max(map(abs, scores(CASES[case]))) < 3.9


def test_a_federation_that_shares_otherwise_does_not_agree():
    assert max(map(abs, scores(BASE, share_with=BASE.replace(num_shared=1)))) > 3.9
