"""Every learner and every stream, with other parts and in every package, and against textbook recursions."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import psofed
from psofed import Data, NotCoveredError, Scenario, Uniform, load_result, predict, simulate
from psofed.fleet import draw_fleet
from psofed.parts.registry import part_names
from psofed.scenario.changes import with_values
from reference.draws import draw_trial

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.simulation]

BASE = Scenario(num_clients=6, dimension=3, num_participants=4, num_shared=2, iterations=20, stepsize=0.1)
LEARNERS, STREAMS = part_names("learner"), part_names("stream")
# What varies beside the learner; every two values of different rows meet in one of the scenarios.
OTHERS = {
    "data.stream": [*STREAMS],
    "stepsize": [0.1, {"uniform": [0.05, 0.2]}, [0.1, 0.2, 0.05, 0.1, 0.1, 0.3]],
    "attack": [None, "sign-flip", "label-poisoning", "data-poisoning", "little-is-enough"],
    "more": [
        {},
        {"drift": {"kind": "random-walk", "variance": 0.01}},
        {"data.target_spread": 0.2},
        {"model": {"kind": "rff", "features": 3}, "data.function": "sine", "data.input_dimension": 2},
        {"aggregation": "median", "uplink": "redrawn", "selection.coordinated": False},
    ],
}


def pairwise() -> list[dict]:
    """Return settings in which every two values of two rows meet, few of them."""
    rows = {"learner": [*LEARNERS], **OTHERS}
    names = list(rows)
    missing = {
        (a, i, b, j)
        for a, b in itertools.combinations(names, 2)
        for i in range(len(rows[a]))
        for j in range(len(rows[b]))
    }
    rng, chosen = np.random.default_rng(0), []

    def met(places: dict) -> set:
        return {(a, places[a], b, places[b]) for a, b in itertools.combinations(names, 2)} & missing

    while missing:
        tries = [{name: int(rng.integers(len(rows[name]))) for name in names} for _ in range(60)]
        best = max(tries, key=lambda places: len(met(places)))
        if met(best):
            missing -= met(best)
            chosen.append({name: rows[name][place] for name, place in best.items()})
    return chosen


def scenario_of(values: dict) -> Scenario:
    changes = {key: value for key, value in values.items() if key not in ("attack", "more")} | values["more"]
    if values["attack"]:
        changes |= {"attack.kind": values["attack"], "attack.num_byzantine": 2, "attack.probability": 0.6}
    if changes["data.stream"] == "delay-line":
        changes["data.stream.pole"] = 0.6
    return with_values(BASE, changes)


@pytest.mark.parametrize("values", pairwise(), ids=lambda values: values["learner"])
def test_the_engine_does_what_the_literal_form_does(as_literally: Callable, values: dict) -> None:
    assert as_literally(scenario_of(values), 2, 7, rtol=1e-10).notes == ()


@pytest.mark.parametrize("kind", part_names("algorithm"))
def test_every_algorithm_takes_a_stream_and_stepsizes_per_client(as_literally: Callable, kind: str) -> None:
    data = Data(stream=psofed.streams.DelayLine(pole=0.6))
    scenario = BASE.replace(algorithm=kind, data=data, stepsize=Uniform(0.05, 0.2))
    assert as_literally(scenario, 2, 7, rtol=1e-10).notes == ()


def test_they_go_through_files_sweeps_and_refusals_of_the_theory(tmp_path: Path) -> None:
    data = Data(stream=psofed.streams.DelayLine(pole=0.5))
    scenario = BASE.replace(learner="rls", data=data, stepsize=[0.1] * 6)
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    result = simulate(scenario, trials=2)
    result.save(tmp_path / "result.nc")
    loaded = load_result(tmp_path / "result.nc")
    assert loaded.scenario == scenario
    assert json.loads(json.dumps(loaded.to_json())) == result.to_json()
    leaky = BASE.replace(learner="leaky-lms", iterations=3)
    stepsizes = [0.1, 0.2, {"uniform": [0.1, 0.2]}]
    swept = psofed.sweep(leaky, {"learner.leakage": [0.0, 0.5], "stepsize": stepsizes}, trials=2, store=tmp_path)
    assert len(swept.cells) == 6
    for changes in ({"learner": "rls"}, {"data.stream": "delay-line"}):
        word = next(iter(changes)).partition(".")[0]
        for ask in (predict, psofed.tune, psofed.compare):
            with pytest.raises(NotCoveredError, match=word):
                ask(with_values(BASE, changes)).to_json()


@pytest.mark.parametrize("kind", ["nlms", "rls"])
def test_they_follow_the_textbook(kind: str) -> None:
    """One client that shares nothing of use: its network MSE is that of the filter alone."""
    options = {"nlms": {"regularisation": 0.3}, "rls": {"forgetting": 0.95, "initial": 0.5}}[kind]
    learner = psofed.parts.registry.find_part("learner", kind)(**options)
    scenario = Scenario(num_clients=1, dimension=4, num_shared=4, stepsize=0.4, iterations=300, learner=learner)
    result = simulate(scenario, trials=1, seed=5, keep_trials=True)
    draws, target = draw_trial(scenario, 5, 0), draw_fleet(scenario).target
    w, matrix, errors = np.zeros(4), np.eye(4) / 0.5, []
    for x, noise in zip(draws.inputs[:, 0], draws.noise[:, 0], strict=True):
        e = target @ x + noise - w @ x
        errors.append(e**2)
        if kind == "nlms":
            w = w + 0.4 * e * x / (0.3 + x @ x)
        else:
            k = matrix @ x / (0.95 + x @ matrix @ x)
            w, matrix = w + k * e, (matrix - np.outer(k, x) @ matrix) / 0.95
    assert np.allclose(result.trial_curves["network_mse"][0], errors, rtol=1e-8)


def test_a_learner_whose_clients_keep_too_much_is_refused_by_name() -> None:
    scenario = Scenario(num_clients=100, dimension=2000, learner="rls", iterations=1)
    with pytest.raises(NotCoveredError, match=r'learner.kind = "rls" with 100 clients .* 400,200,000 values per trial'):
        simulate(scenario, trials=1)


def test_the_delay_line_is_stationary_from_the_start_and_shifts() -> None:
    data = Data(stream=psofed.streams.DelayLine(pole=0.7), input_variance=2.0)
    scenario = Scenario(num_clients=4000, dimension=3, num_participants=1, iterations=5, data=data)
    inputs = draw_trial(scenario, 1, 0).inputs
    assert np.array_equal(inputs[1:, :, 1:], inputs[:-1, :, :-1])
    covariance = 2.0 * 0.7 ** np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    for n in range(5):
        # Five standard errors: Var(x_i x_j) is at most 2 · 2².
        assert np.abs(inputs[n].T @ inputs[n] / 4000 - covariance).max() < 5 * (8 / 4000) ** 0.5
    assert np.allclose(draw_fleet(scenario).covariances()[0], covariance)


def test_uniform_stepsizes_belong_to_the_fleet() -> None:
    scenario = BASE.replace(stepsize=Uniform(0.1, 0.2))
    drawn = scenario.draw_stepsizes()
    assert ((drawn >= 0.1) & (drawn <= 0.2)).all()
    assert len(set(drawn)) == 6
    assert np.array_equal(scenario.replace(num_clients=9).draw_stepsizes()[:6], drawn)
    fleet = draw_fleet(scenario)
    assert np.array_equal(fleet.input_variance, draw_fleet(BASE).input_variance)
    shares = psofed.availabilities.Bernoulli(probability=Uniform(0.1, 0.2)).shares(6, 0)
    assert not np.allclose(shares, drawn)  # other draws than those of other settings


def test_the_federation_refuses_them_by_name() -> None:
    from psofed.federation.protocol.run_settings import RunSettings

    for changes, word in (
        ({"learner": "rls"}, "learner.kind"),
        ({"data.stream": "delay-line"}, "data.stream.kind"),
        ({"stepsize": [0.1] * 6}, "stepsize"),
    ):
        with pytest.raises(NotCoveredError, match=word):
            RunSettings(scenario=with_values(BASE, changes))
