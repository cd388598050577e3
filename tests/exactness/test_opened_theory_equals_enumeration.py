"""The exact theory of the open iteration, and of clients that hold no model, against enumerated moments."""

import sys
from pathlib import Path

import numpy as np
import pytest

from psofed import Data, Links, NotCoveredError, Scenario, Selection
from psofed.algorithms import OnlineFed
from psofed.attacks import ColludingGaussian, ConstantBias, DropOut, Gaussian, LabelPoisoning, SignFlip
from psofed.availabilities import Bernoulli
from psofed.channels import Lossy, Noisy, Quantised
from psofed.delays import Fixed, Geometric
from psofed.learners import NLMS, LeakyLMS
from psofed.theory.prediction import Prediction

sys.path.insert(0, str(Path(__file__).parent))
from enumeration_by_atoms import enumerate_delayed, enumerate_opened, enumerate_server_held

pytestmark = [pytest.mark.theory, pytest.mark.takes(12)]

WHITE = Data(input_variance=(0.4, 1.1, 0.7), noise_variance=(0.05, 0.02, 0.1))
MATRICES = [[[0.9, 0.3], [0.3, 0.5]], [[0.4, -0.1], [-0.1, 0.7]], [[1.0, 0.2], [0.2, 0.3]]]
CORRELATED = Data(covariances=MATRICES, noise_variance=(0.05, 0.02, 0.1))
SHARES = (0.3, 0.8, 0.5)

OPENED = {
    "known availability": {"availability": Bernoulli(probability=SHARES)},
    "unknown availability, away clients stand still, updates turned": {
        "availability": Bernoulli(probability=0.6, server_knows=False, learns="available"),
        "attack": SignFlip(clients=[1], probability=0.5, scale=0.7, of="update"),
    },
    "uploads of others, away clients stand still, bias": {
        "availability": Bernoulli(probability=SHARES, learns="available"),
        "uplink": "redrawn",
        "attack": ConstantBias(clients=[0], probability=0.4, bias=0.5),
    },
    "noise, dither and losses both ways": {
        "channel": Links(
            up=[Noisy(variance=0.1), Lossy(probability=0.3)],
            down=[Quantised(bits=4, reach=4.0), Lossy(probability=0.2)],
        )
    },
    "missing uploads and bias over a noisy link": {
        "channel": Links(up=Noisy(variance=0.2)),
        "attack": [DropOut(clients=[0], probability=0.6), ConstantBias(clients=[2], probability=0.4, bias=0.5)],
    },
    "poisoned labels and colluders, unknown availability": {
        "availability": Bernoulli(probability=SHARES, learns="available", server_knows=False),
        "attack": [
            LabelPoisoning(clients=[0], probability=0.6, scale=0.7),
            ColludingGaussian(clients=[1, 2], probability=0.4, variance=0.5),
        ],
    },
    "two groups that poison, lost downloads": {
        "channel": Links(down=Lossy(probability=0.5)),
        "attack": [
            LabelPoisoning(clients=[0], probability=0.6, scale=0.7),
            LabelPoisoning(clients=[1], probability=0.6, scale=0.2),
        ],
    },
}
LEARNERS = {
    "stepsizes per client": {
        "stepsize": (0.2, 0.3, 0.5),
        "attack": LabelPoisoning(clients=[0], probability=0.6, scale=0.7),
    },
    "leaky LMS, stepsizes per client, away clients stand still": {
        "learner": LeakyLMS(leakage=0.3),
        "stepsize": (0.2, 0.3, 0.5),
        "availability": Bernoulli(probability=SHARES, learns="available"),
    },
    "leaky LMS, poisoned labels, bias": {
        "learner": LeakyLMS(leakage=0.3),
        "attack": [
            LabelPoisoning(clients=[0], probability=0.6, scale=0.7),
            ConstantBias(clients=[1], probability=0.4, bias=0.5),
        ],
    },
    "NLMS, stepsizes per client, bias": {
        "learner": NLMS(regularisation=0.2),
        "stepsize": (0.3, 0.6, 0.9),
        "attack": ConstantBias(clients=[0], probability=0.4, bias=0.5),
    },
    "NLMS, poisoned labels": {
        "learner": NLMS(regularisation=1e-3),
        "attack": LabelPoisoning(clients=[0], probability=0.6, scale=0.7),
    },
}
OPENED |= LEARNERS
SERVER_HELD = {
    "Online-Fed, stepsizes per client": {"algorithm": OnlineFed(), "stepsize": (0.2, 0.3, 0.5)},
    "Online-Fed, bias": {"algorithm": OnlineFed(), "attack": ConstantBias(clients=[0], probability=0.4, bias=0.5)},
    "Online-Fed, models turned": {
        "algorithm": OnlineFed(),
        "attack": SignFlip(clients=[0], probability=0.4, scale=0.6, of="model"),
    },
    "Online-Fed, fewer participants": {
        "algorithm": OnlineFed(budget="fewer-participants"),
        "attack": Gaussian(clients=[0, 1], variance=0.4),
    },
    "Online-Fed, updates turned": {
        "algorithm": OnlineFed(),
        "attack": SignFlip(clients=[0], probability=0.4, scale=0.6, of="update"),
    },
    "Online-Fed, poisoned labels": {
        "algorithm": OnlineFed(),
        "attack": LabelPoisoning(clients=[0], probability=0.6, scale=0.7),
    },
}


FLIPPED = SignFlip(clients=[1], probability=0.5, scale=0.7, of="update")
MIXED = {
    "stepsize": (0.2, 0.3, 0.5),
    "learner": LeakyLMS(leakage=0.3),
    "channel": Links(up=Noisy(variance=0.1), down=Noisy(variance=0.2)),
    "attack": [FLIPPED, ConstantBias(clients=[0], probability=0.4, bias=0.5)],
}
COLLUDING = {"uplink": "redrawn", "attack": ColludingGaussian(clients=[0, 2], probability=0.4, variance=0.5)}
LOSSY = {"channel": Links(up=Lossy(probability=0.3))}
THREE = {"num_clients": 2, "dimension": 3, "num_shared": 2}
TWO_CLIENTS = {WHITE: Data(input_variance=(0.4, 1.1)), CORRELATED: Data(input_correlation=0.5)}
ONE, EACH = True, False
DELAYED = {
    "two iterations": (ONE, 6, {"delay": Fixed(iterations=2, weight=0.8)}),
    "a mask each, updates turned": (EACH, 4, {"delay": Fixed(iterations=1), "attack": FLIPPED}),
    "leaky LMS, noise, updates turned, bias": (ONE, 5, {"delay": Fixed(iterations=1, weight=0.8), **MIXED}),
    "lost uploads, known availability": (
        ONE,
        3,
        {"delay": Fixed(iterations=1), "availability": Bernoulli(probability=SHARES, learns="available"), **LOSSY},
    ),
    "uploads of others, colluders": (ONE, 4, {"delay": Fixed(iterations=1, weight=0.8), **COLLUDING}),
    "two iterations, two of three entries": (ONE, 6, {"delay": Fixed(iterations=2), "num_participants": 1, **THREE}),
    "lost uploads, unknown availability": (
        ONE,
        3,
        {
            "delay": Fixed(iterations=1),
            "availability": Bernoulli(probability=0.6, server_knows=False, learns="available"),
            **LOSSY,
        },
    ),
    "uploads of others, unknown availability": (
        ONE,
        3,
        {
            "delay": Fixed(iterations=1, weight=0.8),
            "availability": Bernoulli(probability=0.6, server_knows=False),
            "uplink": "redrawn",
        },
    ),
    "lost or at once": (EACH, 3, {"delay": Geometric(ratio=0.4, longest=0)}),
}


def tiny(data: Data, coordinated: bool, **changes) -> Scenario:
    selection = Selection(pattern="random", coordinated=coordinated)
    common = {"num_clients": 3, "dimension": 2, "num_participants": 2, "num_shared": 1, "stepsize": 0.3}
    return Scenario(data=data, selection=selection, **common | changes)


def check(scenario: Scenario, enumerated, iterations: int) -> None:
    network, server = enumerated
    curve = Prediction(scenario).learning_curve(iterations)
    np.testing.assert_allclose(curve.server_msd, server, rtol=1e-9)
    np.testing.assert_allclose(curve.network_mse, network, rtol=1e-9)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("data", [WHITE, CORRELATED], ids=["white", "correlated"])
@pytest.mark.parametrize("coordinated", [True, False], ids=["one mask", "a mask each"])
@pytest.mark.parametrize("name", OPENED)
def test_the_learning_curve_with_open_parts_is_that_of_the_enumerated_moments(name, coordinated, data) -> None:
    if data is CORRELATED and name.startswith("NLMS"):
        pytest.skip("NLMS is covered over white inputs")
    scenario = tiny(data, coordinated, **OPENED[name])
    check(scenario, enumerate_opened(scenario, 3), 3)


@pytest.mark.parametrize("data", [WHITE, CORRELATED], ids=["white", "correlated"])
@pytest.mark.parametrize("name", SERVER_HELD)
def test_the_learning_curve_without_clients_models_is_that_of_the_enumerated_moments(name, data) -> None:
    scenario = tiny(data, True, **SERVER_HELD[name])
    check(scenario, enumerate_server_held(scenario, 10), 10)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("data", [WHITE, CORRELATED], ids=["white", "correlated"])
@pytest.mark.parametrize("name", DELAYED)
def test_the_learning_curve_with_delays_is_that_of_the_enumerated_moments(name, data) -> None:
    coordinated, iterations, changes = DELAYED[name]
    if changes.get("num_clients") == 2:
        data = TWO_CLIENTS[data]
    scenario = tiny(data, coordinated, **changes)
    check(scenario, enumerate_delayed(scenario, iterations), iterations)


@pytest.mark.parametrize("name", [*OPENED, *SERVER_HELD, *DELAYED])
def test_the_steady_state_is_where_the_learning_curve_ends(name) -> None:
    changes = DELAYED[name][2] if name in DELAYED else (OPENED | SERVER_HELD)[name]
    data = TWO_CLIENTS[WHITE] if changes.get("num_clients") == 2 else WHITE
    scenario = tiny(data, True, **changes)
    prediction = Prediction(scenario)
    curve = prediction.learning_curve(400)
    assert prediction.network_mse == pytest.approx(curve.network_mse[-1], rel=1e-6)
    assert prediction.server_msd == pytest.approx(curve.server_msd[-1], rel=1e-6)
    assert prediction.spectral_radius < 1.0


REFUSED = {
    'attack.kind = "drop-out"': {"attack": DropOut(clients=[0, 1], probability=0.6)},
    "equally available": {"availability": Bernoulli(probability=SHARES, server_knows=False)},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_delays_whose_number_of_arrivals_depends_on_who_is_drawn_are_refused_by_name(reason) -> None:
    scenario = tiny(WHITE, True, delay=Fixed(iterations=1), **REFUSED[reason])
    with pytest.raises(NotCoveredError, match=f'delay.kind = "fixed".*{reason}.*simulate'):
        Prediction(scenario).learning_curve(1)


def random_system(seed: int) -> Scenario:
    """Any learner, network, attacks, masks and inputs of three clients with two entries."""
    rng = np.random.default_rng(seed)
    first, second = rng.permutation(3)[:2].tolist()
    chance, data = float(rng.uniform(0.2, 1.0)), (WHITE, CORRELATED)[rng.integers(2)]
    attacks = (
        None,
        Gaussian(clients=[first], probability=chance, variance=0.4),
        ConstantBias(clients=[first, second], probability=chance, bias=0.5),
        SignFlip(clients=[second], probability=chance, scale=0.7, of="update"),
        DropOut(clients=[first], probability=chance),
        LabelPoisoning(clients=[first], probability=chance, scale=0.6),
        [ColludingGaussian(clients=[first, second], probability=chance, variance=0.5)],
        [LabelPoisoning(clients=[first], probability=0.6, scale=0.7), Gaussian(clients=[second], variance=0.3)],
    )
    availability = Bernoulli(
        probability=tuple(rng.uniform(0.2, 1.0, 3)),
        server_knows=bool(rng.integers(2)),
        learns=str(rng.choice(["always", "available"])),
    )
    links = Links(
        up=[Noisy(variance=0.1), Lossy(probability=0.3)][: rng.integers(3)],
        down=[Lossy(probability=0.2), Noisy(variance=0.05)][: rng.integers(3)],
    )
    return tiny(
        data,
        bool(rng.integers(2)),
        num_participants=int(rng.integers(1, 4)),
        num_shared=int(rng.integers(1, 3)),
        uplink=str(rng.choice(["same", "redrawn"])),
        stepsize=float(rng.uniform(0.05, 0.5)) if rng.integers(2) else tuple(rng.uniform(0.05, 0.5, 3)),
        learner=LeakyLMS(leakage=0.3) if rng.integers(2) else "lms",
        attack=attacks[rng.integers(len(attacks))],
        availability=availability if rng.integers(2) else None,
        channel=links if rng.integers(2) else None,
    )


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 200), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_the_learning_curves_of_random_systems_are_those_of_the_enumerated_moments(seeds: range) -> None:
    for seed in seeds:
        scenario = random_system(seed)
        check(scenario, enumerate_opened(scenario, 3), 3)
