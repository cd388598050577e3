import math

import numpy as np
import pytest

from psofed import Data, Drift, InvalidValueError, Scenario, simulate
from psofed.parts.contexts import Step
from psofed.parts.drifts import Jump, RandomWalk, Sinusoid
from reference.draws import draw_trial

pytestmark = [pytest.mark.parts, pytest.mark.engine]

BASE = Scenario(num_clients=6, dimension=3, iterations=400)
WALK = RandomWalk(variance=0.01)


def moves(drift: Drift, trial: int = 0) -> np.ndarray:
    return draw_trial(BASE.replace(drift=drift), seed=3, trial=trial).moves


def test_a_walk_starts_at_the_target_and_takes_steps_of_the_stated_variance() -> None:
    walks = np.array([moves(WALK, trial) for trial in range(20)])
    assert not walks[:, 0].any()
    steps = np.diff(walks, axis=1)
    assert abs(steps.mean()) < 4 * math.sqrt(0.01 / steps.size)
    assert abs(np.mean(steps**2) - 0.01) < 4 * 0.01 * math.sqrt(2 / steps.size)
    neighbours = np.mean(steps[:, 1:] * steps[:, :-1])
    assert abs(neighbours) < 4 * 0.01 / math.sqrt(steps.size)


def test_a_jump_happens_once_when_told_and_has_the_stated_length() -> None:
    path = moves(Jump(size=2.0, at=150))
    assert not path[:150].any()
    assert np.allclose(np.linalg.norm(path[150:], axis=1), 2.0)
    assert (path[150:] == path[150]).all()


def test_a_sinusoid_swings_along_one_line_with_its_period() -> None:
    path = moves(Sinusoid(amplitude=0.5, period=40))
    assert not path[0].any()
    assert np.allclose(np.linalg.norm(path[10]), 0.5)
    assert np.allclose(path[30], -path[10])
    assert np.array_equal(path[:40], path[40:80])


@pytest.mark.parametrize(
    ("drift", "iteration", "expected"),
    [
        (RandomWalk(variance=4.0), 0, [1.0, 2.0]),
        (RandomWalk(variance=4.0), 1, [2.0, 0.0]),
        (Jump(size=5.0, at=3), 2, [0.0, 0.0]),
        (Jump(size=5.0, at=3), 3, [3.0, 4.0]),
        (Sinusoid(amplitude=10.0, period=8), 2, [6.0, 8.0]),
        (Sinusoid(amplitude=10.0, period=8), 6, [-6.0, -8.0]),
        (Sinusoid(amplitude=10.0, period=8), 9, [6.0 / math.sqrt(2), 8.0 / math.sqrt(2)]),
    ],
)
def test_targets_move_as_was_worked_out_by_hand(drift: Drift, iteration: int, expected: list[float]) -> None:
    step = Step(iteration, np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([0.6, 0.8]))
    assert drift.move(step) == pytest.approx(expected, abs=1e-14)


def test_a_swings_mean_square_is_half_of_its_amplitudes_square() -> None:
    swing = Sinusoid(amplitude=3.0, period=40)
    path = [swing.move(Step(n, np.zeros(1), np.zeros(1), np.ones(1)))[0] for n in range(40)]
    assert swing.mean_square() == pytest.approx(np.mean(np.square(path))) == 4.5


def test_directions_are_uniform_over_the_sphere() -> None:
    drift = Jump(size=1.0, at=0)
    directions = np.array([moves(drift, trial)[0] for trial in range(600)])
    assert np.abs(directions.mean(axis=0)).max() < 4.5 * math.sqrt(1 / 3 / 600)
    assert np.abs(np.mean(directions**2, axis=0) - 1 / 3).max() < 4.5 * math.sqrt(4 / 45 / 600)


@pytest.mark.parametrize("field", ["inputs", "noise", "participants", "download_masks", "test_inputs"])
def test_drift_changes_nothing_else_that_is_drawn(field: str) -> None:
    moving, still = draw_trial(BASE.replace(drift=WALK), 5, 1), draw_trial(BASE, 5, 1)
    assert np.array_equal(getattr(moving, field), getattr(still, field))


def test_a_walk_of_variance_zero_is_no_drift_at_all() -> None:
    still = simulate(BASE, trials=4)
    standing = simulate(BASE.replace(drift=RandomWalk(variance=0.0)), trials=4)
    assert np.array_equal(still.steady_state["server_msd"], standing.steady_state["server_msd"])


def test_the_msd_right_after_a_jump_is_the_jumps_square() -> None:
    """Worked by hand: a server that knows w exactly is 3 away from it after a jump of 3, MSD 9."""
    data = Data(noise_variance=0.0, input_variance=1.0)
    scenario = BASE.replace(data=data, drift=Jump(size=3.0, at=399), num_shared=3)
    result = simulate(scenario, trials=8, tail=1)
    assert np.allclose(result.steady_state["server_msd"], 9.0, rtol=1e-6)


def test_a_jump_must_fall_within_the_run() -> None:
    with pytest.raises(InvalidValueError, match=r"drift.at must be .*; got 400"):
        simulate(BASE.replace(drift=Jump(size=1.0, at=400)), trials=1)


@pytest.mark.parametrize("drift", [WALK, Jump(size=1.0, at=7), Sinusoid(amplitude=0.1, period=100)])
def test_drifts_survive_toml_and_back(drift: Drift) -> None:
    scenario = BASE.replace(drift=drift)
    assert Scenario.from_toml(scenario.to_toml()) == scenario
