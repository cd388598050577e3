"""What each source adds to the errors: levels of steady states, of curves' ends, and of a server that recovers."""

import math
from dataclasses import replace

import numpy as np
import pytest

from psofed import NotCoveredError, Scenario, Selection, predict
from psofed.fleet import draw_fleet
from psofed.parts.attacks import ConstantBias, DropOut, Gaussian, SignFlip
from psofed.parts.drifts import RandomWalk
from psofed.scenario import Data
from psofed.theory.moments.level import Level
from psofed.theory.recovery import Recovery, predict_recovery

pytestmark = pytest.mark.theory

BASE = Scenario(num_clients=5, dimension=3, num_participants=3, num_shared=2, stepsize=0.2)
ATTACK = Gaussian(num_byzantine=2, probability=0.5)
CHANGES = {
    "nothing": {},
    "attack": {"attack": ATTACK},
    "walk": {"drift": RandomWalk(variance=0.01)},
    "targets": {"data": Data(target_spread=0.3)},
    "bias": {"attack": ConstantBias(num_byzantine=2)},
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_curve_ends_at_the_sum_of_what_the_sources_add(what: str) -> None:
    prediction = predict(BASE.replace(**CHANGES[what]))
    curve, state, terms = prediction.learning_curve(400), prediction.steady_state, prediction.terms
    parts = (state.data, state.attack, state.drift, state.targets)
    assert sum(part.server for part in parts) == pytest.approx(curve.server_msd[-1], rel=1e-6)
    assert sum(part.excess for part in parts) == pytest.approx(
        curve.network_mse[-1] - prediction.terms.noise, rel=1e-6
    )
    assert (terms.data, terms.attack) == (state.data.excess, state.attack.excess)
    zero = {
        "attack": "attack" not in what and what != "bias",
        "drift": what != "walk",
        "targets": what != "targets",
    }
    assert {name: getattr(state, name).server == 0.0 for name in zero} == zero


@pytest.mark.parametrize("what", CHANGES)
def test_it_does_so_where_every_client_has_windows_of_its_own(what: str) -> None:
    selection = Selection(pattern="round-robin", coordinated=False)
    scenario = BASE.replace(num_clients=3, num_participants=2, selection=selection, **CHANGES[what])
    prediction = predict(scenario)
    curve = prediction.learning_curve(400)
    # Windows of two of three entries come round every third iteration.
    assert prediction.server_msd == pytest.approx(curve.server_msd[-3:].mean(), rel=1e-6)
    assert prediction.network_mse == pytest.approx(curve.network_mse[-3:].mean(), rel=1e-6)


def test_an_attack_that_never_happens_is_none_where_every_client_has_windows_of_its_own() -> None:
    selection = Selection(pattern="round-robin", coordinated=False)
    none = BASE.replace(num_clients=3, num_participants=2, selection=selection)
    idle = predict(none.replace(attack=replace(ATTACK, probability=0.0)))
    assert idle.network_mse == predict(none).network_mse
    assert idle.terms.attack == 0.0


def test_what_a_source_adds_is_in_proportion_to_its_variance() -> None:
    small, large = (
        predict(BASE.replace(attack=replace(ATTACK, variance=v), drift=RandomWalk(variance=v / 10)))
        for v in (0.1, 0.4)
    )
    for name in ("attack", "drift"):
        one, four = (getattr(p.steady_state, name) for p in (small, large))
        assert (four.excess, four.server) == pytest.approx((4 * one.excess, 4 * one.server), rel=1e-9)
    assert large.steady_state.data.server == pytest.approx(small.steady_state.data.server, rel=1e-9)


@pytest.mark.parametrize("what", ["nothing", "attack", "walk", "targets"])
def test_without_a_steady_state_what_is_there_is_endless_and_what_is_not_is_nothing(what: str) -> None:
    prediction = predict(BASE.replace(stepsize=1.9, **CHANGES[what]))
    assert not prediction.is_stable
    levels = {name: getattr(prediction.steady_state, name) for name in ("data", "attack", "drift", "targets")}
    endless = {"nothing": {"data"}, "attack": {"data", "attack"}, "walk": {"data", "drift"}}
    for name, level in levels.items():
        expected = math.inf if name in endless.get(what, {"data", "targets"}) else 0.0
        assert (level.excess, level.server) == (expected, expected), name


def test_an_attack_that_alone_leads_away_leaves_the_other_sources_their_levels() -> None:
    attacked = predict(BASE.replace(attack=SignFlip(num_byzantine=5, probability=1.0, scale=9.0)))
    clean = predict(BASE).steady_state
    assert not attacked.is_stable
    assert attacked.steady_state.attack.server == math.inf
    assert attacked.steady_state.data.server == pytest.approx(clean.data.server, rel=1e-9)


def test_recovery_leads_from_the_poisoned_level_to_that_of_the_others() -> None:
    scenario = BASE.replace(attack=ATTACK)
    found = predict_recovery(scenario, iterations=300)
    poisoned = predict(scenario)
    left = predict(BASE.replace(attack=DropOut(clients=(0, 1), probability=1.0)))
    assert found.poisoned.server == pytest.approx(poisoned.server_msd, rel=1e-9)
    assert found.poisoned.excess + found.noise == pytest.approx(poisoned.network_mse, rel=1e-9)
    assert found.noise == pytest.approx(draw_fleet(scenario).noise_variance.mean())
    assert found.server_msd[[0, -1]] == pytest.approx([poisoned.server_msd, left.server_msd], rel=1e-6)
    assert found.recovered.server == pytest.approx(left.server_msd, rel=1e-9)
    assert found.recovered.excess + found.noise == pytest.approx(left.network_mse, rel=1e-9)
    assert found.rate == pytest.approx(left.spectral_radius, rel=1e-6)
    assert (np.diff(found.server_msd[:50]) < 0).all()


def test_a_curve_has_recovered_when_it_stays_within_so_many_decibels() -> None:
    errors = np.array([9.0, 1.2, 2.0, 1.25, 1.3, 1.1])
    found = Recovery(errors + 1.0, errors, Level(9.0, 9.0), Level(1.0, 1.0), 1.0, 0.5)
    assert found.iterations(1.0, "server_msd") == 5  # 1 dB is a factor of 1.2589
    assert found.iterations(3.0, "server_msd") == 3
    assert found.iterations(0.4, "server_msd") == math.inf
    assert found.iterations(1.0) == 3  # with the noise, the end is at 2
    assert found.iterations(7.0) == 0


@pytest.mark.parametrize("at", [0, 1, 7])
def test_recovery_begins_with_the_curve_until_then(at: int) -> None:
    scenario = BASE.replace(attack=ATTACK)
    curve = predict(scenario).learning_curve(at + 1)
    found = predict_recovery(scenario, at=at, iterations=1)
    assert found.server_msd[0] == pytest.approx(curve.server_msd[at], rel=1e-9)
    assert found.network_mse[0] == pytest.approx(curve.network_mse[at], rel=1e-9)


@pytest.mark.parametrize(("scale", "stable"), [(2.0, True), (3.0, False), (5.0, False)])
def test_there_is_no_recovery_from_where_an_attack_leads_without_limit(scale: float, stable: bool) -> None:
    scenario = BASE.replace(attack=SignFlip(num_byzantine=2, probability=0.5, scale=scale, of="update"))
    assert (predict(scenario).spectral_radius < 1.0) == stable
    if stable:
        assert predict_recovery(scenario, iterations=1).poisoned.server < math.inf
        return
    with pytest.raises(NotCoveredError, match="diverge"):
        predict_recovery(scenario)
    assert predict_recovery(scenario, at=3, iterations=1).poisoned.server < math.inf
