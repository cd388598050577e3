"""How good the theory is for random features, through their estimated covariances: good for small stepsizes only."""

import math
import sys
from pathlib import Path

import pytest

from psofed import Data, Prediction, Scenario, simulate
from psofed.fleet.measured import measure_features
from psofed.parts.models import Rff

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from kernel_ridge import kernel_ridge_mse

pytestmark = [pytest.mark.theory, pytest.mark.fleet]

SCENARIO = Scenario(
    num_clients=4,
    dimension=8,
    num_participants=2,
    num_shared=2,
    iterations=500,
    model=Rff(bandwidth=0.8),
    data=Data(function="sine", input_dimension=1, input_variance=1.0, noise_variance=0.01),
)


def excess_of(stepsize: float) -> tuple[float, float, float]:
    """Excess over the best weights late in the run: predicted, simulated, standard error."""
    scenario = SCENARIO.replace(stepsize=stepsize)
    found = simulate(scenario, trials=320, seed=3, tail=100).network_mse
    predicted = Prediction(scenario).learning_curve().network_mse[-100:].mean()
    floor = measure_features(scenario).noise_variance.mean()
    return predicted - floor, found.mean - floor, found.standard_error


@pytest.mark.parametrize("stepsize", [0.02, 0.1])
def test_the_learning_curve_of_features_is_predicted_for_small_stepsizes(stepsize: float) -> None:
    predicted, found, error = excess_of(stepsize)
    assert abs(predicted - found) < 0.03 * found + 3.5 * error


def test_features_are_not_gaussian_and_large_stepsizes_show_it() -> None:
    predicted, found, error = excess_of(1.0)
    assert predicted > 1.3 * found + 3.5 * error


def test_the_kernel_baseline_comes_near_the_noise_and_gains_by_samples() -> None:
    few, many = (kernel_ridge_mse(SCENARIO, samples, repeats=4) for samples in (40, 600))
    assert 0.01 < many.mean < 0.013
    assert many.mean < few.mean


def test_reports_say_that_the_theory_of_features_is_an_approximation() -> None:
    prediction = Prediction(SCENARIO)
    assert math.isnan(prediction.test_mse)
    notes = " ".join(prediction.report().notes)
    assert "approximation" in notes
    assert "no predicted test MSE" in notes
