"""Corners of the exact theory that were wrong once: each test failed before its mend."""

import math

import numpy as np
import pytest

import psofed
from psofed import Attack, Data, Scenario, Selection
from psofed.drifts import RandomWalk
from psofed.scenario.changes import attack_from_mapping
from psofed.theory.model import TheoryModel
from psofed.theory.moments.level import Sources

pytestmark = pytest.mark.theory


def make_attack(**options) -> Attack:
    return attack_from_mapping(options)


def scattered(**changes) -> Scenario:
    return Scenario(**{"selection": Selection(pattern="round-robin", coordinated=False)} | changes)


def test_one_client_learns_alike_whether_its_window_is_coordinated_or_not() -> None:
    scenario = scattered(
        num_clients=1, dimension=3, num_participants=1, num_shared=1, stepsize=0.05,
        data=Data(covariances=[np.diag([4.0, 1.0, 0.1]).tolist()], noise_variance=0.1),
        attack=make_attack(num_byzantine=1, probability=1.0, variance=1.0),
    )  # fmt: skip
    curve = psofed.predict(scenario).learning_curve(40)
    together = scenario.replace(selection=Selection(pattern="round-robin", coordinated=True))
    np.testing.assert_allclose(
        curve.network_mse, psofed.predict(together).learning_curve(40).network_mse, rtol=1e-12
    )
    assert curve.network_mse[:4].round(2).tolist() == [1.80, 3.12, 4.15, 4.97]


@pytest.mark.parametrize("correlation", [0.0, 0.4])
def test_the_lag_is_averaged_over_all_offsets(correlation: float) -> None:
    clients, dimension = (4, 3) if correlation == 0.0 else (3, 4)
    scenario = scattered(
        num_clients=clients, dimension=dimension, num_participants=2, num_shared=2, stepsize=0.15,
        data=Data(input_variance=tuple(np.linspace(0.3, 1.2, clients)), input_correlation=correlation),
        drift=RandomWalk(variance=0.01),
    )  # fmt: skip
    model = TheoryModel(scenario)
    assert not model.is_sampled
    branches = model.offset_branches(0)
    assert len(branches) > 24
    levels = [model.recursion(0.15, b).steady_state(Sources(0.0, 0.0, 1.0))[0] for b in branches]
    drift = psofed.predict(scenario).steady_state.drift
    assert drift.excess == pytest.approx(np.mean([level.excess for level in levels]), rel=1e-7)
    assert drift.server == pytest.approx(np.mean([level.server for level in levels]), rel=1e-7)


def test_the_lag_of_scattered_windows_agrees_with_simulation() -> None:
    scenario = scattered(
        num_clients=5, dimension=5, num_participants=2, num_shared=2, stepsize=0.15, iterations=1200,
        data=Data(input_variance=tuple(np.linspace(0.3, 1.2, 5)), noise_variance=0.02),
        drift=RandomWalk(variance=0.01),
    )  # fmt: skip
    result, predicted = psofed.simulate(scenario, trials=512, seed=3, tail=1000), psofed.predict(scenario)
    for metric in ("network_mse", "server_msd"):
        found = getattr(result, metric)
        assert abs(getattr(predicted, metric) - found.mean) < 3.5 * found.standard_error


@pytest.mark.slow
def test_the_sampling_error_knows_the_drift() -> None:
    still = scattered(num_clients=12, dimension=4, num_participants=4, num_shared=2)
    walking = still.replace(drift=RandomWalk(variance=0.01))
    assert TheoryModel(still).is_sampled
    errors = [psofed.predict(scenario).steady_state.sampling_error for scenario in (still, walking)]
    # The lag is two orders of magnitude larger than the excess without it, and so is its spread over offsets.
    assert errors[1].excess > 10 * errors[0].excess
    assert math.isfinite(errors[1].server)


def test_targets_of_their_own_keep_clients_apart_also_where_models_have_one_entry() -> None:
    """Alike in their variances, clients were counted as one; with one entry that was not noticed, and failed."""
    scenario = Scenario(
        num_clients=12, dimension=1, num_participants=3, data=Data(input_variance=1.0, target_spread=0.5)
    )
    apart = scenario.replace(data=Data(input_variance=[1.0 + 1e-9 * k for k in range(12)], target_spread=0.5))
    assert psofed.predict(scenario).network_mse == pytest.approx(psofed.predict(apart).network_mse, rel=1e-6)
