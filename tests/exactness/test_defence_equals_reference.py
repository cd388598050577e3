"""A defence does in the engine what it does literally, on the same draws; and without one no bit changes."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from psofed import Scenario, Selection, simulate
from psofed.parts.attacks import ConstantBias, Gaussian, LittleIsEnough, NonFinite
from psofed.parts.defences import Cusum
from psofed.simulation.watch_plan import make_plan
from reference.literal import run_trial

sys.path.insert(0, str(Path(__file__).parent))
from few_trials import TRIALS, advance

pytestmark = [pytest.mark.engine, pytest.mark.parts, pytest.mark.takes(19)]

METRICS = ("network_mse", "server_msd", "test_mse")
QUICK = Cusum(threshold=6.0, return_after=4)
LOUD = Gaussian(num_byzantine=3, probability=0.3, variance=500.0)
BASE = Scenario(
    num_clients=8, dimension=4, num_participants=5, num_shared=2, iterations=60, defence=QUICK,
    attack=Gaussian(num_byzantine=3, probability=0.5),
)  # fmt: skip

CASES = {
    "theory": {},
    "estimated": {"defence": QUICK.replace(variance="estimated")},
    "past": {"defence": QUICK.replace(variance="past")},
    "past, a mask each": {"defence": QUICK.replace(variance="past"), "selection": Selection(coordinated=False)},
    "by the server": {"defence": QUICK.replace(reference="server")},
    "who is out learns alone": {"defence": QUICK.replace(excluded_download=False)},
    "for ever": {"defence": QUICK.replace(return_after=0)},
    "a mask each": {"selection": Selection(coordinated=False), "num_shared": 1},
    "all entries": {"num_shared": 4},
    "redrawn": {"uplink": "redrawn", "selection": Selection(pattern="round-robin")},
    "not finite": {"attack": NonFinite(num_byzantine=3, probability=0.5)},
    "omniscient": {"attack": LittleIsEnough(num_byzantine=3, probability=1.0), "aggregation": "krum"},
    "a bias and a median": {"attack": ConstantBias(num_byzantine=3, bias=0.3), "aggregation": "median"},
    "mixed before": {"pre_aggregation": "nnm", "aggregation": "median"},
    "one participant": {"num_participants": 1},
}
# Clients hold no models.
SERVER_MODELS = {
    "online-fed": {"algorithm": "online-fed"},
    "signsgd": {"algorithm": "signsgd", "attack": LOUD},
    "qs-fed": {"algorithm": "qs-fed", "attack": LOUD},
    "cs-fed": {"algorithm": "cs-fed", "attack": LOUD},
    "rosdhb": {"algorithm": "rosdhb", "attack": LOUD},
    "demoa": {"algorithm": "demoa", "attack": LOUD, "aggregation": "median"},
}


@pytest.mark.parametrize("changes", CASES.values(), ids=CASES)
def test_a_defence_does_in_the_engine_what_it_does_literally(changes: dict[str, Any]) -> None:
    scenario = BASE.replace(**changes)
    result = simulate(scenario, trials=3, seed=5, keep_trials=True)
    assert result.notes == ()
    assert result.defence.exclusions.sum() > 0
    for trial in range(3):
        literal = run_trial(scenario, 5, trial, make_plan(scenario))
        for metric in METRICS:
            expected = getattr(literal, metric)
            assert np.allclose(result.trial_curves[metric][trial], expected, rtol=1e-7, atol=1e-12)
        assert np.array_equal(result.defence.first[trial], literal.watch.first)
        assert np.array_equal(result.defence.exclusions[trial], literal.watch.exclusions)
        watch = literal.watch
        time_out = watch.finished + np.where(watch.is_out, 60 - watch.since, 0)
        assert np.array_equal(result.defence.time_out[trial], time_out)


@pytest.mark.parametrize("name", SERVER_MODELS)
def test_a_defence_of_server_models_does_what_it_does_literally(name: str) -> None:
    scenario = BASE.replace(iterations=30, **SERVER_MODELS[name])
    plan = make_plan(scenario)
    found, run = advance(scenario, 5, 30, plan=plan)
    assert run.watching.exclusions.sum() > 0
    for trial in range(TRIALS):
        literal = run_trial(scenario, 5, trial, plan)
        for metric, curve in zip(METRICS, found[:, :, trial].T, strict=True):
            assert np.allclose(curve, getattr(literal, metric), rtol=1e-7, atol=1e-12)
        assert np.array_equal(run.watching.first[trial], literal.watch.first)
        assert np.array_equal(run.watching.exclusions[trial], literal.watch.exclusions)


@pytest.mark.parametrize(
    "changes", [{}, pytest.param({"algorithm": "online-fed"}, marks=pytest.mark.slow)], ids=["pso-fed", "online-fed"]
)
def test_a_defence_that_suspects_nobody_changes_no_bit(changes: dict[str, object]) -> None:
    scenario = BASE.replace(**changes)
    watched = simulate(scenario.replace(defence=Cusum(threshold=1e300)), trials=20, seed=1)
    alone = simulate(scenario.replace(defence=None), trials=20, seed=1)
    assert watched.defence.exclusions.sum() == 0
    assert alone.defence is None
    for metric in METRICS:
        assert np.array_equal(watched.steady_state[metric], alone.steady_state[metric])
        assert np.array_equal(watched.curve[metric], alone.curve[metric])


def test_a_defence_of_a_server_model_that_suspects_nobody_changes_nothing() -> None:
    watched = BASE.replace(algorithm="online-fed", defence=Cusum(threshold=1e300))
    found, _ = advance(watched, 1, 20, plan=make_plan(watched))
    alone, _ = advance(watched.replace(defence=None), 1, 20)
    assert np.array_equal(found, alone)


def test_a_trial_is_the_same_alone_and_among_others() -> None:
    many, alone = simulate(BASE, trials=18, seed=2), simulate(BASE, trials=1, seed=2)
    assert np.array_equal(many.steady_state["server_msd"][:1], alone.steady_state["server_msd"])
    assert np.array_equal(many.defence.first[:1], alone.defence.first)
