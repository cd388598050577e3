"""The exact theory against exact moments of tiny fleets, enumerated, for every affine attack and every system."""

import itertools
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from psofed import Attack, Data, Scenario, Selection, draw_fleet
from psofed.theory.prediction import Prediction
from reference.attacks import make_attack

sys.path.insert(0, str(Path(__file__).parent))
from enumeration import enumerate_curve

pytestmark = [pytest.mark.theory, pytest.mark.takes(28)]


SYSTEMS = list(itertools.product(("random", "round-robin"), (True, False), ("same", "redrawn")))
ATTACKS = {
    "none": None,
    "gaussian": {"variance": 0.7},
    "colluding-gaussian": {"variance": 0.7},
    "constant-bias": {"bias": 0.4},
    "sign-flip": {"scale": 0.7, "of": "update"},
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
    return make_attack(**values)


def tiny(name: str, system: tuple, byzantine_set: str, data: Data, **changes) -> Scenario:
    pattern, coordinated, uplink = system
    values = {
        "num_clients": 3, "dimension": 2, "num_participants": 2, "num_shared": 1, "stepsize": 0.3, "data": data,
        "uplink": uplink, "selection": Selection(pattern=pattern, coordinated=coordinated),
        "attack": attack_of(name, byzantine_set),
    } | changes  # fmt: skip
    return Scenario(**values)


@pytest.mark.thinned(3)  # any two values of any two of the lists meet
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


@pytest.mark.parametrize("data", [WHITE, CORRELATED], ids=["white", "correlated"])
@pytest.mark.parametrize("system", SYSTEMS, ids=lambda s: "-".join(map(str, s)))
@pytest.mark.parametrize(
    "name", ["none", "constant-bias", "sign-flip of the model", "label-poisoning", "data-poisoning"]
)
def test_clients_with_targets_of_their_own_have_the_enumerated_moments(name, system, data) -> None:
    scenario = tiny(name, system, "fixed", replace(data, target_spread=0.3))
    offsets = draw_fleet(scenario).target_offsets
    network, server = enumerate_curve(scenario, 5, offsets)
    curve = Prediction(scenario).learning_curve(5)
    np.testing.assert_allclose(curve.server_msd, server, rtol=1e-9)
    np.testing.assert_allclose(curve.network_mse, network, rtol=1e-9)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("data", [WHITE, CORRELATED], ids=["white", "correlated"])
@pytest.mark.parametrize("name", ATTACKS)
def test_the_steady_state_is_where_the_curve_ends(name, data, every) -> None:
    for index, system in enumerate(SYSTEMS):
        if (index + list(ATTACKS).index(name)) % every:
            continue  # every attack meets a third of the systems, and every system a third of the attacks
        spread = 0.3 if index % 3 == 0 else 0.0
        if data is CORRELATED and system[:2] == ("round-robin", False):
            continue  # as the plain recursion, and slower
        byzantine_set = ("fixed", "redrawn")[index % 2]
        prediction = Prediction(tiny(name, system, byzantine_set, replace(data, target_spread=spread)))
        # Until what is left of the start is 1e-9; means, where they are not zero, die out half as fast as squares.
        # Near the limit of stability (a flipped update, say) it takes long.
        needed = math.log(1e-9) / math.log(prediction.spectral_radius)
        curve = prediction.learning_curve(math.ceil(max(needed, min(2 * needed, 240))))
        assert prediction.network_mse == pytest.approx(curve.network_mse[-1], rel=1e-7)
        assert prediction.server_msd == pytest.approx(curve.server_msd[-1], rel=1e-7)


COEFFICIENTS = [
    (kind, field)
    for kind, fields in {
        "gaussian": ("variance",),
        "colluding-gaussian": ("common_variance",),
        "constant-bias": ("offset",),
        "sign-flip": ("own", "server"),
        "scaled-update": ("own", "server"),
        "drop-out": ("own", "server"),
        "non-finite": ("own", "server"),
        "label-poisoning": ("label",),
        "data-poisoning": ("input_noise_variance",),
    }.items()
    for field in fields
]


@pytest.mark.parametrize(("kind", "field"), COEFFICIENTS)
def test_a_broken_coefficient_is_noticed(kind, field, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = tiny(kind, ("random", True, "same"), "fixed", WHITE)
    network, _ = enumerate_curve(scenario, 4)
    np.testing.assert_allclose(Prediction(scenario).learning_curve(4).network_mse, network, rtol=1e-9)
    part = type(scenario.attack)
    right = part.affine

    def wrong(attack):
        stated = right(attack)
        return replace(stated, **{field: getattr(stated, field) + 1e-3})

    monkeypatch.setattr(part, "affine", wrong)
    broken = Prediction(scenario).learning_curve(4).network_mse
    assert np.abs(broken / network - 1).max() > 1e-7
