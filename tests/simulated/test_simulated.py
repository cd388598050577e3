"""The federation's promises, under whatever the seeds bring: see docs/federation.md, *A simulated year*."""

import pytest
from breaks import BREAKS, broken
from plans import EXACT, HOSTILE, ROUGH, draw_plan
from shrinking import promise_of, shrink, tell
from simulation import Finding, Simulation, simulate

pytestmark = [pytest.mark.federation, pytest.mark.common]

SEEDS, ROUNDS = 30, 50
FOUND_BY: dict[str, int] = {}


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


def test_every_kind_of_incident_is_drawn():
    drawn = {incident.kind for seed in range(SEEDS) for incident in draw_plan(seed, ROUNDS).incidents}
    assert drawn == set(ROUGH)
    assert set(EXACT) | set(HOSTILE) <= set(ROUGH)


def test_a_finding_is_shortened_to_what_matters():
    seed = FOUND_BY["ignore-revocation"]
    with broken("ignore-revocation"):
        with pytest.raises(Finding) as found:
            simulate(draw_plan(seed, ROUNDS))
        short = shrink(found.value)
    assert promise_of(short) == "a revoked node is out"
    assert [incident.kind for incident in short.simulation.plan.incidents] == ["revoke"]
    assert "is revoked" in tell(short)


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_a_hole_that_is_opened_again_is_found(name):
    with broken(name), pytest.raises(Finding):
        simulate(draw_plan(FOUND_BY[name], ROUNDS))
