"""Theory against simulation for a target that walks, in standard errors, corrected for the number of points."""

import itertools
from statistics import NormalDist

import numpy as np
import pytest

from psofed import Data, Drift, NotCoveredError, Scenario, Selection, optimal_stepsize, predict, simulate
from psofed.parts.attacks import ConstantBias, Gaussian
from psofed.parts.base import Attack
from psofed.parts.drifts import Jump, RandomWalk, Sinusoid

pytestmark = [pytest.mark.theory, pytest.mark.simulation]

WALK = RandomWalk(variance=1e-3)
BASE = Scenario(num_clients=8, dimension=4, num_participants=3, num_shared=2, iterations=1500, drift=WALK)
WHITE = list(itertools.product(("random", "round-robin"), (True, False), ("same", "redrawn"), (0.0,)))
CORRELATED = [("random", True, "same", 0.5), ("random", False, "redrawn", 0.5), ("round-robin", True, "same", 0.5)]
GRID = WHITE + CORRELATED
# Two-sided, 1 in 1000 over the whole grid and both metrics (Bonferroni).
LIMIT = NormalDist().inv_cdf(1 - 0.001 / (2 * 2 * len(GRID)))


def make_scenario(pattern: str, coordinated: bool, uplink: str, correlation: float) -> Scenario:
    # With an offset for each client, few enough of them that theory goes through all offsets.
    scattered = pattern == "round-robin" and not coordinated
    return BASE.replace(
        num_clients=6 if scattered else BASE.num_clients,
        selection=Selection(pattern=pattern, coordinated=coordinated),
        uplink=uplink,
        data=Data(input_correlation=correlation),
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("case", GRID)
def test_the_exact_theory_predicts_how_far_a_walking_target_is_ahead(case: tuple) -> None:
    scenario = make_scenario(*case)
    prediction, result = predict(scenario), simulate(scenario, trials=200, seed=GRID.index(case))
    for metric in ("network_mse", "server_msd"):
        found = getattr(result, metric)
        z = (found.mean - getattr(prediction, metric)) / found.standard_error
        assert abs(z) < LIMIT, (metric, z)
    assert prediction.terms.drift > 0.1 * prediction.network_mse


def test_a_walk_that_the_server_does_not_feel_is_noticed() -> None:
    """The formula broken on purpose: no step for the pairs server–client, server–server."""
    scenario = make_scenario(*GRID[0])
    result, prediction = simulate(scenario, trials=200, seed=0), predict(scenario)
    wrong = prediction.server_msd - prediction.model.walk * scenario.dimension
    assert abs(result.server_msd.mean - wrong) > LIMIT * result.server_msd.standard_error


def test_the_learning_curve_with_a_walk_follows_the_simulation() -> None:
    scenario = make_scenario(*GRID[0]).replace(iterations=300)
    curve, result = predict(scenario).learning_curve(), simulate(scenario, trials=800, seed=5)
    points = np.array([5, 20, 60, 150, 299])
    z = (result.curve["server_msd"] - curve.server_msd)[points] / result.curve_standard_error["server_msd"][points]
    assert np.abs(z).max() < NormalDist().inv_cdf(1 - 0.001 / (2 * points.size))


def test_without_a_walk_smaller_is_better_and_with_one_it_is_not() -> None:
    assert optimal_stepsize(BASE.replace(drift=None)) == 0.0
    slow, fast = (optimal_stepsize(BASE.replace(drift=RandomWalk(variance=q))) for q in (1e-6, 1e-4))
    assert 0.0 < slow < fast


def test_the_best_stepsize_with_a_walk_lies_where_the_simulated_error_is_lowest() -> None:
    scenario = BASE.replace(drift=RandomWalk(variance=1e-4), iterations=3000, num_clients=5)
    best = optimal_stepsize(scenario)
    at_best, below, above = (
        simulate(scenario.replace(stepsize=best * factor), trials=200, seed=1) for factor in (1.0, 0.5, 2.0)
    )
    for other in (below, above):
        # The same draws in all three: differences are sharper than each alone.
        difference = other.steady_state["network_mse"] - at_best.steady_state["network_mse"]
        assert difference.mean() > 4 * difference.std(ddof=1) / np.sqrt(difference.size)


@pytest.mark.parametrize("attack", [Gaussian(num_byzantine=3), ConstantBias(num_byzantine=3)])
def test_attack_and_walk_add_up(attack: Attack) -> None:
    both = BASE.replace(attack=attack)
    terms = predict(both).terms
    alone = predict(both.replace(drift=None)).terms, predict(BASE).terms
    assert np.isclose(terms.attack, alone[0].attack, rtol=1e-6)
    assert np.isclose(terms.drift, alone[1].drift, rtol=1e-6)
    assert np.isclose(predict(both).network_mse, terms.data + terms.attack + terms.noise + terms.drift)


@pytest.mark.parametrize("drift", [Jump(size=1.0, at=5), Sinusoid(amplitude=0.1, period=100)])
def test_drifts_without_a_steady_state_are_refused_by_name(drift: Drift) -> None:
    with pytest.raises(NotCoveredError, match=drift.kind):
        predict(BASE.replace(drift=drift))


def test_one_client_follows_the_textbook_formula_for_tracking() -> None:
    """K = 1, M = D is plain LMS: MSD = (μ²ς²σ²D + qD) / (2μς² − μ²ς⁴(D + 2))."""
    mu, variance, noise, q, size = 0.1, 0.8, 0.02, 1e-4, 4
    scenario = Scenario(
        num_clients=1, dimension=size, num_participants=1, num_shared=size, stepsize=mu,
        data=Data(input_variance=variance, noise_variance=noise), drift=RandomWalk(variance=q),
    )  # fmt: skip
    textbook = (mu**2 * variance * noise + q) * size / (2 * mu * variance - (mu * variance) ** 2 * (size + 2))
    assert np.isclose(predict(scenario).server_msd, textbook, rtol=1e-6)
