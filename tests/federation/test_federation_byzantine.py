"""One Byzantine node of five: the mean follows it, the robust rules do not. ``make byzantine`` tries all for real."""

from functools import partial

import byzantine
import numpy as np
import patient
import pytest
from byzantine import BYZANTINE, HONEST, NAMES, NODES, RULES
from deployments import Deployment, run_in_process

from psofed.aggregations import FLTrust, Mean
from psofed.common.errors import PsofedError
from psofed.federation import PSOFed
from psofed.pre_aggregations import NNM

pytestmark = [pytest.mark.federation, pytest.mark.takes(13)]

ROUNDS = 6
"""Of real processes: the guard has benched the Byzantine node after three."""


QUICK = ("mean", "median", "norm-clipping")
"""One rule of each kind for `make test`; `make test-slow` takes all."""


def test_a_rule_that_needs_root_data_is_refused():
    with pytest.raises(PsofedError, match="root data"):
        PSOFed(aggregation=FLTrust())


@pytest.mark.slow
def test_the_median_stays_where_the_mean_is_led_away(tmp_path, record_property):
    """Real processes, one server and five nodes: the same models as on a Grid within this process, lies included.

    So a few rounds are enough for the processes, and all 30, with those without the Byzantine node, run on the Grid.
    """
    wanted = [("median", "1e300"), ("mean", "bias -0.15")]
    with Deployment(tmp_path, NAMES) as deployment:
        deployment.start_server()
        for k in range(NODES):
            deployment.start_node(k, *(["--byzantine"] if k == BYZANTINE else []))
        numbers = [deployment.number(k) for k in range(NODES)]
        real = [deployment.run_to_the_end(byzantine.settings(*case, iterations=ROUNDS)) for case in wanted]
    found = {}
    for (rule, lie), result in zip(wanted, real, strict=True):

        def on_a_grid(label, who, settings, case=f"{rule}, {lie}"):
            places = [numbers[k] for k in who]
            return run_in_process(settings, who, tmp_path / case / label, byzantine=BYZANTINE, numbers=places)

        same = on_a_grid("few rounds", range(NODES), byzantine.settings(rule, lie, iterations=ROUNDS))
        assert len(result["history"]) == ROUNDS
        np.testing.assert_allclose(result["model"], same["model"], rtol=0, atol=1e-14)
        # The guard sees the crude lie and benches the Byzantine node. The others it lets pass: they are for the rule.
        dropped = {"implausible": 3} if lie == "1e300" else None
        assert result["bad_replies"] == ({NAMES[BYZANTINE]: dropped} if dropped else {})
        assert same["bad_replies"] == ({str(numbers[BYZANTINE]): dropped} if dropped else {})

        lied_to = on_a_grid("with", range(NODES), byzantine.settings(rule, lie))
        without = on_a_grid("without", HONEST, byzantine.settings(rule))
        change = 10 * np.log10(byzantine.level(lied_to)[0] / byzantine.level(without)[0])
        print(f"{rule}, {lie}: {change:+.2f} dB")
        record_property(f"{rule}, {lie}", float(change))
        found[rule] = max(change, found.get(rule, change))
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


def cost_of_a_turned_model(rule, folder, **changes):
    """Return what the lie that costs most does to a run on a Grid within this process, in decibels."""
    without = run_in_process(byzantine.settings(rule, **changes), HONEST, folder / "without")
    lied_to = run_in_process(
        byzantine.settings(rule, "model turned round", **changes),
        range(NODES),
        folder / "with",
        byzantine=BYZANTINE,
    )
    change = 10 * np.log10(byzantine.level(lied_to)[0] / byzantine.level(without)[0])
    print(f"{rule}: {change:+.2f} dB")
    return change


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["median", "centred-clipping by distances"])
def test_at_the_noise_floor_mixing_with_neighbours_keeps_the_lie_within_1_db(rule, tmp_path):
    """A rule alone is moved a little, always to the same side, and that adds up."""
    floor = {"stepsize": 0.002}
    assert cost_of_a_turned_model(rule, tmp_path / "alone", **floor) > 1.5
    assert cost_of_a_turned_model(rule, tmp_path / "mixed", pre_aggregation=NNM(tolerated=1), **floor) < 1.0


@pytest.mark.parametrize(
    "rule", [r if r in QUICK else pytest.param(r, marks=pytest.mark.slow) for r in RULES]
)
def test_a_rule_leaves_out_a_model_turned_round_or_at_least_shortens_it(rule, tmp_path):
    """The same runs on a Grid within this process."""
    change = cost_of_a_turned_model(rule, tmp_path)
    if rule == "mean":
        assert change > 8.0
    elif rule in byzantine.CLIPPING:
        assert 1.0 < change < 7.0  # shortened, but it still counts
    else:
        assert change < 1.0
