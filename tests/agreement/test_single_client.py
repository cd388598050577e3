"""Simulation against a result known in closed form: one client that shares all runs plain LMS."""

import numpy as np
import pytest

from psofed import Data, Scenario, simulate

pytestmark = [pytest.mark.simulation, pytest.mark.engine]

STEPSIZE, INPUT, NOISE = 0.1, 0.8, 0.02


def lms_msd(dimension: int, fourth_moment: int) -> float:
    """Steady-state MSD of LMS on white Gaussian inputs: E‖w̃‖² ← (1 − 2μς² + μ²ς⁴(D+2)) E‖w̃‖² + μ²ς²σ²D."""
    decay = 2 * STEPSIZE * INPUT - (STEPSIZE * INPUT) ** 2 * (dimension + fourth_moment)
    return STEPSIZE**2 * INPUT * NOISE * dimension / decay


@pytest.mark.parametrize("dimension", [1, 4])
def test_one_client_follows_the_lms_formula_and_no_other(dimension: int) -> None:
    data = Data(input_variance=INPUT, noise_variance=NOISE)
    scenario = Scenario(
        num_clients=1, dimension=dimension, num_participants=1, num_shared=dimension, stepsize=STEPSIZE,
        iterations=3000, data=data,
    )  # fmt: skip
    result = simulate(scenario, trials=2000, seed=1, tail=2500)
    msd, mse = result.server_msd, result.network_mse
    assert abs(msd.mean - lms_msd(dimension, 2)) < 3.5 * msd.standard_error
    assert abs(mse.mean - (NOISE + INPUT * lms_msd(dimension, 2))) < 3.5 * mse.standard_error
    # Sharp enough: without Isserlis' second term the formula fails.
    assert abs(msd.mean - lms_msd(dimension, 0)) > 5 * msd.standard_error
    assert np.isclose(result.test_mse.mean, msd.mean + NOISE, atol=4 * result.test_mse.standard_error)
