"""Who is Byzantine, by number or by name: in the engine, in results and files, in theory, and what is refused."""

import contextlib

import numpy as np
import pytest

import psofed
from psofed import Data, InvalidValueError, NotCoveredError, Scenario, load_result, predict, read_data, simulate
from psofed.parts.attacks import Gaussian, LabelPoisoning, Mimic, SignFlip
from psofed.parts.registry import find_part, part_names
from psofed.scenario.changes import with_values
from reference.literal import run_trial

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.theory]

METRICS = ("network_mse", "server_msd", "test_mse")
BASE = Scenario(num_clients=8, dimension=3, num_participants=4, num_shared=2, iterations=30)
NAMED = [kind(clients=[3, 7], probability=0.6) for kind in (Gaussian, SignFlip, Mimic, LabelPoisoning)]


def test_naming_clients_says_how_many_there_are() -> None:
    attack = Gaussian(clients=[3, 7])
    assert attack.num_byzantine == 2
    assert attack.clients == (3, 7)
    assert BASE.replace(attack=attack).num_byzantine == 2
    assert attack.byzantine_mask(8).tolist() == [False] * 3 + [True] + [False] * 3 + [True]
    chances, factor = attack.byzantine_moments(8)
    assert chances.tolist() == [0, 0, 0, 1, 0, 0, 0, 1]
    assert factor == 1.0
    assert attack == Gaussian(clients=(3, 7), num_byzantine=2)


@pytest.mark.parametrize("attack", NAMED, ids=lambda attack: attack.kind)
def test_the_engine_attacks_with_named_clients_as_the_literal_form_does(attack: psofed.Attack) -> None:
    scenario = BASE.replace(attack=attack)
    result = simulate(scenario, trials=4, seed=2, keep_trials=True)
    literal = run_trial(scenario, 2, 3)
    for metric in METRICS:
        assert np.allclose(result.trial_curves[metric][3], getattr(literal, metric), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("algorithm", ["pso-fed", "online-fed"])
def test_naming_the_first_is_the_same_as_counting_them(algorithm: str) -> None:
    scenario = BASE.replace(algorithm=algorithm)
    named, counted = (
        simulate(scenario.replace(attack=attack), trials=4)
        for attack in (Gaussian(clients=[2, 0, 1]), Gaussian(num_byzantine=3))
    )
    for metric in METRICS:
        assert np.array_equal(named.steady_state[metric], counted.steady_state[metric])


def test_theory_gives_named_clients_what_renumbering_the_fleet_would() -> None:
    """For every attack that it knows; who attacks matters to those that depend on the attacker's own model."""
    order = [3, 7, 0, 1, 2, 4, 5, 6]
    inputs, noise = np.linspace(0.3, 1.2, 8), np.linspace(0.005, 0.02, 8)
    fleet = BASE.replace(data=Data(input_variance=inputs, noise_variance=noise))
    renumbered = BASE.replace(data=Data(input_variance=inputs[order], noise_variance=noise[order]))
    known = []
    for kind in part_names("attack"):
        part = find_part("attack", kind)
        with contextlib.suppress(NotCoveredError):
            one = predict(fleet.replace(attack=part(clients=[3, 7])))
            other = predict(renumbered.replace(attack=part(num_byzantine=2)))
            assert one.network_mse == pytest.approx(other.network_mse, rel=1e-8)
            assert one.server_msd == pytest.approx(other.server_msd, rel=1e-8)
            known.append(kind)
    assert "gaussian" in known


def test_the_result_and_its_file_say_who_was_byzantine(tmp_path) -> None:
    scenario = BASE.replace(attack=Gaussian(clients=[3, 7]))
    result = simulate(scenario, trials=2)
    expected = [k in (3, 7) for k in range(8)]
    assert result.to_dataset()["is_byzantine"].values.tolist() == expected
    assert result.to_json()["scenario"]["attack"]["clients"] == [3, 7]
    result.save(tmp_path / "result.nc")
    loaded = load_result(tmp_path / "result.nc")
    assert loaded.scenario == scenario
    assert loaded.to_dataset()["is_byzantine"].values.tolist() == expected


def test_clients_survive_toml_and_replace_a_count_and_are_replaced_by_one() -> None:
    scenario = BASE.replace(attack=Gaussian(clients=[3, 7], variance=2.0))
    assert "clients = [3, 7]" in scenario.to_toml()
    assert "num_byzantine" not in scenario.to_toml()
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    counted = with_values(scenario, {"attack.num_byzantine": 4})
    assert counted.attack == Gaussian(num_byzantine=4, variance=2.0)
    assert with_values(counted, {"attack.clients": [3, 7]}) == scenario
    assert with_values(scenario, {"attack.kind": "mimic"}).attack == Mimic(clients=[3, 7])


def test_names_are_refused_where_clients_have_none() -> None:
    scenario = BASE.replace(attack=Gaussian(clients=["north"]))
    with pytest.raises(InvalidValueError, match=r"attack.clients must be .*have no names"):
        simulate(scenario, trials=1)
    with pytest.raises(InvalidValueError, match=r"attack.clients must be .*have no names"):
        predict(scenario)


@pytest.fixture
def stations(tmp_path):
    rng = np.random.default_rng(1)
    lines = ["station,x1,x2,y"]
    for _ in range(60):
        for name in ("north", "east", "south"):
            u, v, e = rng.standard_normal(3)
            lines.append(f"{name},{u:.6f},{v:.6f},{2 * u - v + 0.1 * e:.6f}")
    path = tmp_path / "stations.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_data(path, "station", "y")


def attacked(stations, clients: list) -> Scenario:
    attack = Gaussian(clients=clients, probability=0.5, variance=0.1)
    return Scenario.from_data(stations, num_participants=2, attack=attack)


def test_names_stand_for_the_clients_of_own_data(stations) -> None:
    named, numbered = (simulate(attacked(stations, clients), trials=4) for clients in (["south", "north"], [2, 0]))
    for metric in METRICS:
        assert np.array_equal(named.steady_state[metric], numbered.steady_state[metric])
    assert named.to_dataset()["is_byzantine"].values.tolist() == [True, False, True]
    assert Scenario.from_toml(named.scenario.to_toml()) == named.scenario
    assert 'clients = ["south", "north"]' in named.scenario.to_toml()


def test_a_name_that_there_is_not_is_refused_with_those_there_are(stations) -> None:
    with pytest.raises(InvalidValueError, match=r"attack.clients must be .*one of north, east, south"):
        attacked(stations, ["west"])
