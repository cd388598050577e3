"""One Byzantine node of five: the mean follows it, the robust rules do not. ``make byzantine`` tries all for real."""

from functools import partial

import byzantine
import numpy as np
import patient
import pytest
from byzantine import BYZANTINE, HONEST, NODES, RULES
from deployments import run_in_process

from psofed.aggregations import FLTrust, Mean
from psofed.common.errors import PsofedError
from psofed.federation import PSOFed
from psofed.pre_aggregations import NNM

pytestmark = [pytest.mark.federation, pytest.mark.takes(13)]

TURNED = "model turned round"
"""The lie that costs most."""

QUICK = ("mean", "median", "norm-clipping")
"""One rule of each kind for `make test`; `make test-slow` takes all."""


def test_a_rule_that_needs_root_data_is_refused():
    with pytest.raises(PsofedError, match="root data"):
        PSOFed(aggregation=FLTrust())


@pytest.mark.slow
def test_the_median_stays_where_the_mean_is_led_away(tmp_path, record_property):
    """Of five nodes one lies, against the run without it; all on a Grid within this process."""
    found = {}
    for rule, lie in [("median", "1e300"), ("mean", "bias -0.15")]:
        found[rule] = cost_of_a_lie(rule, lie, tmp_path / rule)
        record_property(f"{rule}, {lie}", float(found[rule]))
    assert found["median"] < 1.0
    assert found["mean"] > 3.0


@pytest.mark.parametrize("step", patient.STEPS[1:])
def test_a_patient_node_that_stays_within_the_guard_gains_little(step):
    """Step by step within the guard's bound, one node of five leads a plain mean away exponentially."""
    default = next(rule for rule in patient.RULES if "default" in rule)
    assert patient.level(default, step, seeds=1) < 2 * patient.level(default, None, seeds=1)
    bounded = patient.level("`mean`, `max_drift = 2`", step, seeds=1)
    assert bounded < 3 * patient.level("`mean`", None, seeds=1)
    if step != "honest":
        assert patient.level("`mean`", step, seeds=1) > 1e3


@pytest.mark.parametrize("nodes", [2, 3, 5])
def test_honest_nodes_lose_few_replies_to_the_guard(nodes):
    """One sample a round and one entry of five give the heaviest tails."""
    run = partial(patient.run, Mean(), 2.0, None, nodes=nodes, shared_entries=1, rounds=60)
    assert sum(run(seed)[1] for seed in range(3)) <= 1


def cost_of_a_lie(rule, lie, folder, **changes):
    """Return what a lie does to a run on a Grid within this process, in decibels."""
    without = run_in_process(byzantine.settings(rule, **changes), HONEST, folder / "without")
    lied_to = run_in_process(
        byzantine.settings(rule, lie, **changes),
        range(NODES),
        folder / "with",
        byzantine=BYZANTINE,
    )
    change = 10 * np.log10(byzantine.level(lied_to)[0] / byzantine.level(without)[0])
    print(f"{rule}, {lie}: {change:+.2f} dB")
    return change


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["median", "centred-clipping by distances"])
def test_at_the_noise_floor_mixing_with_neighbours_keeps_the_lie_within_1_db(rule, tmp_path):
    """A rule alone is moved a little, always to the same side, and that adds up."""
    floor = {"stepsize": 0.002}
    assert cost_of_a_lie(rule, TURNED, tmp_path / "alone", **floor) > 1.5
    assert cost_of_a_lie(rule, TURNED, tmp_path / "mixed", pre_aggregation=NNM(tolerated=1), **floor) < 1.0


@pytest.mark.parametrize(
    "rule", [r if r in QUICK else pytest.param(r, marks=pytest.mark.slow) for r in RULES]
)
def test_a_rule_leaves_out_a_model_turned_round_or_at_least_shortens_it(rule, tmp_path):
    """The same runs on a Grid within this process."""
    change = cost_of_a_lie(rule, TURNED, tmp_path)
    if rule == "mean":
        assert change > 8.0
    elif rule in byzantine.CLIPPING:
        assert 1.0 < change < 7.0  # shortened, but it still counts
    else:
        assert change < 1.0
