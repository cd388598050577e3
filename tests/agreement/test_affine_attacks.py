"""The exact theory of affine attacks against simulation: a grid over attacks and systems, and limits of stability.

Each point must lie within max(0.5 %, 3.5 standard errors) for the network MSE and max(1 %, 3.5 standard errors) for the
server's MSD. The seed is fixed, so a point that is off is off every time.
"""

import itertools
import math

import pytest
from scipy.optimize import brentq

import psofed
from psofed import Data, Scenario, Selection, Uniform
from reference.attacks import make_attack

pytestmark = [pytest.mark.theory, pytest.mark.simulation, pytest.mark.takes(20)]


SYSTEMS = list(itertools.product(("random", "round-robin"), (True, False), ("same", "redrawn")))
ATTACKS = {
    "gaussian": {},
    "colluding-gaussian": {},
    "constant-bias": {},
    "sign-flip": {"of": "update"},
    "sign-flip of the model": {"kind": "sign-flip", "of": "model"},
    "scaled-update": {"scale": 3.0},
    "drop-out": {},
    "label-poisoning": {},
    "data-poisoning": {},
}
TOLERANCES = {"network_mse": 0.005, "server_msd": 0.01}


def scenario_of(name: str, system: tuple[str, bool, str], byzantine_set: str, correlation: float) -> Scenario:
    pattern, coordinated, uplink = system
    options = {"kind": name} | ATTACKS[name]
    # With an offset for each client, few enough of them that theory goes through all offsets: quick, and no sampling.
    scattered = pattern == "round-robin" and not coordinated
    clients, dimension = (3, 3) if correlation != 0.0 else (6, 3) if scattered else (12, 4)
    return Scenario(
        num_clients=clients, dimension=dimension, num_participants=max(clients // 3, 2), num_shared=2, stepsize=0.12,
        iterations=900, uplink=uplink, selection=Selection(pattern=pattern, coordinated=coordinated),
        data=Data(input_variance=Uniform(0.5, 1.2), input_correlation=correlation),
        attack=make_attack(num_byzantine=clients // 3, probability=0.3, byzantine_set=byzantine_set, **options),
    )  # fmt: skip


def assert_agrees(scenario: Scenario, trials: int = 256) -> None:
    result = psofed.simulate(scenario, trials=trials, seed=17, tail=500)
    prediction = psofed.predict(scenario)
    sampling = prediction.steady_state.sampling_error
    for (metric, tolerance), own in zip(TOLERANCES.items(), (sampling.excess, sampling.server), strict=True):
        found = getattr(result, metric)
        allowed = max(tolerance * found.mean, 3.5 * math.hypot(found.standard_error, own))
        assert abs(getattr(prediction, metric) - found.mean) <= allowed, (metric, found, prediction.terms)


@pytest.mark.thinned(29)
@pytest.mark.parametrize("index", range(len(SYSTEMS)))
@pytest.mark.parametrize("name", ATTACKS)
def test_simulation_is_where_the_theory_says(name: str, index: int) -> None:
    # Every attack meets every system; fixed and redrawn sets, white and correlated inputs take turns, so that any two
    # of the four meet. All four together are enumerated (exactness/test_theory_equals_enumeration.py).
    place = list(ATTACKS).index(name)
    byzantine_set = ("fixed", "redrawn")[(index // 2 + place // 2) % 2]
    assert_agrees(scenario_of(name, SYSTEMS[index], byzantine_set, 0.5 * ((index + place) % 2)))


@pytest.mark.parametrize("name", ["constant-bias", "sign-flip of the model", "label-poisoning", "scaled-update"])
def test_the_learning_curve_follows_the_simulated_one(name: str) -> None:
    scenario = scenario_of(name, ("random", False, "same"), "fixed", 0.0).replace(iterations=120)
    result, curve = psofed.simulate(scenario, trials=512, seed=3), psofed.predict(scenario).learning_curve()
    for metric in ("network_mse", "server_msd"):
        error = result.curve_standard_error[metric][1:]
        scores = (getattr(curve, metric) - result.curve[metric])[1:] / error
        assert abs(scores).max() < 4.7  # 1 in 1000 over 8 curves of 119 points


@pytest.mark.parametrize("coordinated", [True, False])
def test_flipped_updates_diverge_from_the_predicted_number_of_attackers_on(coordinated: bool) -> None:
    scenario = Scenario(
        num_clients=20, dimension=3, num_participants=5, num_shared=2, iterations=4000, stepsize=0.1,
        selection=Selection(coordinated=coordinated),
        attack=make_attack(
            num_byzantine=1, kind="sign-flip", of="update", scale=4.0, probability=0.5, byzantine_set="redrawn",
        ),
    )  # fmt: skip

    def attacked(count: int) -> Scenario:
        attack = make_attack(
            num_byzantine=count, kind="sign-flip", of="update", scale=4.0, probability=0.5, byzantine_set="redrawn"
        )
        return scenario.replace(attack=attack)

    def simulated(count: int) -> psofed.SimulationResult:
        return psofed.simulate(attacked(count), trials=32, seed=1, tail=500)

    limit = max(count for count in range(20) if psofed.predict(attacked(count)).is_stable)
    assert 1 <= limit < 19

    # Beyond the limit the mean square is carried by rare trials first; further on every trial shows it.
    assert len(simulated(limit + 3).diverged_trials) > 0
    assert len(simulated(min(limit + 9, 20)).diverged_trials) == 32
    assert len(simulated(max(limit - 1, 1)).diverged_trials) == 0


@pytest.mark.parametrize("options", [{"kind": "scaled-update"}, {"kind": "sign-flip", "of": "update"}])
def test_a_scale_beyond_the_predicted_limit_diverges(options: dict) -> None:
    def scaled(scale: float) -> Scenario:
        attack = make_attack(num_byzantine=5, scale=scale, probability=0.3, **options)
        return Scenario(
            num_clients=15, dimension=3, num_participants=4, num_shared=1, iterations=4000, stepsize=0.1, attack=attack
        )

    limit = brentq(lambda scale: psofed.predict(scaled(scale)).spectral_radius - 1.0, 1.5, 1000.0, rtol=1e-3)
    assert psofed.predict(scaled(0.99 * limit)).is_stable
    assert not psofed.predict(scaled(1.01 * limit)).is_stable
    # Beyond the limit the mean square is carried by rare trials first; further on every trial shows it.
    assert len(psofed.simulate(scaled(2.0 * limit), trials=16, seed=1).diverged_trials) > 0
    assert len(psofed.simulate(scaled(5.0 * limit), trials=16, seed=1).diverged_trials) == 16
    inside = scaled(0.7 * limit)
    result = psofed.simulate(inside, trials=128, seed=1, tail=3000)
    error = result.network_mse
    assert len(result.diverged_trials) == 0
    assert abs(psofed.predict(inside).network_mse - error.mean) < max(0.005 * error.mean, 3.5 * error.standard_error)
