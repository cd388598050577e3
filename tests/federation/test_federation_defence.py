"""A defence in the federation: the same decisions as in the literal form, by name, kept over a restart."""

from pathlib import Path

import numpy as np
import pytest

from psofed import InvalidValueError, NotCoveredError, Scenario
from psofed.attacks import Gaussian
from psofed.defences import Cusum
from psofed.federation import PSOFed, plan_defence
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.status import status_lines
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.suspects import Suspects
from psofed.parts.watching import Watch
from psofed.reference.literal import run_literally
from psofed.simulation.watch_plan import make_plan

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
        patch.setattr("psofed.reference.literal.Watch", Listening)
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
    assert suspects.names == sorted(f"node-{k}" for k in np.flatnonzero(run.watch.is_out))


def test_a_lying_node_is_named_in_state_history_and_status(tmp_path: Path, run_in_process) -> None:
    strategy = run_in_process(
        defence=Cusum(threshold=80.0), rehearsal=Gaussian(clients=("11",), probability=1.0, variance=9.0),
        checkpoint=tmp_path / "checkpoint.npz",
    )  # fmt: skip
    state = strategy.state
    assert list(state.suspects["nodes"]) == ["11"]
    assert state.suspects["nodes"]["11"]["out"]
    assert state.history[-1]["left_out"] == ["11"]
    assert "11" not in state.conduct["counts"], "to be suspect is no misconduct, and ends by itself"
    run = {"state": "running", "round": 30, "rounds": 30, "suspects": state.suspects["nodes"]}
    found = {
        "server": None, "nodes": [], "run": run, "checkpoint": None, "bad_replies": {}, "traffic": None,
        "suspects": run["suspects"],
    }  # fmt: skip
    assert any("left out   11 (since round" in line for line in status_lines(found, 0.0))
    again = run_in_process(
        defence=Cusum(threshold=80.0),
        rehearsal=None,
        checkpoint=tmp_path / "checkpoint.npz",
        resume=True,
        rounds=31,
    )
    assert again.state.suspects["nodes"]["11"]["out"], "a restart forgets no suspect"


@pytest.fixture
def run_in_process():
    """Run a small federation in this process; node k is named by its number, from 10 on."""
    from flwr.clientapp import ClientApp

    from psofed.federation import online_regression, partial_sharing
    from psofed.federation.client.synthetic import SyntheticSource
    from psofed.federation.testing import InProcessGrid

    scenario = SCENARIO.replace(attack=None, defence=None)

    def make_app(k: int) -> ClientApp:
        app = ClientApp()
        app.train(mods=[partial_sharing(catch_up=True)])(
            online_regression(SyntheticSource(scenario, k, 1), scenario.stepsize, 1)
        )
        return app

    apps = {10 + k: make_app(k) for k in range(scenario.num_clients)}

    def run(rounds: int = 30, **settings) -> PSOFed:
        strategy = PSOFed(
            num_shared=2, rounds=RoundPlan(newcomers="zeros"), seed=1, num_participants=5, **settings
        )
        strategy.step.plausibility.factor = None  # crude lies are to reach the defence alone
        strategy.start(InProcessGrid(apps), np.zeros(scenario.dimension), num_rounds=rounds)
        return strategy

    return run


def test_a_federation_needs_a_threshold_or_a_plan() -> None:
    with pytest.raises(InvalidValueError, match=r"defence.threshold.*plan_defence"):
        PSOFed(num_shared=0.1, defence="cusum")
    planned = plan_defence(
        Cusum(false_alarm_every=200.0), num_nodes=6, num_participants=4, dimension=3, num_shared=1, rounds=100
    )
    assert planned.threshold > 0
    assert PSOFed(num_shared=0.1, defence=planned).step.suspects.defence == planned
    assert PSOFed(num_shared=0.1, defence="none").step.suspects is None
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
        PSOFed(num_shared=0.1, defence=alone.defence.replace(threshold=1.0))
    for variance in ("theory", "estimated"):
        other = SCENARIO.replace(defence=Cusum(variance=variance))
        with pytest.raises(NotCoveredError, match=rf'defence.variance = "{variance}".*past'):
            RunSettings(scenario=other)
        with pytest.raises(NotCoveredError, match=rf'defence.variance = "{variance}".*past'):
            PSOFed(num_shared=0.1, defence=other.defence)
