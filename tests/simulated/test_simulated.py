"""The federation's promises, under whatever the seeds bring: see docs/federation_tests.md, *Simulated time*."""

from dataclasses import replace

import numpy as np
import pytest
from breaks import BREAKS, broken
from plans import AT_FORGERS, AT_GATEWAYS, EXACT, HOSTILE, ROUGH, Incident, draw_plan
from shrinking import find_break, promise_of, shrink, tell
from simulated_federation import DIMENSION, expected_models, server_of
from simulation import Finding, Simulation, simulate

from psofed.common.errors import PsofedError
from psofed.federation.transport.in_process import InProcessHub

pytestmark = [pytest.mark.federation, pytest.mark.common, pytest.mark.takes(50)]

SEEDS, ROUNDS = 30, 100
BREAK_ROUNDS = 50  # as in docs/tables/federation_breaks.csv
BREAK_SEEDS = 100


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
    plan = replace(draw_plan(seed, 20), exact=True, byzantine=()).only(())
    assert simulate(plan).models == expected_models(plan)


@pytest.mark.parametrize("seed", range(5))
def test_a_second_server_costs_the_first_one_no_reply(seed):
    """Nodes that were with the second server ignore the first one's question, and must be asked again."""
    plan = replace(draw_plan(89, 30), seed=seed)
    after = 0.05 * seed
    incidents = [Incident("server connection lost", 22, after, "", 0.0), Incident("second server", 22, after, "", 0.1)]
    simulation = simulate(plan.only([replace(incident, who=plan.honest[0]) for incident in incidents]))
    assert "another server has connected" in str(simulation.world.story)
    assert max(entry["seconds"] for entry in simulation.history) < 4.0


def test_a_server_that_waits_for_nodes_notices_that_another_one_has_taken_over():
    class ReplacedHub(InProcessHub):
        is_connected = False

        def receive(self, seconds):
            raise PsofedError("another server has connected")

    calls = iter(range(20))
    server = server_of(draw_plan(1), lambda state: None, attend=lambda: next(calls, None) is None)
    with pytest.raises(PsofedError, match="another server"):
        server.run(ReplacedHub({}), {"0": np.zeros(DIMENSION)}, 0)


@pytest.mark.parametrize("seed", range(6))
def test_after_a_restart_of_the_broker_no_node_is_alone(seed):
    names = tuple(f"honest-{k}" for k in range(5))
    calm = replace(draw_plan(89, 60), seed=seed, honest=names, byzantine=(), forgers=(), clients=())
    plan = replace(calm, participants=5, exact=False)
    history = simulate(plan.only([Incident("broker restart", 20, 0.02 * seed, names[0], 0.01)])).history
    assert min(len(entry["participants"]) for entry in history) >= 3


def test_every_kind_of_incident_is_drawn():
    drawn = {incident.kind for seed in range(4 * SEEDS) for incident in draw_plan(seed, ROUNDS).incidents}
    assert drawn == {*ROUGH, *AT_GATEWAYS, *AT_FORGERS}
    assert set(EXACT) | set(HOSTILE) <= set(ROUGH)


@pytest.mark.slow
def test_a_finding_is_shortened_to_what_matters():
    found = find_break("link-without-sync", BREAK_ROUNDS, BREAK_SEEDS)
    with broken("link-without-sync"):
        short = shrink(found[1])
    assert promise_of(short) == "no round is lost"
    incidents = short.simulation.plan.incidents
    assert len(incidents) < len(found[1].simulation.plan.incidents)
    assert any("power" in incident.sentence for incident in incidents)
    assert all(incident.sentence in tell(short) for incident in incidents)


@pytest.mark.parametrize("name", BREAKS)
def test_a_hole_that_is_opened_is_found(name):
    assert find_break(name, BREAK_ROUNDS, BREAK_SEEDS) is not None
