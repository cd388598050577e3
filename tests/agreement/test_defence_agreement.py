"""A defence keeps its promises: few false alarms, Byzantine clients found; variances as predicted."""

import math

import numpy as np
import pytest

import psofed
from psofed import Data, Scenario, Selection, simulate
from psofed.parts.attacks import ConstantBias, Gaussian
from psofed.parts.defences import Cusum
from psofed.theory.residuals import honest_variance
from reference.literal import run_literally

pytestmark = [pytest.mark.theory, pytest.mark.simulation, pytest.mark.parts, pytest.mark.slow, pytest.mark.takes(24)]

PAPER = Scenario(num_clients=50, dimension=5, iterations=2000)
OFTEN = Cusum(false_alarm_every=500.0)
SLOW = pytest.mark.slow


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_shared": 5},
        {"num_shared": 2, "selection": Selection(coordinated=False)},
        {"defence": OFTEN.replace(variance="estimated")},
        {"num_shared": 5, "aggregation": "median"},
    ],
    ids=["M = 1", "M = 5", "a mask each", "estimated", "median"],
)
def test_honest_clients_are_left_out_as_rarely_as_promised(changes: dict[str, object]) -> None:
    """Alarms cluster a little, and the threshold is itself measured: the count is within a third of the promise."""
    scenario = PAPER.replace(**({"defence": OFTEN} | changes))
    record = simulate(scenario, trials=160, seed=11).defence
    expected = record.iterations * len(record.first) / 500.0
    count = record.false_alarms.sum()
    spread = record.false_alarms.std(ddof=1) * math.sqrt(len(record.first))
    assert expected > 600
    assert spread < 3 * math.sqrt(expected)
    assert count < 1.33 * expected + 3 * spread
    assert count > expected / 1.8 - 3 * spread


@SLOW
def test_clients_whose_targets_differ_do_not_break_the_promise() -> None:
    """Two of these fifty differ so much that their suspicion climbs all the time: three times the promise once."""
    scenario = PAPER.replace(data=Data(target_spread=0.01), defence=Cusum())
    record = simulate(scenario, trials=256, seed=78).defence
    expected = record.iterations * len(record.first) / 10_000
    assert expected / 1.8 - 3 * math.sqrt(expected) < record.false_alarms.sum()
    assert record.false_alarms.sum() < 1.33 * expected + 3 * math.sqrt(expected)


@pytest.mark.parametrize("shared", [1, 5])
def test_byzantine_clients_are_found_and_the_network_is_as_if_there_were_none(shared: int) -> None:
    clean = PAPER.replace(num_shared=shared)
    attacked = clean.replace(attack=Gaussian(num_byzantine=15))
    levels = {
        name: simulate(scenario, trials=64, seed=3)
        for name, scenario in {
            "clean": clean, "attacked": attacked, "defended": attacked.replace(defence="cusum"),
        }.items()
    }  # fmt: skip
    record = levels["defended"].defence
    assert record.found == 1.0
    # The first attack of a client comes after 50 iterations on average; in half of all cases within 34.
    assert 34 <= record.median_delay < 100
    assert record.byzantine_time_out > 0.94
    assert record.honest_time_out < 0.01
    assert record.iterations_per_false_alarm > 4000
    loss = levels["defended"].network_mse.decibels - levels["clean"].network_mse.decibels
    assert loss < 0.05
    assert levels["attacked"].network_mse.decibels - levels["clean"].network_mse.decibels > 0.5


def test_a_bias_is_found_by_the_charts_of_the_mean() -> None:
    bias = ConstantBias(num_byzantine=15, bias=0.06, probability=1.0)
    scenario = PAPER.replace(attack=bias)
    with_shift, without = (
        simulate(scenario.replace(defence=Cusum(shift=shift)), trials=32, seed=4).defence for shift in (1.0, 0.0)
    )
    assert with_shift.found == 1.0
    assert with_shift.median_delay < without.median_delay


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="M = 2"),
        pytest.param({"num_shared": 3}, id="all", marks=SLOW),
        pytest.param({"num_shared": 1, "uplink": "redrawn"}, id="redrawn", marks=SLOW),
        pytest.param({"selection": Selection(coordinated=False)}, id="a mask each", marks=SLOW),
        pytest.param({"selection": Selection(pattern="round-robin")}, id="round-robin", marks=SLOW),
        pytest.param({"data": psofed.Data(input_correlation=0.5)}, id="correlated", marks=SLOW),
        pytest.param({"data": psofed.Data(target_spread=0.01)}, id="targets", marks=SLOW),
    ],
)
def test_residuals_of_honest_clients_have_the_variance_that_theory_says(changes: dict[str, object]) -> None:
    scenario = Scenario(num_clients=6, dimension=3, num_participants=3, num_shared=2, iterations=60)
    scenario = scenario.replace(**changes)
    variance = honest_variance(scenario)
    scores = [_squares(scenario, run_literally(scenario, 2, trial).models, trial, variance) for trial in range(120)]
    for early in (True, False):
        values = np.array([np.nanmean(s[:8] if early else s[8:]) for s in scores])
        assert abs(values.mean() - 1.0) < 4.0 * values.std(ddof=1) / math.sqrt(len(values))


def _squares(scenario: Scenario, models: np.ndarray, trial: int, variance: np.ndarray) -> np.ndarray:
    """Squared residuals of the uploads over what theory says, by iteration and client; NaN where there is none."""
    from reference.draws import draw_trial

    draws = draw_trial(scenario, 2, trial)
    iterations = len(draws.noise)
    out = np.full(draws.noise.shape, np.nan)
    for n in range(iterations):
        for k in np.flatnonzero(draws.uploaders[n]):
            mask = draws.upload_masks[n, k]
            residual = models[n + 1, 1 + k, mask] - models[n, 0, mask]
            out[n, k] = np.mean(residual**2) / variance[min(n, len(variance) - 1), k]
    return out
