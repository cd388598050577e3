import math

import numpy as np
import pytest

from psofed import Data, InvalidValueError, PsofedError, Scenario, simulate
from psofed.engine.samples import evaluate
from psofed.fleet.measured import measure_features
from psofed.parts.models import Linear, Rff
from psofed.parts.registry import part_names

pytestmark = [pytest.mark.parts, pytest.mark.fleet]

RFF = Scenario(
    num_clients=6,
    dimension=40,
    num_shared=10,
    stepsize=0.4,
    iterations=300,
    model=Rff(bandwidth=1.0),
    data=Data(function="sine", input_dimension=2, input_variance=1.0, noise_variance=0.01),
)


def test_a_feature_is_the_cosine_worked_by_hand() -> None:
    features = Rff(bandwidth=2.0).make_features(2, 3)
    x = np.array([0.3, -1.2])
    angle = 2 * math.pi * (features.frequencies[1] @ x + features.phases[1])
    assert math.isclose(features(x)[1], math.sqrt(2 / 3) * math.cos(angle), rel_tol=1e-12)


def test_products_of_features_approach_the_gaussian_kernel() -> None:
    features = Rff(bandwidth=1.5, seed=4).make_features(3, 50_000)
    x, y = np.array([0.2, -0.4, 1.0]), np.array([-0.7, 0.5, 0.6])
    kernel = math.exp(-np.sum((x - y) ** 2) / (2 * 1.5**2))
    # A product of two features has variance below 1.
    assert abs(features(x) @ features(y) - kernel) < 4 / math.sqrt(50_000)


def test_features_depend_on_the_seed_alone() -> None:
    first, again = (Rff(seed=1).make_features(2, 8) for _ in range(2))
    other = Rff(seed=2).make_features(2, 8)
    more = Rff(seed=1).make_features(2, 16)
    assert np.array_equal(first.frequencies, again.frequencies)
    assert not np.array_equal(first.frequencies, other.frequencies)
    assert np.array_equal(first.frequencies, more.frequencies[:8])
    assert np.array_equal(first.phases, more.phases[:8])


X = np.array([[0.5, -1.0, 2.0, 0.25]])
BY_HAND = {
    "sum": (0.5 - 1.0 + 2.0 + 0.25) / 2,
    "sine": math.sin(2 * 1.75 / 2),
    "sinc": np.sinc(math.sqrt(0.25 + 1.0 + 4.0 + 0.0625)),
    "wiener": 0.53125 - 0.9 * 0.53125**2,
    "root-sine": math.sqrt(0.25 + 0.5) + (0.8 - 0.5 * math.exp(-1.0)) * 2.0,
}


@pytest.mark.parametrize("name", part_names("function"))
def test_functions_give_the_values_worked_by_hand(name: str) -> None:
    scenario = Scenario(num_clients=5, dimension=4, data=Data(function=name))
    assert np.allclose(evaluate(scenario.data.function, X), BY_HAND[name], rtol=1e-14)
    assert np.allclose(scenario.data.function.value(X[0]), BY_HAND[name], rtol=1e-14)


def test_best_weights_of_a_linear_function_are_the_functions_own() -> None:
    scenario = Scenario(num_clients=5, dimension=4, data=Data(function="sum", noise_variance=0.01))
    fleet = measure_features(scenario)
    assert np.allclose(fleet.target, 0.5, atol=0.005)
    assert math.isclose(fleet.noise_variance.mean(), 0.01, rel_tol=0.02)


def test_a_linear_function_is_learned_as_linear_streams_are() -> None:
    data = Data(input_variance=1.0, noise_variance=0.01)
    linear = Scenario(num_clients=6, dimension=4, iterations=1500, data=data)
    as_function = linear.replace(data=Data(function="sum", input_variance=1.0, noise_variance=0.01))
    first, second = (simulate(s, trials=64, seed=1).network_mse for s in (linear, as_function))
    assert abs(first.mean - second.mean) < 4 * math.hypot(first.standard_error, second.standard_error)


def test_features_learn_what_a_line_cannot() -> None:
    rff = simulate(RFF.replace(iterations=2000), trials=8, seed=1)
    line = simulate(
        RFF.replace(model=Linear(), dimension=2, num_shared=1, stepsize=0.1, iterations=2000), trials=8, seed=1
    )
    assert rff.network_mse.mean < 0.15
    assert line.network_mse.mean > 0.3
    assert rff.network_mse.mean >= measure_features(RFF).noise_variance.mean() - 4 * rff.network_mse.standard_error


def test_moments_of_the_linear_stand_in_are_those_of_the_features() -> None:
    # The diagonal of R: E[2/D cos²] is near 1/D, so the trace is near 1.
    assert abs(np.trace(measure_features(RFF).covariances()[0]) - 1) < 0.1


def test_an_unknown_function_is_named_with_those_there_are() -> None:
    with pytest.raises(InvalidValueError, match=r"data.function must be one of \"root-sine\""):
        Data(function="cubic")


def test_in_a_file_features_stand_for_the_dimension() -> None:
    text = 'num_clients = 9\n[model]\nkind = "rff"\nfeatures = 12\n[data]\nfunction = "sinc"\ninput_dimension = 2\n'
    scenario = Scenario.from_toml(text)
    assert scenario.dimension == 12
    assert Scenario.from_toml(scenario.to_toml()) == scenario


def test_features_without_a_stream_say_what_is_missing() -> None:
    with pytest.raises(PsofedError, match=r"data.function or use --data"):
        simulate(Scenario(num_clients=5, dimension=8, model=Rff()), trials=1)
