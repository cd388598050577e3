"""The federation's promises, under whatever the seeds bring: see docs/federation_tests.md, *Simulated time*."""

from dataclasses import replace

import pytest
from breaks import BREAKS, broken
from plans import AT_FORGERS, AT_GATEWAYS, EXACT, HOSTILE, PAST_THE_DOOR, ROUGH, Incident, draw_plan
from shrinking import promise_of, shrink, tell
from simulated_federation import expected_models
from simulation import Finding, Simulation, simulate

pytestmark = [pytest.mark.federation, pytest.mark.common, pytest.mark.takes(50)]

SEEDS, ROUNDS = 30, 100
BREAK_ROUNDS = 20  # as in docs/tables/federation_breaks.csv
FOUND_BY = {
    "take-everything": 1,
    "filter-late": 1,
    "trust-any-instruction": 31,
    "die-of-a-bad-tree": 18,
    "open-door": 105,
    "signatures-for-ever": 24,
    "ignore-revocation": 6,
    "rollback-removes-first": 12,
    "offer-every-round": 15,
    "link-without-sync": 8,
    "write-without-sync": 1,
    "history-last": 10,
    "join-by-arrival": 1,
    "learn-twice": 1,
    "keep-instructions": 0,
    "keep-sessions": 3,
    "any-number-of-names": 15,
    "wait-for-everything": 9,
    "jumping-clock": 23,
    "own-clock-only": 10,
}
"""For each break a seed that finds it."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_promise_is_kept_whatever_happens(seed):
    try:
        simulate(draw_plan(seed, ROUNDS))
    except Finding as finding:
        pytest.fail(f"{tell(finding)}\nReplay it: make simulated SEED={seed} ROUNDS={ROUNDS}", pytrace=False)


def test_a_seed_always_tells_the_same_story():
    first, second = (Simulation(draw_plan(4, 20)).run() for _ in range(2))
    assert first.world.story == second.world.story
    assert first.models == second.models
    assert first.world.steps == second.world.steps


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_a_run_to_which_nothing_happens_has_the_expected_models(seed):
    plan = draw_plan(seed, 20)
    assert plan.exact
    assert Simulation(plan.undisturbed).run().models == expected_models(plan)


@pytest.mark.parametrize("kind", ["misdelivery", PAST_THE_DOOR[-1]])
def test_a_message_that_is_not_for_a_node_costs_it_one_question(kind):
    plan = draw_plan(3, 20)
    assert plan.bell
    who = plan.honest[0] if kind == "misdelivery" else plan.forgers[0]
    incidents = [Incident(kind, number, after, who, 0.5) for number in range(3, 19) for after in (0.0, 0.02)]
    simulation = simulate(plan.only(incidents))
    assert any("ignored" in text for _, text in simulation.world.story)
    assert max(entry["seconds"] for entry in simulation.history[1:]) < 1.5  # a few requests at 20 ms each


def test_a_node_that_was_away_is_heard_again_however_short_the_rounds_are():
    plan = draw_plan(3, 150)
    who, calm = plan.honest[0], replace(plan, exact=False, bell=True, clients=(), participants=4)
    assert len(plan.nodes) == 4
    simulation = Simulation(calm.only([Incident("kill node", 5, 0.0005, who, 0.45)]))
    for node in simulation.nodes.values():
        node.latency = 0.001  # a round takes less time than the front door holds a question
    history = simulation.run().history
    asked = [entry for entry in history[5:] if who in entry["participants"]]
    assert len(asked) > 100
    assert all(who in entry["accepted"] for entry in asked[5:])


def test_every_kind_of_incident_is_drawn():
    drawn = {incident.kind for seed in range(4 * SEEDS) for incident in draw_plan(seed, ROUNDS).incidents}
    assert drawn == {*ROUGH, *AT_GATEWAYS, *AT_FORGERS}
    assert set(EXACT) | set(HOSTILE) <= set(ROUGH)


@pytest.mark.slow
def test_a_finding_is_shortened_to_what_matters():
    with broken("link-without-sync"):
        with pytest.raises(Finding) as found:
            simulate(draw_plan(FOUND_BY["link-without-sync"], BREAK_ROUNDS))
        short = shrink(found.value)
    assert promise_of(short) == "no round is lost"
    incidents = short.simulation.plan.incidents
    assert len(incidents) < len(found.value.simulation.plan.incidents)
    assert any("power" in incident.sentence for incident in incidents)
    assert all(incident.sentence in tell(short) for incident in incidents)


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_a_hole_that_is_opened_again_is_found(name):
    with broken(name), pytest.raises(Finding):
        simulate(draw_plan(FOUND_BY[name], BREAK_ROUNDS))
