"""Every algorithm, attack and aggregation rule in the engine, no exceptions."""

import math

import numpy as np
import pytest

from psofed import Attack, Scenario, simulate
from psofed.parts.registry import KINDS, load_part, part_names
from psofed.reference.draws import draw_trial


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in part_names(kind)])
def test_every_part_is_documented(kind: str, name: str) -> None:
    docstring = load_part(kind, name).__doc__
    assert docstring
    assert docstring.splitlines()[0].endswith(".")


@pytest.mark.parametrize("algorithm", part_names("algorithms"))
def test_an_attack_that_never_happens_is_no_attack(small_scenario: Scenario, algorithm: str) -> None:
    scenario = small_scenario.replace(algorithm=algorithm)
    never = simulate(scenario.replace(attack=Attack(num_byzantine=3, probability=0.0)), trials=4)
    none = simulate(scenario.replace(attack=None), trials=4)
    assert np.array_equal(never.steady_state["test_mse"], none.steady_state["test_mse"])


def test_gaussian_perturbations_have_the_stated_moments() -> None:
    attack = Attack(num_byzantine=4, probability=0.3, variance=2.0)
    scenario = Scenario(num_clients=6, dimension=5, iterations=4000, attack=attack)
    values = draw_trial(scenario, 2, 0).perturbations
    assert not values[:, 4:].any()
    attacked = values[:, :4].any(axis=-1)
    assert abs(attacked.mean() - 0.3) < 4 * math.sqrt(0.3 * 0.7 / attacked.size)
    active = values[:, :4][attacked]
    assert abs(active.mean()) < 4 * math.sqrt(2.0 / active.size)
    assert abs(np.mean(active**2) - 2.0) < 4 * math.sqrt(2 * 2.0**2 / active.size)
    covariance = np.cov(active.T)[np.triu_indices(5, 1)]
    assert np.abs(covariance).max() < 4.5 * 2.0 / math.sqrt(len(active))


def test_the_same_client_attacks_the_same_whoever_else_does() -> None:
    few = Scenario(num_clients=6, dimension=3, iterations=50, attack=Attack(num_byzantine=2, probability=0.5))
    many = few.replace(attack=Attack(num_byzantine=5, probability=0.5))
    assert np.array_equal(
        draw_trial(few, 1, 0).perturbations[:, :2], draw_trial(many, 1, 0).perturbations[:, :2]
    )
