"""Models have the bits that they had before the federation's transport was replaced, for the same numbers and seeds.

The default rule is younger: its bits are the first it had.
"""

import hashlib

import numpy as np
import pytest
from nodes import make_node

from psofed import Scenario
from psofed.attacks import Gaussian, SignFlip
from psofed.defences import Cusum
from psofed.federation.client.gateway import Rehearsal
from psofed.federation.client.online import OnlineRegression
from psofed.federation.client.sources import SyntheticSource
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.loop import Server
from psofed.federation.server.step import WITHOUT_MEMORY, Combination
from psofed.federation.transport.in_process import InProcessHub

pytestmark = pytest.mark.federation

SCENARIO = Scenario(num_clients=7, dimension=6, num_participants=4, num_shared=2, stepsize=0.1)
SEED = 5
GATEWAYS = {"1": [0, 1, 2], "2": [3, 4], "3": [5], "4": [6]}
BYZANTINE = 2  # the client that attacks

CASES = {
    "mean": ("ff01c3e6a1cd84fe", {"aggregation": "mean"}),
    "clipping": ("c22b168a244c3d39", {}),
    "default": ("7cd554372ebbdb21", {"aggregation": None}),
    "median": ("71ce5c6fd9292fce", {"aggregation": "median", "newcomers": "current"}),
    "nnm": ("b9c5c97af2782359", {"aggregation": "median", "pre": "nnm", "num_participants": 6}),
    "bucketing": ("06b251d3455c3450", {"aggregation": "median", "pre": "bucketing", "num_participants": 6}),
    "own-masks": ("2dc406bd6a56bf1f", {"aggregation": "mean", "coordinated": False}),
    "round-robin": (
        "58bd2338b9a4a063",
        {"aggregation": "mean", "pattern": "round-robin", "coordinated": False, "num_participants": None},
    ),
    "float32": ("44dc56db78099286", {"aggregation": "mean", "dtype": "float32"}),
    "attacked": ("c3d1c0fd3223c420", {"attack": Gaussian(num_byzantine=1, probability=0.5)}),
    "sign-flip": (
        "56013dc6dcbaec22",
        {"attack": SignFlip(num_byzantine=1, scale=2.0, probability=1.0), "aggregation": "mean"},
    ),
    "defended": (
        "6d80a7fe6d4d0a2f",
        {"attack": Gaussian(num_byzantine=1, probability=1.0, variance=25.0), "defence": True},
    ),
    "gateways": ("ac521ab7f859030b", {"gateways": True, "coordinated": False}),
}


def run(case):
    attack = case.get("attack")

    def learner(k):
        return OnlineRegression(SyntheticSource(SCENARIO, k, SEED), SCENARIO.stepsize, 1)

    nodes = {}
    if case.get("gateways"):
        for node, members in GATEWAYS.items():
            learners = {f"c{k}": learner(k) for k in members}

            def train(request, learners=learners):
                return learners[request.client].learn(request)

            nodes[node] = make_node(node, train, catch_up=True, clients=lambda names=tuple(learners): names)
    else:
        for k in range(SCENARIO.num_clients):
            lies = attack is not None and k == BYZANTINE
            corruption = Rehearsal(attack, SEED) if lies else None
            nodes[str(k + 1)] = make_node(str(k + 1), learner(k).learn, catch_up=True, corruption=corruption)
    server = Server(
        Sharing(SCENARIO.num_shared, case.get("pattern", "random"), case.get("coordinated", True)),
        num_participants=case.get("num_participants", 4),
        aggregation=Combination(case.get("aggregation", WITHOUT_MEMORY), case.get("pre")),
        defence=Cusum(threshold=8.0) if case.get("defence") else None,
        rounds=RoundPlan(newcomers=case.get("newcomers", "zeros")),
        seed=SEED,
    )
    return server.run(InProcessHub(nodes), {"0": np.zeros(SCENARIO.dimension, case.get("dtype", "float64"))}, 60)


@pytest.mark.parametrize("name", CASES)
def test_the_model_has_the_same_bits(name):
    expected, case = CASES[name]
    assert hashlib.sha256(run(case).model.tobytes()).hexdigest()[:16] == expected
