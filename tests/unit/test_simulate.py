import math

import numpy as np
import pytest

import psofed
from psofed import Data, InvalidValueError, Scenario, simulate
from psofed.parts.attacks import Gaussian
from psofed.simulation.monte_carlo import cut_into_blocks

pytestmark = pytest.mark.simulation


def test_one_client_that_shares_all_is_plain_lms() -> None:
    """K = M = D = 1: the server holds the client's model, and LMS on one entry can be done by hand."""
    from reference.draws import draw_trial

    scenario = Scenario(num_clients=1, dimension=1, num_participants=1, iterations=30, stepsize=0.1)
    draws = draw_trial(scenario, seed=4, trial=0)
    model, errors = 0.0, []
    for x, noise in zip(draws.inputs[:, 0, 0], draws.noise[:, 0], strict=True):
        error = (1.0 * x + noise) - model * x
        model += 0.1 * x * error
        errors.append(error**2)
    result = simulate(scenario, trials=1, seed=4, keep_trials=True)
    assert np.allclose(result.trial_curves["network_mse"][0], errors, rtol=1e-12)
    assert result.curve["server_msd"][0] == 1.0


@pytest.mark.parametrize(
    ("trials", "lengths"), [(1, [1]), (3, [3]), (4, [4]), (16, [16]), (18, [16, 2]), (30, [16, 14])]
)
def test_trials_are_cut_into_blocks_and_the_rest(trials: int, lengths: list[int]) -> None:
    blocks = cut_into_blocks(trials)
    assert [len(block) for block in blocks] == lengths
    assert [t for block in blocks for t in block] == list(range(trials))


def test_divergence_is_said_with_trial_and_time(small_scenario: Scenario) -> None:
    result = simulate(small_scenario.replace(stepsize=3.0, iterations=400), trials=18, seed=1)
    assert result.diverged_trials.size == 18
    assert (result.diverged_at > 0).all()
    assert math.isinf(result.network_mse.mean)
    assert not np.isnan(result.curve["network_mse"]).any()
    assert np.isfinite(result.curve["network_mse"][0])
    assert result.to_json()["diverged"]["trials"] == list(range(18))


def test_a_run_that_has_not_settled_is_called_unsteady() -> None:
    scenario = Scenario(num_clients=10, dimension=3, stepsize=0.001, iterations=300)
    result = simulate(scenario, trials=32)
    assert result.unsteady_metrics["server_msd"] < -0.01
    assert simulate(scenario.replace(stepsize=0.1, iterations=3000), trials=32).unsteady_metrics == {}


def test_one_trial_has_no_standard_error() -> None:
    result = simulate(Scenario(num_clients=5, dimension=2, iterations=50), trials=1)
    assert math.isnan(result.network_mse.standard_error)
    assert np.isnan(result.curve_standard_error["network_mse"]).all()


def test_standard_errors_are_those_of_the_trials(small_scenario: Scenario) -> None:
    result = simulate(small_scenario, trials=20, keep_trials=True, tail=10)
    curves = result.trial_curves["server_msd"]
    assert np.allclose(result.steady_state["server_msd"], curves[:, -10:].mean(axis=1))
    assert np.allclose(result.curve["server_msd"], curves.mean(axis=0))
    # The first point is the same for all trials, where the two formulas differ by rounding alone.
    expected = curves.std(axis=0, ddof=1) / math.sqrt(20)
    assert np.allclose(result.curve_standard_error["server_msd"], expected, atol=1e-8)
    estimate = result.server_msd
    assert estimate.interval[0] < estimate.mean < estimate.interval[1]


def test_long_curves_are_thinned_to_means() -> None:
    scenario = Scenario(num_clients=2, dimension=1, num_participants=1, iterations=25_000)
    thinned = simulate(scenario, trials=1)
    assert thinned.bin_width == 3
    assert len(thinned.curve["network_mse"]) == 8334
    assert thinned.iterations[-1] == 24_999


@pytest.mark.parametrize("option", [{"trials": 0}, {"seed": -1}, {"threads": 0}, {"tail": 61}, {"trials": 2.5}])
def test_bad_options_are_refused(small_scenario: Scenario, option: dict) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(option))):
        simulate(small_scenario, **option)


def test_progress_reaches_its_end(small_scenario: Scenario) -> None:
    seen = []
    simulate(small_scenario, trials=35, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (35 * 60, 35 * 60)


def test_communication_counts_numbers_and_bytes() -> None:
    scenario = Scenario(num_clients=50, dimension=5, num_participants=4, num_shared=2, iterations=10)
    traffic = psofed.simulate(scenario, trials=1).communication.to_json()
    assert traffic["per_iteration"] == {
        "numbers_down": 8, "numbers_up": 8, "bytes_down": 64, "bytes_up": 64, "bits_down": 512, "bits_up": 512,
    }  # fmt: skip
    assert traffic["total"]["bytes_up"] == 640
    assert traffic["full_sharing"]["total"]["numbers_down"] == 200
    assert traffic["ratio_to_full_sharing"] == 0.4


def test_test_instances_fewer_than_entries_are_evaluated_directly() -> None:
    """Both forms of the test set must agree with the reference; here N_t < D."""
    from reference.literal import run_literally

    data = Data(test_instances=3, test_input_variance=2.0)
    scenario = Scenario(num_clients=5, dimension=6, num_shared=2, iterations=20, data=data,
                        attack=Gaussian(num_byzantine=2))  # fmt: skip
    result = simulate(scenario, trials=2, seed=9, keep_trials=True)
    reference = run_literally(scenario, 9, 1)
    assert np.allclose(result.trial_curves["test_mse"][1], reference.test_mse, rtol=1e-10)
