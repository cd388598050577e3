"""Every attack, no exceptions: in the engine, against its literal form, and by its stated moments."""

from collections.abc import Callable

import numpy as np
import pytest

from psofed import Attack, Scenario, Selection, simulate
from psofed.common.options import option_of, value_type
from psofed.parts.affine import Affine
from psofed.parts.attacks import DataPoisoning, LabelPoisoning
from psofed.parts.contexts import Upload
from psofed.parts.registry import find_part, part_names
from reference.draws import draw_trial

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.takes(50)]

METRICS = ("network_mse", "server_msd", "test_mse")
ATTACKS = part_names("attack")
# CS-Fed sends signs and a length; with all of them flipped the server reads what was meant.
SAME_AS_HONEST = {("cs-fed", "sign-flip")}
SIZES = {"num_clients": 8, "dimension": 4, "num_participants": 5, "num_shared": 2, "iterations": 60}


def attacked(kind: str, *, coordinated: bool = True, **options: object) -> Scenario:
    attack = find_part("attack", kind)(**{"num_byzantine": 3, "probability": 0.5, **options})
    return Scenario(**SIZES, attack=attack, selection=Selection(coordinated=coordinated))


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
def test_the_engine_does_what_the_literal_form_says(as_literally: Callable, kind: str, byzantine_set: str) -> None:
    scenario = attacked(kind, coordinated=byzantine_set == "fixed", byzantine_set=byzantine_set)
    as_literally(scenario.replace(uplink="same" if byzantine_set == "fixed" else "redrawn"), 3, 3)


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("options", [{"probability": 0.0}, {"num_byzantine": 0, "byzantine_set": "redrawn"}])
def test_an_attack_that_never_happens_is_no_attack_bit_for_bit(kind: str, options: dict) -> None:
    scenario = attacked(kind, **options)
    never, none = (simulate(s, trials=4, keep_trials=True) for s in (scenario, scenario.replace(attack=None)))
    for metric in METRICS:
        assert np.array_equal(never.trial_curves[metric], none.trial_curves[metric])


@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_changes_something_and_keeps_the_model_finite(kind: str) -> None:
    scenario = attacked(kind, coordinated=False)
    result, none = (simulate(s, trials=4, keep_trials=True) for s in (scenario, scenario.replace(attack=None)))
    assert all(np.isfinite(result.trial_curves[metric]).all() for metric in METRICS)
    assert not np.array_equal(result.trial_curves["server_msd"], none.trial_curves["server_msd"])


def known(rng: np.random.Generator, **changes: float) -> tuple:
    """A random upload as the attack is shown it."""
    values = {
        "value": rng.normal(), "entry": int(rng.integers(4)), "client": 2, "iteration": int(rng.integers(9)),
        "normal": rng.normal(), "common_normal": rng.normal(), "server": rng.normal(),
        "accomplices": rng.normal(size=2), "honest": rng.normal(size=3), **changes,
    }  # fmt: skip
    return Upload(**values)


def affine_attacks(kind: str) -> list[Attack]:
    """The attack with its defaults, and with each of its options changed, where it states to be affine."""
    part = find_part("attack", kind)
    changes = [{}]
    for name, field in part.own_options().items():
        about = option_of(field)
        value = 3 if value_type(field)[0] == "int" else 0.3
        changes += [{name: choice} for choice in about.choices] or [{name: value}]
    attacks = [part(num_byzantine=4, probability=0.3, **change) for change in changes]
    return [attack for attack in attacks if isinstance(attack.affine(), Affine)]


AFFINE = [attack for kind in ATTACKS for attack in affine_attacks(kind)]


@pytest.mark.parametrize("attack", AFFINE, ids=repr)
def test_what_an_attack_states_to_theory_is_what_it_does(attack: Attack) -> None:
    """own · value + server · (the server's number) + offset + noise; what is not sent is the server's own number."""
    rng, stated = np.random.default_rng(0), attack.affine()
    for _ in range(50):
        upload = known(rng)
        sent, server = attack.corrupt(upload), getattr(upload, "server", 0.7)
        noise = stated.variance**0.5 * upload.normal + stated.common_variance**0.5 * upload.common_normal
        expected = stated.own * upload.value + stated.server * server + stated.offset + noise
        assert np.isclose(sent if np.isfinite(sent) else server, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
@pytest.mark.parametrize("attack", AFFINE, ids=repr)
def test_simulated_shocks_have_the_moments_that_follow_from_the_statement(attack: Attack, byzantine_set: str) -> None:
    """What is added to a clean number beside its own part: mean, square, and products between clients."""
    attack = attack.replace(byzantine_set=byzantine_set)
    shocks = draw_trial(Scenario(num_clients=6, dimension=4, iterations=6000, attack=attack), 2, 0).shocks
    stated, (byzantine, factor) = attack.affine(), attack.byzantine_moments(6)
    added = stated.offset + stated.variance**0.5 * shocks.normals
    added = shocks.attacking[:, :, None] * (added + stated.common_variance**0.5 * shocks.common_normals[:, None])
    chance = attack.probability * byzantine
    together = stated.offset**2 + stated.common_variance

    def agrees(samples: np.ndarray, expected: float) -> bool:
        # Samples of one iteration may depend on each other, those of different iterations do not.
        error = samples.std(ddof=1) / len(samples) ** 0.5
        return bool(abs(samples.mean() - expected) <= 4.5 * error)

    for k in range(6):
        assert agrees(shocks.attacking[:, k].astype(float), chance[k])
        assert agrees(added[:, k].mean(axis=1), chance[k] * stated.offset)
        assert agrees((added[:, k] ** 2).mean(axis=1), chance[k] * (together + stated.variance))
        for other in range(k):
            pair = factor * chance[k] * chance[other] * together
            assert agrees((added[:, k] * added[:, other]).mean(axis=1), pair)


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("algorithm", part_names("algorithm"))
def test_every_attack_works_on_every_algorithm(algorithm: str, kind: str) -> None:
    scenario = attacked(kind).replace(algorithm=algorithm)
    never = scenario.replace(attack=scenario.attack.replace(probability=0.0))
    result, idle, none = (simulate(s, trials=4) for s in (scenario, never, scenario.replace(attack=None)))
    assert np.array_equal(idle.steady_state["server_msd"], none.steady_state["server_msd"])
    assert np.isfinite(result.steady_state["server_msd"]).all()
    if (algorithm, kind) not in SAME_AS_HONEST:
        assert not np.array_equal(result.steady_state["server_msd"], none.steady_state["server_msd"])


def test_poisoned_data_reach_online_fed_as_they_reach_pso_fed() -> None:
    """With one client that always participates and shares all, both take the same steps."""
    for kind in (LabelPoisoning, DataPoisoning):
        attack = kind(num_byzantine=1, probability=0.5)
        scenario = Scenario(num_clients=1, dimension=3, num_participants=1, num_shared=3, iterations=50, attack=attack)
        pso_fed, online_fed = (
            simulate(scenario.replace(algorithm=name), trials=4, keep_trials=True) for name in ("pso-fed", "online-fed")
        )
        for metric in METRICS:
            assert np.allclose(pso_fed.trial_curves[metric], online_fed.trial_curves[metric], rtol=1e-9)
