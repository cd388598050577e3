"""The federation with one sample per round is the simulator's recursion, on the same draws, to rounding."""

from dataclasses import asdict

import numpy as np
import pytest
from nodes import ArraySource, make_node, perturbing, supplied_draws

from psofed import Scenario, Selection
from psofed.attacks import Gaussian
from psofed.federation.client.online import OnlineRegression
from psofed.federation.protocol.masks import DerivedMasks, Sharing
from psofed.federation.protocol.names import client_number, node_number
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.loop import Server
from psofed.federation.transport.in_process import InProcessHub
from psofed.fleet import draw_fleet
from reference.draws import draw_trial
from reference.literal import run_literally

pytestmark = [pytest.mark.federation, pytest.mark.takes(17)]

FIRST_NODE = 1_000


def run_federation(scenario, draws, upload_shift=0, gateways=0):
    """Run the federation on given draws, with one node per client or all clients spread over `gateways` gateways.

    `upload_shift` = −1 takes the wrong upload mask.
    """
    target = draw_fleet(scenario).target
    clients = range(scenario.num_clients)
    homes = {k: (str(FIRST_NODE + (k % gateways if gateways else k)), f"c{k}" if gateways else "") for k in clients}
    numbers = [client_number(node_number(node), local) for node, local in homes.values()]
    every_mask = np.concatenate([draws.download_masks, draws.upload_masks[-1:]])
    given = {
        (n + 1, number): np.flatnonzero(mask[k])
        for n, mask in enumerate(every_mask)
        for k, number in enumerate(numbers)
    }

    def perturbation(round_number, number, count):
        shocks, k = draws.shocks, numbers.index(number)
        if not shocks.attacking[round_number - 1, k]:
            return None
        return scenario.attack.variance**0.5 * shocks.normals[round_number - 1, k][given[round_number + 1, number]]

    learners = {}
    for k in clients:
        targets = draws.inputs[:, k] @ target + draws.noise[:, k]
        learners[homes[k]] = OnlineRegression(ArraySource(draws.inputs[:, k], targets), scenario.stepsize, 1)

    def node_of(name):
        names = [local for node, local in homes.values() if node == name]
        return make_node(
            name,
            lambda request: learners[name, request.client].learn(request),
            catch_up=True,
            clients=(lambda: names) if gateways else None,
            corruption=perturbing(perturbation) if scenario.attack else None,
        )

    hub = InProcessHub({node: node_of(node) for node, _ in homes.values()})
    server, models = [], {}

    def on_round(state):
        server.append(state.model.copy())
        for name in state.history[-1]["accepted"]:
            k = int(name[1:]) if gateways else int(name) - FIRST_NODE
            node, local = homes[k]
            models[state.round_number, k] = hub.nodes[node].store.held.clients[local].model.copy()

    drawn = {n + 1: [numbers[k] for k in np.flatnonzero(a)] for n, a in enumerate(draws.participants)}
    federation = Server(
        (ShiftedSharing if upload_shift else Sharing)(scenario.num_shared, coordinated=False),
        aggregation="mean",
        rounds=RoundPlan(newcomers="zeros"),
        on_round=on_round,
    )
    with supplied_draws(given, drawn):
        federation.run(hub, {"0": np.zeros(scenario.dimension)}, scenario.iterations)
    return np.array(server), models, federation


class ShiftedMasks(DerivedMasks):
    """Deliberately wrong: the masks of the round before."""

    def indices(self, round_number, node):
        return DerivedMasks.indices(self, max(1, round_number - 1), node)


class ShiftedSharing(Sharing):
    """Lets the server take what was uploaded for the entries of another round's mask."""

    def derived(self, dimension):
        return ShiftedMasks(**asdict(super().derived(dimension)))


SCENARIOS = {
    "random-coordinated": Scenario(num_clients=7, dimension=5, num_participants=3, num_shared=2, iterations=60),
    "random-own-masks": Scenario(
        num_clients=7, dimension=5, num_participants=2, iterations=60, selection=Selection(coordinated=False)
    ),
    "round-robin": Scenario(
        num_clients=6,
        dimension=5,
        num_participants=2,
        num_shared=2,
        iterations=60,
        selection=Selection(pattern="round-robin"),
    ),
    "attacked": Scenario(
        num_clients=6, dimension=4, num_participants=3, iterations=60, attack=Gaussian(num_byzantine=2, probability=0.5)
    ),
    "full-sharing": Scenario(num_clients=5, dimension=3, num_participants=2, num_shared=3, iterations=40),
    "everybody": Scenario(num_clients=4, dimension=3, num_participants=4, iterations=40),
}


@pytest.mark.parametrize("gateways", [0, 2])
@pytest.mark.parametrize("name", SCENARIOS)
def test_one_sample_per_round_equals_the_reference(name, gateways):
    scenario = SCENARIOS[name]
    draws = draw_trial(scenario, seed=3, trial=0)
    reference = run_literally(scenario, seed=3, trial=0)
    server, clients, federation = run_federation(scenario, draws, gateways=gateways)
    np.testing.assert_allclose(server, reference.models[1:, 0], rtol=0, atol=1e-12)
    assert len(clients) == scenario.iterations * scenario.num_participants
    for (round_number, k), model in clients.items():
        np.testing.assert_allclose(model, reference.models[round_number, k + 1], rtol=0, atol=1e-12)
    assert not federation.strikes.counts


def test_the_reported_errors_are_the_references_network_mse():
    scenario = SCENARIOS["everybody"]
    draws = draw_trial(scenario, seed=4, trial=0)
    _, _, federation = run_federation(scenario, draws)
    reported = [
        np.mean([metrics["mse"] for metrics in record["metrics"].values()]) for record in federation.state.history
    ]
    np.testing.assert_allclose(reported, run_literally(scenario, seed=4, trial=0).network_mse, rtol=1e-9)


def test_a_wrong_upload_mask_is_noticed():
    scenario = SCENARIOS["random-coordinated"]
    draws = draw_trial(scenario, seed=3, trial=0)
    server, _, _ = run_federation(scenario, draws, upload_shift=-1)
    assert np.abs(server - run_literally(scenario, seed=3, trial=0).models[1:, 0]).max() > 1e-3
