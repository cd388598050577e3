"""One liar among five nodes: the mean follows it, the robust rules do not. ``make liars`` tries all for real."""

import liars
import numpy as np
import pytest
from deployments import run_in_process
from liars import HONEST, LIAR, NODES, RULES

from psofed.aggregations import FLTrust
from psofed.common.errors import PsofedError
from psofed.federation import PSOFed
from psofed.pre_aggregations import NNM


def test_a_rule_that_needs_root_data_is_refused():
    with pytest.raises(PsofedError, match="root data"):
        PSOFed(aggregation=FLTrust())


def test_the_median_stays_where_the_mean_is_led_away(tmp_path, record_property):
    """Real processes, one server and five nodes, for all runs."""
    wanted = [("median", "1e300"), ("median", "model turned round"), ("mean", "bias -0.15")]
    found = {}
    for rule, lie, change, dropped in liars.try_lies(tmp_path, wanted, compare=without_liar(tmp_path)):
        print(f"{rule}, {lie}: {change:+.2f} dB, dropped {dropped}")
        record_property(f"{rule}, {lie}", float(change))
        found[rule] = max(change, found.get(rule, change))
        # The guard sees the crude lie and benches the liar. The others it lets pass: they are for the rule.
        assert dropped == ({"node-0": {"implausible": 3}} if lie == "1e300" else {})
    assert found["median"] < 1.0
    assert found["mean"] > 3.0


def without_liar(folder):
    """The runs without the liar, on a Grid within this process: they give the very same models, and cost less."""
    return lambda deployment, rule: run_in_process(
        liars.settings(rule), HONEST, folder / rule, numbers=[deployment.number(k) for k in HONEST]
    )


def cost_of_a_turned_model(rule, folder, **changes):
    """Return what the lie that costs most does to a run on a Grid within this process, in decibels."""
    without = run_in_process(liars.settings(rule, **changes), HONEST, folder / "without")
    lied_to = run_in_process(
        liars.settings(rule, "model turned round", **changes), range(NODES), folder / "with", byzantine=LIAR
    )
    change = 10 * np.log10(liars.level(lied_to)[0] / liars.level(without)[0])
    print(f"{rule}: {change:+.2f} dB")
    return change


@pytest.mark.parametrize("rule", ["median", "centred-clipping by distances"])
def test_at_the_noise_floor_mixing_with_neighbours_keeps_the_lie_within_1_db(rule, tmp_path):
    """A rule alone is moved a little, always to the same side, and that adds up."""
    floor = {"stepsize": 0.002}
    assert cost_of_a_turned_model(rule, tmp_path / "alone", **floor) > 1.5
    assert cost_of_a_turned_model(rule, tmp_path / "mixed", pre_aggregation=NNM(tolerated=1), **floor) < 1.0


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_leaves_out_a_model_turned_round_or_at_least_shortens_it(rule, tmp_path):
    """The same runs on a Grid within this process."""
    change = cost_of_a_turned_model(rule, tmp_path)
    if rule == "mean":
        assert change > 8.0
    elif rule in liars.CLIPPING:
        assert 1.0 < change < 7.0  # shortened, but it still counts
    else:
        assert change < 1.0
