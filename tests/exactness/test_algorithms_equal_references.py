"""Every algorithm's kernel against its literal reference, on the same draws, with every option."""

import numpy as np
import pytest

from psofed import Attack, Data, Scenario, simulate
from psofed.parts.registry import load_part, part_names

METRICS = ("network_mse", "server_msd", "test_mse")
COVARIANCES = [np.diag([1.0, 0.5, 2.0, 0.1 + 0.1 * k]) + 0.2 for k in range(7)]

# Options that differ from the defaults, so that each is seen to do what the reference says.
OPTIONS = [
    ("online-fed", {"budget": "fewer-participants"}),
    ("signsgd", {"bound": 0.5}),
    ("signsgd", {"vote": "mean"}),
    ("signsgd", {"vote": "sum", "signs": "deterministic"}),
    ("signsgd", {"signs": "deterministic"}),
    ("cs-fed", {"measurements": 7, "decoding_steps": 3}),
    ("cs-fed", {"joint": True}),
    ("cs-fed", {"magnitude": False}),
    ("cs-fed", {"joint": True, "magnitude": False}),
    ("qs-fed", {"rows": 4, "columns": 2, "top": 2}),
    ("qs-fed", {"rows": 3, "columns": 3, "hashes": "fixed"}),
    ("qs-fed", {"columns": 8, "top": 1, "hashes": "fixed", "momentum": 0.5, "error_feedback": True}),
    ("qs-fed", {"columns": 8, "hashes": "fixed", "momentum": 0.5}),
    ("qs-fed", {"columns": 8, "top": 2, "hashes": "fixed", "error_feedback": True}),
]


def assert_equal_to_reference(scenario: Scenario) -> None:
    result = simulate(scenario, trials=5, seed=5, keep_trials=True)
    module = load_part("algorithms", scenario.algorithm)
    for trial in (0, 4):
        reference = module.reference(scenario, 5, trial)
        for metric in METRICS:
            curve = result.trial_curves[metric][trial]
            assert np.allclose(curve, getattr(reference, metric), rtol=1e-10, atol=0), metric
    assert np.ptp(result.trial_curves["server_msd"][0]) > 0


@pytest.mark.parametrize("data", [Data(), Data(input_correlation=0.6), Data(covariances=COVARIANCES)])
@pytest.mark.parametrize("shared", [1, 3, 4])
@pytest.mark.parametrize("algorithm", part_names("algorithms"))
def test_every_algorithm_equals_its_reference(
    small_scenario: Scenario, algorithm: str, shared: int, data: Data
) -> None:
    assert_equal_to_reference(small_scenario.replace(algorithm=algorithm, num_shared=shared, data=data))


@pytest.mark.parametrize("algorithm", part_names("algorithms"))
def test_every_algorithm_equals_its_reference_without_attack(
    small_scenario: Scenario, algorithm: str
) -> None:
    assert_equal_to_reference(small_scenario.replace(algorithm=algorithm, attack=None))


@pytest.mark.parametrize(("algorithm", "options"), OPTIONS)
def test_every_option_equals_the_reference(small_scenario: Scenario, algorithm: str, options: dict) -> None:
    scenario = small_scenario.replace(algorithm=algorithm, algorithm_options=options, num_shared=3)
    assert_equal_to_reference(scenario.replace(iterations=40))
    default = simulate(scenario.replace(algorithm_options=None), trials=1, seed=5)
    other = simulate(scenario, trials=1, seed=5)
    assert default.steady_state["server_msd"] != other.steady_state["server_msd"]


def test_sharing_everything_makes_pso_fed_and_online_fed_the_same_server(small_scenario: Scenario) -> None:
    full = small_scenario.replace(num_shared=small_scenario.dimension)
    for attack in (None, small_scenario.attack, Attack(num_byzantine=7, probability=1.0)):
        partial, online = (
            simulate(full.replace(algorithm=name, attack=attack), trials=4, keep_trials=True)
            for name in ("pso-fed", "online-fed")
        )
        for metric in ("server_msd", "test_mse"):
            curves = [result.trial_curves[metric] for result in (partial, online)]
            assert np.allclose(*curves, rtol=1e-11, atol=0)


def test_a_wrong_sign_of_the_attack_would_be_noticed(small_scenario: Scenario) -> None:
    """The references are sharp: the attack alone moves every algorithm by far more than rounding."""
    for algorithm in part_names("algorithms"):
        scenario = small_scenario.replace(algorithm=algorithm)
        module = load_part("algorithms", algorithm)
        attacked = module.reference(scenario, 5, 0).server_msd
        clean = module.reference(scenario.replace(attack=None), 5, 0).server_msd
        assert not np.allclose(attacked, clean, rtol=0.01, atol=0)
