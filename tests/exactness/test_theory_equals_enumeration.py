"""The exact theory against exact moments of tiny fleets, enumerated, for every affine attack and every system."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from psofed import Attack, Data, Scenario, Selection
from psofed.theory.prediction import Prediction

sys.path.insert(0, str(Path(__file__).parent))
from enumeration import enumerate_curve

SYSTEMS = list(itertools.product(("random", "round-robin"), (True, False), ("same", "redrawn")))
ATTACKS = {
    "none": None,
    "gaussian": {"variance": 0.7},
    "colluding-gaussian": {"variance": 0.7},
    "constant-bias": {"bias": 0.4},
    "sign-flip": {"scale": 0.8},
    "sign-flip of the model": {"kind": "sign-flip", "scale": 0.6, "of": "model"},
    "scaled-update": {"scale": 2.5},
    "drop-out": {},
    "non-finite": {},
    "label-poisoning": {"scale": 0.7},
    "data-poisoning": {"variance": 0.6},
}
WHITE = Data(input_variance=(0.4, 1.1, 0.7), noise_variance=(0.05, 0.02, 0.1))
MATRICES = [[[0.9, 0.3], [0.3, 0.5]], [[0.4, -0.1], [-0.1, 0.7]], [[1.0, 0.2], [0.2, 0.3]]]
CORRELATED = Data(covariances=MATRICES, noise_variance=(0.05, 0.02, 0.1))
ITERATIONS = 7


def attack_of(name: str, byzantine_set: str) -> Attack | None:
    options = ATTACKS[name]
    if options is None:
        return None
    values = {"kind": name, "num_byzantine": 2, "probability": 0.6, "byzantine_set": byzantine_set} | options
    return Attack(**values)


def tiny(name: str, system: tuple, byzantine_set: str, data: Data, **changes) -> Scenario:
    pattern, coordinated, uplink = system
    values = {
        "num_clients": 3, "dimension": 2, "num_participants": 2, "num_shared": 1, "stepsize": 0.3, "data": data,
        "uplink": uplink, "selection": Selection(pattern=pattern, coordinated=coordinated),
        "attack": attack_of(name, byzantine_set),
    } | changes  # fmt: skip
    return Scenario(**values)


@pytest.mark.parametrize("data", [WHITE, CORRELATED], ids=["white", "correlated"])
@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda s: "-".join(map(str, s)))
@pytest.mark.parametrize("name", ATTACKS)
def test_the_learning_curve_is_that_of_the_enumerated_moments(name, system, byzantine_set, data) -> None:
    scenario = tiny(name, system, byzantine_set, data)
    network, server = enumerate_curve(scenario, ITERATIONS)
    curve = Prediction(scenario).learning_curve(ITERATIONS)
    np.testing.assert_allclose(curve.server_msd, server, rtol=1e-9)
    np.testing.assert_allclose(curve.network_mse, network, rtol=1e-9)
