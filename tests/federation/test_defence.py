"""A defence in the federation: the same decisions as in the literal form, by name, kept over a restart."""

from pathlib import Path

import numpy as np
import pytest
from nodes import make_node, run

from psofed import InvalidValueError, NotCoveredError, Scenario
from psofed.attacks import Gaussian
from psofed.defences import Cusum
from psofed.federation.client.gateway import Rehearsal
from psofed.federation.client.online import OnlineRegression
from psofed.federation.client.sources import SyntheticSource
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.loop import Server
from psofed.federation.server.step import Suspects, plan_defence
from psofed.federation.transport.in_process import InProcessHub
from psofed.parts.watching import Watch
from psofed.simulation.watch_plan import make_plan
from reference.literal import run_literally

pytestmark = pytest.mark.federation

SCENARIO = Scenario(
    num_clients=6, dimension=4, num_participants=5, num_shared=2, iterations=30,
    attack=Gaussian(num_byzantine=2, probability=0.5, variance=4.0), defence=Cusum(threshold=8.0, return_after=4),
)  # fmt: skip


def test_suspects_are_those_of_the_literal_form() -> None:
    """The federation's step receives the same uploads as the literal run's server, with a restart halfway."""
    scenario = SCENARIO.replace(defence=SCENARIO.defence.replace(variance="past"))
    plan, rounds = make_plan(scenario), []

    class Listening(Watch):
        def judge(self, uploads, server, clients, iteration):
            received = uploads.copy()
            out = super().judge(uploads, server, clients, iteration)
            rounds.append((received, server.copy(), clients, {f"node-{k}" for k in clients[out]}))
            return out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reference.literal.Watch", Listening)
        run = run_literally(scenario, 3, 1, plan)
    assert run.watch.exclusions.sum() > 0
    defence = scenario.defence.replace(threshold=plan.threshold)
    suspects = Suspects(defence)
    for n, (uploads, server, clients, expected) in enumerate(rounds):
        if n == 15:
            suspects = Suspects(defence, suspects.to_mapping())
        given = {
            f"node-{k}": (np.flatnonzero(~np.isnan(row)), row[~np.isnan(row)])
            for k, row in zip(clients, uploads, strict=True)
        }
        assert set(suspects.judge(n + 1, server, given)) == expected
    found = suspects.describe()
    assert {name: about["first_round"] - 1 for name, about in found.items()} == {
        f"node-{k}": int(first) for k, first in enumerate(run.watch.first) if first >= 0
    }
    assert sorted(name for name, about in suspects.describe().items() if about["out"]) == sorted(
        f"node-{k}" for k in np.flatnonzero(run.watch.is_out)
    )


def run_in_process(rounds=30, byzantine=True, **settings):
    """Run a small federation in this process; node k is named by its number, from 10 on."""
    scenario = SCENARIO.replace(attack=None, defence=None)
    attack = Gaussian(num_byzantine=1, probability=1.0, variance=9.0)
    nodes = {}
    for k in range(scenario.num_clients):
        learner = OnlineRegression(SyntheticSource(scenario, k, 1), scenario.stepsize, 1)
        corruption = Rehearsal(attack, seed=1) if byzantine and k == 1 else None
        nodes[str(10 + k)] = make_node(str(10 + k), learner.learn, catch_up=True, corruption=corruption)
    return run(InProcessHub(nodes), rounds, 2, {"0": np.zeros(4)}, RoundPlan(newcomers="zeros"), seed=1,
               num_participants=5, aggregation=None, **settings)  # fmt: skip


def test_a_byzantine_node_is_named_in_state_and_history(tmp_path: Path) -> None:
    given = {"defence": Cusum(threshold=80.0), "checkpoint": tmp_path / "checkpoint.npz"}
    state = run_in_process(**given).state
    assert list(state.suspects["nodes"]) == ["11"]
    assert state.suspects["nodes"]["11"]["out"]
    assert state.history[-1]["left_out"] == ["11"]
    assert "11" not in state.strikes["counts"], "to be suspect is no strike, and ends by itself"
    again = run_in_process(31, byzantine=False, resume=True, **given)
    assert again.state.suspects["nodes"]["11"]["out"], "a restart forgets no suspect"


def test_a_federation_needs_a_threshold_or_a_plan() -> None:
    with pytest.raises(InvalidValueError, match=r"defence.threshold.*plan_defence"):
        Server(num_shared=0.1, defence="cusum")
    planned = plan_defence(
        Cusum(false_alarm_every=200.0), num_nodes=6, num_participants=4, dimension=3, num_shared=1, rounds=100
    )
    assert planned.threshold > 0
    assert Server(num_shared=0.1, defence=planned).step.suspects.defence == planned
    assert Server(num_shared=0.1, defence="none").step.suspects is None
    with pytest.raises(InvalidValueError, match="too many to find one by simulation"):
        plan_defence(Cusum(), num_nodes=6, dimension=10**6, num_shared=10**5)


@pytest.mark.parametrize(("nodes", "participants"), [(1, None), (1, 3), (2, 3), (2, 1)])
def test_a_plan_is_made_for_one_or_two_nodes_too(nodes: int, participants: int | None) -> None:
    """More participants than there are nodes are all nodes; one alone is compared as if it were two."""
    sizes = {"dimension": 3, "num_shared": 1, "rounds": 20}
    planned = plan_defence(Cusum(threshold=7.0), num_nodes=nodes, num_participants=participants, **sizes)
    assert planned.threshold == 7.0


def test_what_a_federation_cannot_do_is_refused_by_name() -> None:
    alone = SCENARIO.replace(defence=Cusum(excluded_download=False))
    with pytest.raises(NotCoveredError, match="excluded_download"):
        RunSettings(scenario=alone)
    with pytest.raises(NotCoveredError, match="excluded_download"):
        Server(num_shared=0.1, defence=alone.defence.replace(threshold=1.0))
    for variance in ("theory", "estimated"):
        other = SCENARIO.replace(defence=Cusum(variance=variance))
        with pytest.raises(NotCoveredError, match=rf'defence.variance = "{variance}".*past'):
            RunSettings(scenario=other)
        with pytest.raises(NotCoveredError, match=rf'defence.variance = "{variance}".*past'):
            Server(num_shared=0.1, defence=other.defence)
