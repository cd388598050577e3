"""The theory's solvers on problems whose answers are known: fixed points, largest eigenvalues, searches for limits."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from psofed import Data, Scenario, Selection, draw_fleet, predict
from psofed.theory import krylov
from psofed.theory.krylov import _SMALL, dominant_eigenvalue, gmres, solve_fixed_points
from psofed.theory.metrics import Level, SteadyState
from psofed.theory.offsets import WindowOffsets
from psofed.theory.stability import contraction_bound, mean_square_stepsize_bound, stability_limit
from psofed.theory.stepsize import minimise
from psofed.theory.tuning import settling_time

pytestmark = pytest.mark.theory


def contraction(size: int, radius: float) -> np.ndarray:
    rng = np.random.default_rng(size)
    matrix = rng.uniform(size=(size, size))
    return radius * matrix / np.abs(np.linalg.eigvals(matrix)).max()


@pytest.mark.parametrize("size", [1, _SMALL, _SMALL + 1, 2 * _SMALL])
@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 1e200])
def test_fixed_points_of_any_size_and_scale_are_found(size: int, scale: float) -> None:
    matrix, source = contraction(size, 0.9), np.linspace(1.0, 2.0, size)
    found = solve_fixed_points(lambda x: x @ matrix.T, scale * source[None], 1e-12) / scale
    assert found[0] == pytest.approx(np.linalg.solve(np.eye(size) - matrix, source), rel=1e-9)


def test_a_fixed_point_without_a_source_is_zero() -> None:
    assert not solve_fixed_points(lambda x: 0.5 * x, np.zeros((1, 3)), 1e-10).any()


@pytest.mark.parametrize("systems", [1, 3])
def test_a_restarted_search_ends_where_the_equation_holds(systems: int, monkeypatch) -> None:
    monkeypatch.setattr(krylov, "_RESTART", 7)
    factors = np.linspace(-0.9, 0.97, 60)[None] * np.array([[1.0], [0.3], [0.0]])[:systems]
    source = np.arange(1.0, systems + 1)[:, None] * np.ones(60)
    calls = []

    def linear(x: np.ndarray) -> np.ndarray:
        calls.append(x)
        return factors * x

    x, residual = gmres(linear, source, 1e-12)
    assert x == pytest.approx(source / (1 - factors), rel=1e-9)
    assert residual < 1e-12
    assert 60 < len(calls) < 200  # more than one round of seven, and each of them helps


def test_systems_side_by_side_may_have_no_source_or_end_early() -> None:
    """The map of the second is 0: it has its answer after one direction, and none to go on with."""
    factors = np.stack([np.linspace(-0.9, 0.9, 40), np.zeros(40), np.full(40, 0.5)])
    source = np.stack([np.ones(40), np.ones(40), np.zeros(40)])
    x, residual = gmres(lambda v: factors * v, source, 1e-12)
    assert x == pytest.approx(source / (1 - factors), rel=1e-9)
    assert residual < 1e-12


@pytest.mark.parametrize("size", [2, _SMALL, _SMALL + 1])
def test_the_largest_eigenvalue_is_found(size: int) -> None:
    matrix = contraction(size, 0.87)
    assert dominant_eigenvalue(lambda x: matrix @ x, np.ones(size)) == pytest.approx(0.87, rel=1e-7)


@pytest.mark.parametrize("guess", [1e-3, 0.3, 0.99, 1.0, 7.0, 1000.0])
@pytest.mark.parametrize("limit", [0.5, 1.0, 1.7])
def test_the_limit_of_stability_is_found_from_below_and_from_above(guess: float, limit: float) -> None:
    assert stability_limit(lambda mu: 1 - mu * (limit - mu), guess) == pytest.approx(limit, rel=1e-6)


def test_stability_may_have_no_limit_or_no_beginning() -> None:
    assert stability_limit(lambda mu: 0.5, 0.3) == math.inf
    assert stability_limit(lambda mu: 0.5, math.inf) == math.inf
    assert stability_limit(lambda mu: 2.0, 0.3) == 0.0
    assert stability_limit(lambda mu: 0.5 if mu < 2 else math.inf, 0.3) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize("best", [1e-3, 0.02, 0.1, 0.39, 0.8])
def test_the_stepsize_of_the_lowest_error_is_found(best: float) -> None:
    assert minimise(lambda mu: mu + best**2 / mu, 1.0) == pytest.approx(best, rel=1e-4)


def test_errors_that_only_fall_or_rise_have_their_lowest_at_an_end() -> None:
    assert minimise(lambda mu: 1 / mu, 2.0) == 1.94  # 3 % inside
    assert minimise(lambda mu: mu, 2.0) == pytest.approx(1.94 * 2.5**-13, rel=1e-9)


def made_up_solver(curve: Callable[[np.ndarray], np.ndarray]) -> SimpleNamespace:
    model = SimpleNamespace(
        fleet=SimpleNamespace(noise_variance=np.array([0.2, 0.4]), test_noise_variance=0.3),
        scenario=SimpleNamespace(is_linear=False, data=SimpleNamespace(rows=None)),
        honest=np.array([0.5, 0.5]),
    )
    return SimpleNamespace(
        model=model,
        curve=lambda stepsize, length: (curve(np.arange(length)), np.zeros(length), np.zeros(length)),
        num_moments=lambda stepsize: 3,
    )


def test_settling_takes_until_a_curve_stays_within_a_decibel() -> None:
    def settling(curve: Callable[[np.ndarray], np.ndarray]) -> int | None:
        return settling_time(made_up_solver(curve), 0.1, 1.0)

    assert settling(lambda n: 0.7 + 10 * 0.9**n) == 35  # 10 · 0.9ⁿ ≤ 0.2589 from n = 35 on
    assert settling(lambda n: 0.7 - 0.7 * 0.9**n) == 12  # 1 − 0.7 · 0.9ⁿ ≥ 0.7943 from n = 12 on
    assert settling(lambda n: np.full(n.size, 0.7)) == 0
    assert settling(lambda n: 0.7 + 10 * 0.999**n) == 3652
    assert settling(lambda n: 0.7 + 10.0 * (n % 2)) is None


def test_a_steady_state_has_nothing_of_what_is_not_said() -> None:
    state = SteadyState(Level(1.0, 2.0), Level(3.0, 4.0))
    assert {state.drift, state.targets, state.sampling_error} == {Level(0.0, 0.0)}


def test_bounds_of_the_stepsize_shrink_as_the_inputs_grow():
    """A stepsize is one over a variance, in every term of the bounds."""
    bounds = []
    for scale in (0.01, 1.0, 100.0):
        data = Data(input_variance=scale, input_correlation=0.7)
        fleet = draw_fleet(Scenario(num_clients=3, dimension=4, data=data))
        bounds.append([scale * bound(fleet) for bound in (contraction_bound, mean_square_stepsize_bound)])
    assert np.allclose(bounds, bounds[1], rtol=1e-9)


@pytest.mark.parametrize("white", [True, False])
@pytest.mark.parametrize("dimension", [2, 4, 5, 32])
def test_offsets_are_gone_through_as_long_as_there_are_few_combinations(dimension: int, white: bool) -> None:
    for clients in range(1, 15):
        windows = WindowOffsets(clients, dimension, 1, white)
        if windows.are_sampled:
            assert dimension ** (clients - 1) > 256
            assert windows.offsets(7).shape == (7, clients)
        else:
            offsets = windows.offsets(7)
            assert len(offsets) == dimension ** (clients - 1) <= 256
            assert len(np.unique(offsets, axis=0)) == len(offsets)


@pytest.mark.parametrize("coordinated", [True, False])
def test_a_moving_window_may_diverge_below_the_contraction_bound(coordinated):
    """Two clients whose inputs span different directions: each forgets what the other has learned."""
    angles = (1.197, 0.765) if coordinated else (2.676, 2.043)
    vectors = np.array([[math.cos(angle), math.sin(angle)] for angle in angles])
    covariances = vectors[:, :, None] * vectors[:, None, :] + 1e-5 * np.eye(2)
    scenario = Scenario(
        num_clients=2, dimension=2, num_participants=1, num_shared=1,
        selection=Selection(pattern="round-robin", coordinated=coordinated),
        data=Data(covariances=covariances.tolist()),
    )  # fmt: skip
    stepsize = 0.995 * contraction_bound(draw_fleet(scenario))
    prediction = predict(scenario.replace(stepsize=stepsize))
    assert prediction.spectral_radius > 1.0
    assert not prediction.is_stable
    assert prediction.network_mse == math.inf
    random = scenario.replace(stepsize=stepsize, selection=Selection(coordinated=coordinated))
    assert predict(random).is_stable
    assert predict(random).spectral_radius < 1.0
