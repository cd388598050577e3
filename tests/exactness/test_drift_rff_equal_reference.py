"""Kernels for targets that move and for given samples, against the block form on the same draws."""

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from psofed import Data, Model, NotCoveredError, Scenario, simulate
from psofed.parts.drifts import Jump, RandomWalk, Sinusoid
from psofed.parts.models import Linear, Rff
from psofed.parts.registry import find_part, part_names
from reference.draws import draw_trial

sys.path.insert(0, str(Path(__file__).parent))
from block_form import run_reference

pytestmark = [pytest.mark.engine, pytest.mark.parts]

METRICS = ("network_mse", "server_msd", "test_mse")
DRIFTS = {
    "random-walk": RandomWalk(variance=0.003),
    "jump": Jump(size=1.5, at=23),
    "sinusoid": Sinusoid(amplitude=0.7, period=17),
}


def assert_equal_to_reference(scenario: Scenario, tolerance: float) -> None:
    result = simulate(scenario, trials=5, seed=5, keep_trials=True)
    for trial in (0, 4):
        reference = run_reference(scenario, draw_trial(scenario, 5, trial))
        for metric in METRICS:
            curve = result.trial_curves[metric][trial]
            assert np.allclose(curve, getattr(reference, metric), rtol=tolerance, atol=0)


@pytest.mark.parametrize("kind", part_names("drift"))
@pytest.mark.parametrize("uplink", ["same", "redrawn"])
def test_engine_equals_the_block_form_with_a_moving_target(small_scenario: Scenario, kind: str, uplink: str) -> None:
    assert_equal_to_reference(small_scenario.replace(drift=DRIFTS[kind], uplink=uplink), 1e-11)


def test_a_target_that_moves_one_iteration_late_is_noticed(small_scenario: Scenario) -> None:
    scenario = small_scenario.replace(drift=DRIFTS["random-walk"])
    result = simulate(scenario, trials=5, seed=5, keep_trials=True)
    draws = draw_trial(scenario, 5, 0)
    late = run_reference(scenario, dataclasses.replace(draws, moves=np.roll(draws.moves, 1, axis=0)))
    assert not np.allclose(result.trial_curves["server_msd"][0], late.server_msd, rtol=0.01)


@pytest.mark.parametrize("function", part_names("function"))
@pytest.mark.parametrize("model", [Linear(), Rff(bandwidth=1.3)])
@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_engine_equals_the_block_form_on_features_of_the_same_inputs(
    small_scenario: Scenario, function: str, model: Model, correlation: float
) -> None:
    data = Data(function=function, input_dimension=4, input_correlation=correlation)
    sizes = {"dimension": 4} if model.kind == "linear" else {"dimension": 9, "num_shared": 4}
    # The engine's cosine is a polynomial, good to 1e-13.
    assert_equal_to_reference(small_scenario.replace(model=model, data=data, **sizes), 1e-8)


VARIANTS = {
    "drift": {"drift": DRIFTS["random-walk"]},
    "features": {"dimension": 9, "model": Rff(bandwidth=1.3), "data": Data(function="sine", input_dimension=2)},
}


@pytest.mark.parametrize("kind", part_names("attack"))
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_attack_acts_on_drift_and_features_as_written_literally(
    as_literally: Callable, small_scenario: Scenario, kind: str, variant: str
) -> None:
    scenario = small_scenario.replace(
        attack=find_part("attack", kind)(num_byzantine=3, probability=0.5), iterations=25, **VARIANTS[variant]
    )
    as_literally(scenario, 5, 5, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_rule_with_root_data_of_its_own_is_refused(small_scenario: Scenario, variant: str) -> None:
    with pytest.raises(NotCoveredError, match="fltrust"):
        simulate(small_scenario.replace(aggregation="fltrust", **VARIANTS[variant]), trials=1)


@pytest.mark.parametrize("kind", part_names("drift"))
def test_a_drift_does_not_depend_on_chunks(small_scenario: Scenario, kind: str) -> None:
    from psofed.engine.draws import TargetMoves
    from psofed.engine.streams import make_stream

    whole, pieces = (TargetMoves(DRIFTS[kind], 4, make_stream(1, "drift", range(3))) for _ in range(2))
    assert np.array_equal(
        whole.draw(0, 60), np.concatenate([pieces.draw(0, 13), pieces.draw(13, 40), pieces.draw(53, 7)])
    )
