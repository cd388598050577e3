import sys
from pathlib import Path

import numpy as np
import pytest

from psofed import NotCoveredError, Scenario, predict, simulate
from psofed.parts.drifts import Jump, RandomWalk, Sinusoid

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from lag import measure_lag

pytestmark = [pytest.mark.results, pytest.mark.simulation]

BASE = Scenario(num_clients=6, dimension=3, num_shared=2, iterations=800)


def test_the_measured_lag_is_the_predicted_one() -> None:
    scenario = BASE.replace(drift=RandomWalk(variance=1e-3))
    lag = measure_lag(scenario, trials=256, seed=2)
    predicted = predict(scenario).steady_state.drift.server / (3 * 1e-3)
    assert abs(lag.mean - predicted) < 3.5 * lag.standard_error


def test_recovery_is_the_time_back_to_the_old_level() -> None:
    result = simulate(BASE.replace(drift=Jump(size=2.0, at=400)), trials=64, seed=1, keep_trials=True)
    tracking, curve = result.tracking, result.curve["server_msd"]
    assert 10 < tracking.recovery < 200
    assert tracking.recovery_standard_error >= 0
    before = curve[200:400].mean()
    window = curve[400 + tracking.recovery :][:20].mean()
    assert window <= 1.1 * before
    assert curve[400] > 3.5
    assert tracking.to_json().keys() == {"kind", "msd", "msd_standard_error", "recovery", "recovery_standard_error"}


def test_a_server_without_time_to_recover_is_said_to_have_none() -> None:
    result = simulate(BASE.replace(drift=Jump(size=5.0, at=795)), trials=16)
    assert result.tracking.recovery is None
    assert "did not recover" in result.tracking.describe()


def test_a_slow_swing_is_followed_and_a_fast_one_is_not() -> None:
    slow, fast = (
        simulate(BASE.replace(drift=Sinusoid(amplitude=1.0, period=p)), trials=16).tracking.untracked for p in (400, 8)
    )
    assert slow < 0.2 < 0.5 < fast


def test_tracking_is_none_without_drift_and_stands_in_the_json_with_it() -> None:
    assert simulate(BASE, trials=2).tracking is None
    walking = simulate(BASE.replace(drift=RandomWalk(variance=1e-3)), trials=4)
    found = walking.to_json()["tracking"]
    assert np.isclose(found["lag"], walking.server_msd.mean / 3e-3)
    assert "iterations late" in walking.tracking.describe()


@pytest.mark.parametrize("drift", [None, Jump(size=1.0, at=3)])
def test_lag_is_refused_where_it_means_nothing(drift) -> None:
    with pytest.raises(NotCoveredError, match="random-walk"):
        measure_lag(BASE.replace(drift=drift))


def test_a_trial_that_diverges_after_a_jump_leaves_no_error_of_the_recovery() -> None:
    drift = Jump(size=1e6, at=400)
    result = simulate(BASE.replace(drift=drift), trials=3, keep_trials=True)
    assert result.diverged_trials.size
    assert result.tracking.recovery_standard_error is None
