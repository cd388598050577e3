"""The fast engine against the paper's block form, written literally, on the same draws."""

import dataclasses
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from psofed import Data, Scenario, Selection, simulate
from psofed.parts.registry import part_names
from reference.draws import draw_trial

sys.path.insert(0, str(Path(__file__).parent))
from block_form import run_reference

pytestmark = [pytest.mark.engine]

METRICS = ("network_mse", "server_msd", "test_mse")
COVARIANCES = [np.diag([1.0, 0.5, 2.0, 0.1 + 0.1 * k]) + 0.2 for k in range(7)]
DATA = {"white": Data(), "exponential": Data(input_correlation=0.6), "explicit": Data(covariances=COVARIANCES)}
GRID = list(itertools.product(part_names("pattern"), (True, False), ("same", "redrawn"), DATA, (1, 3, 4)))


@pytest.mark.parametrize(("pattern", "coordinated", "uplink", "data", "shared"), GRID)
def test_engine_equals_the_block_form_on_the_same_draws(
    small_scenario: Scenario, pattern: str, coordinated: bool, uplink: str, data: str, shared: int
) -> None:
    scenario = small_scenario.replace(
        selection=Selection(pattern=pattern, coordinated=coordinated), uplink=uplink, data=DATA[data], num_shared=shared
    )
    result = simulate(scenario, trials=5, seed=5, keep_trials=True)
    for trial in (0, 4):
        reference = run_reference(scenario, draw_trial(scenario, 5, trial))
        for metric in METRICS:
            assert np.allclose(result.trial_curves[metric][trial], getattr(reference, metric), rtol=1e-11, atol=0)


@pytest.mark.parametrize("pattern", part_names("pattern"))
@pytest.mark.parametrize("coordinated", [True, False])
def test_uploading_with_the_downloads_mask_is_noticed(
    small_scenario: Scenario, pattern: str, coordinated: bool
) -> None:
    """The recursion broken on purpose: S_{k,n} instead of S_{k,n+1} in the upload."""
    scenario = small_scenario.replace(selection=Selection(pattern=pattern, coordinated=coordinated))
    result = simulate(scenario, trials=5, seed=5, keep_trials=True)
    draws = draw_trial(scenario, 5, 0)
    broken = run_reference(scenario, dataclasses.replace(draws, upload_masks=draws.download_masks))
    for metric in METRICS:
        assert not np.allclose(result.trial_curves[metric][0], getattr(broken, metric), rtol=0.01, atol=0)


def test_final_models_of_the_kernel_are_the_references(small_scenario: Scenario) -> None:
    from psofed.engine.run import Run
    from psofed.fleet import draw_fleet

    fleet = draw_fleet(small_scenario)
    run = Run(small_scenario, fleet, 5, range(16))
    run.advance(0, np.empty((small_scenario.iterations, 3, 16)))
    models = run_reference(small_scenario, draw_trial(small_scenario, 5, 11)).models[-1]
    assert np.allclose(fleet.target - run.server[11], models[0], rtol=0, atol=1e-13)
    assert np.allclose(fleet.target - run.clients[:, :, 11], models[1:], rtol=0, atol=1e-13)
