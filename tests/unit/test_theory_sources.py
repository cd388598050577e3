"""What each source adds to the errors: levels of steady states and of curves' ends."""

import math
from dataclasses import replace

import pytest

from psofed import Scenario, Selection, predict
from psofed.parts.attacks import ConstantBias, Gaussian, SignFlip
from psofed.parts.drifts import RandomWalk
from psofed.scenario import Data

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


SELECTIONS = {
    f"{pattern}, {mask}": Selection(pattern=pattern, coordinated=mask == "one mask")
    for pattern in ("random", "round-robin")
    for mask in ("one mask", "a mask each")
}


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("what", CHANGES)
def test_a_curve_ends_at_the_sum_of_what_the_sources_add(what: str, selection: str) -> None:
    few = {"num_clients": 3, "num_participants": 2} if selection == "round-robin, a mask each" else {}
    prediction = predict(BASE.replace(selection=SELECTIONS[selection], **few, **CHANGES[what]))
    curve, state, terms = prediction.learning_curve(400), prediction.steady_state, prediction.terms
    parts = (state.data, state.attack, state.drift, state.targets)
    # Windows of two of three entries come round every third iteration.
    ends = {name: getattr(curve, name)[-3:].mean() for name in ("network_mse", "server_msd", "test_mse")}
    assert {name: float(getattr(prediction, name)) for name in ends} == pytest.approx(ends, rel=1e-6)
    assert sum(part.server for part in parts) == pytest.approx(ends["server_msd"], rel=1e-6)
    assert sum(part.excess for part in parts) == pytest.approx(ends["network_mse"] - terms.noise, rel=1e-6)
    assert (terms.data, terms.attack) == (state.data.excess, state.attack.excess)
    zero = {"attack": "attack" not in what and what != "bias", "drift": what != "walk", "targets": what != "targets"}
    assert {name: getattr(state, name).server == 0.0 for name in zero} == zero


def test_an_attack_that_never_happens_is_none_where_every_client_has_windows_of_its_own() -> None:
    selection = Selection(pattern="round-robin", coordinated=False)
    none = BASE.replace(num_clients=3, num_participants=2, selection=selection)
    idle = predict(none.replace(attack=replace(ATTACK, probability=0.0)))
    assert idle.network_mse == predict(none).network_mse
    assert idle.terms.attack == 0.0


def test_what_a_source_adds_is_in_proportion_to_its_variance() -> None:
    small, large = (
        predict(BASE.replace(attack=replace(ATTACK, variance=v), drift=RandomWalk(variance=v / 10))) for v in (0.1, 0.4)
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
