import numpy as np
import pytest

from psofed import Data, Scenario, draw_fleet

pytestmark = pytest.mark.fleet


def test_a_fleet_is_drawn_from_its_seed_alone() -> None:
    small = draw_fleet(Scenario(num_clients=5, dimension=3))
    large = draw_fleet(Scenario(num_clients=9, dimension=4, stepsize=0.01))
    other = draw_fleet(Scenario(num_clients=5, dimension=3, data=Data(fleet_seed=1)))
    assert np.array_equal(small.input_variance, large.input_variance[:5])
    assert np.array_equal(small.noise_variance, large.noise_variance[:5])
    assert not np.array_equal(small.input_variance, other.input_variance)


def test_variances_lie_in_their_ranges() -> None:
    fleet = draw_fleet(Scenario(num_clients=1000, dimension=2))
    assert 0.2 <= fleet.input_variance.min() < 0.21
    assert 1.19 < fleet.input_variance.max() <= 1.2
    assert fleet.noise_variance.min() >= 0.005
    assert fleet.noise_variance.max() <= 0.025


def test_correlated_inputs_have_the_stated_covariance() -> None:
    data = Data(input_variance=[1.0, 2.0], input_correlation=-0.5)
    fleet = draw_fleet(Scenario(num_clients=2, dimension=3, num_participants=1, data=data))
    assert np.allclose(fleet.covariances()[1], [[2, -1, 0.5], [-1, 2, -1], [0.5, -1, 2]])
    assert not fleet.is_white


def test_explicit_covariances_are_used_as_they_are() -> None:
    covariance = np.array([[[2.0, 0.5], [0.5, 1.0]]])
    scenario = Scenario(num_clients=1, dimension=2, num_participants=1, data=Data(covariances=covariance))
    fleet = draw_fleet(scenario)
    assert np.array_equal(fleet.covariances(), covariance)
    assert fleet.input_variance.tolist() == [1.5]


def test_the_target_has_unit_length() -> None:
    assert np.isclose(np.linalg.norm(draw_fleet(Scenario(num_clients=5, dimension=7)).target), 1.0)
