"""Every attack, no exceptions: in the engine, against its literal form, and by its stated moments."""

import numpy as np
import pytest

from psofed import Attack, NotCoveredError, Scenario, Selection, simulate
from psofed.parts.options import declared_options
from psofed.parts.registry import load_part, part_names
from psofed.reference.draws import draw_trial
from psofed.reference.literal import run_literally

METRICS = ("network_mse", "server_msd", "test_mse")
ATTACKS = part_names("attacks")
# CS-Fed sends signs and a length; with all of them flipped the server reads what was meant.
SAME_AS_HONEST = {("cs-fed", "sign-flip")}
SIZES = {"num_clients": 8, "dimension": 4, "num_participants": 5, "num_shared": 2, "iterations": 60}


def attacked(kind: str, *, coordinated: bool = True, **options: object) -> Scenario:
    attack = Attack(**{"num_byzantine": 3, "kind": kind, "probability": 0.5, **options})
    return Scenario(**SIZES, attack=attack, selection=Selection(coordinated=coordinated))


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
def test_the_engine_does_what_the_literal_form_says(kind: str, byzantine_set: str) -> None:
    scenario = attacked(kind, coordinated=byzantine_set == "fixed", byzantine_set=byzantine_set)
    scenario = scenario.replace(uplink="same" if byzantine_set == "fixed" else "redrawn")
    result = simulate(scenario, trials=4, seed=3, keep_trials=True)
    literal = run_literally(scenario, seed=3, trial=2)
    for metric in METRICS:
        assert np.allclose(result.trial_curves[metric][2], getattr(literal, metric), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_that_never_happens_is_no_attack_bit_for_bit(kind: str) -> None:
    scenario = attacked(kind, probability=0.0)
    never, none = (simulate(s, trials=4, keep_trials=True) for s in (scenario, scenario.replace(attack=None)))
    for metric in METRICS:
        assert np.array_equal(never.trial_curves[metric], none.trial_curves[metric])


@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_by_nobody_is_no_attack_bit_for_bit(kind: str) -> None:
    scenario = attacked(kind, num_byzantine=0, byzantine_set="redrawn")
    nobody, none = (simulate(s, trials=4) for s in (scenario, scenario.replace(attack=None)))
    assert np.array_equal(nobody.steady_state["server_msd"], none.steady_state["server_msd"])


@pytest.mark.parametrize("kind", ATTACKS)
def test_an_attack_changes_something_and_keeps_the_model_finite(kind: str) -> None:
    scenario = attacked(kind, coordinated=False)
    result, none = (
        simulate(s, trials=4, keep_trials=True) for s in (scenario, scenario.replace(attack=None))
    )
    assert all(np.isfinite(result.trial_curves[metric]).all() for metric in METRICS)
    assert not np.array_equal(result.trial_curves["server_msd"], none.trial_curves["server_msd"])


@pytest.mark.parametrize("kind", ATTACKS)
def test_bits_do_not_depend_on_threads_or_on_the_other_trials(kind: str) -> None:
    scenario = attacked(kind, byzantine_set="redrawn", coordinated=False)
    one, many = (simulate(scenario, trials=18, threads=threads) for threads in (1, 3))
    alone = simulate(scenario, trials=1)
    for metric in METRICS:
        assert np.array_equal(one.steady_state[metric], many.steady_state[metric])
        assert one.steady_state[metric][0] == alone.steady_state[metric][0]


@pytest.mark.parametrize("kind", ATTACKS)
def test_every_attack_survives_toml_and_back(kind: str) -> None:
    scenario = attacked(kind, byzantine_set="redrawn")
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    mapping = scenario.to_mapping()["attack"]
    assert set(mapping) == {
        "kind",
        "num_byzantine",
        "probability",
        "byzantine_set",
        *declared_options("attacks", kind),
    }


@pytest.mark.parametrize("kind", ATTACKS)
def test_every_attack_declares_options_that_its_file_means(kind: str) -> None:
    part = load_part("attacks", kind)
    assert dict.fromkeys(getattr(part, "OPTIONS", {})) == dict.fromkeys(declared_options("attacks", kind))
    assert hasattr(part, "attack") == hasattr(part, "corrupt")
    assert hasattr(part, "poison") == hasattr(part, "poison_sample")
    assert hasattr(part, "attack") != hasattr(part, "poison")


@pytest.mark.parametrize("byzantine_set", ["fixed", "redrawn"])
@pytest.mark.parametrize(
    "kind", [k for k in ATTACKS if hasattr(load_part("attacks", k), "perturbation_moments")]
)
def test_draws_have_the_moments_that_are_stated_to_the_theory(kind: str, byzantine_set: str) -> None:
    attack = Attack(num_byzantine=4, kind=kind, probability=0.3, byzantine_set=byzantine_set)
    scenario = Scenario(num_clients=6, dimension=4, iterations=6000, attack=attack)
    drawn = draw_trial(scenario, 2, 0).perturbations
    moments = load_part("attacks", kind).perturbation_moments(attack, 6)

    def agrees(samples: np.ndarray, expected: float) -> bool:
        # Samples of one iteration may depend on each other, those of different iterations do not.
        error = samples.std(ddof=1) / len(samples) ** 0.5
        return bool(abs(samples.mean() - expected) <= 4.5 * error)

    for k in range(6):
        assert agrees(drawn[:, k].mean(axis=1), moments.mean[k])
        assert agrees((drawn[:, k] ** 2).mean(axis=1), moments.second[k])
        for other in range(k):
            pair = moments.common[k] * moments.common[other]
            assert agrees((drawn[:, k] * drawn[:, other]).mean(axis=1), pair)


@pytest.mark.parametrize("kind", ATTACKS)
@pytest.mark.parametrize("algorithm", part_names("algorithms"))
def test_every_attack_works_on_every_algorithm(algorithm: str, kind: str) -> None:
    scenario = attacked(kind).replace(algorithm=algorithm)
    never = scenario.replace(attack=Attack(num_byzantine=3, kind=kind, probability=0.0))
    result, idle, none = (simulate(s, trials=4) for s in (scenario, never, scenario.replace(attack=None)))
    assert np.array_equal(idle.steady_state["server_msd"], none.steady_state["server_msd"])
    assert np.isfinite(result.steady_state["server_msd"]).all()
    if (algorithm, kind) not in SAME_AS_HONEST:
        assert not np.array_equal(result.steady_state["server_msd"], none.steady_state["server_msd"])


def test_poisoned_data_reach_online_fed_as_they_reach_pso_fed() -> None:
    """With one client that always participates and shares all, both take the same steps."""
    for kind in ("label-poisoning", "data-poisoning"):
        attack = Attack(num_byzantine=1, kind=kind, probability=0.5)
        scenario = Scenario(
            num_clients=1, dimension=3, num_participants=1, num_shared=3, iterations=50, attack=attack
        )
        pso_fed, online_fed = (
            simulate(scenario.replace(algorithm=name), trials=4, keep_trials=True)
            for name in ("pso-fed", "online-fed")
        )
        for metric in METRICS:
            assert np.allclose(pso_fed.trial_curves[metric], online_fed.trial_curves[metric], rtol=1e-9)


def test_an_algorithm_that_does_not_poison_data_refuses_by_name() -> None:
    from psofed.engine.server_side import make_server_side
    from psofed.engine.streams import make_stream

    with pytest.raises(NotCoveredError, match="label-poisoning"):
        make_server_side(attacked("label-poisoning"), make_stream(0, "attack", [0]))
