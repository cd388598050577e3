"""Every attack with every aggregation rule, in every package: TOML, simulation, files, reference, sweep, theory."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import psofed
from psofed import NotCoveredError, Scenario, load_result, predict, simulate
from psofed.common.equality import same_values
from psofed.parts.registry import find_part, part_names
from psofed.studies.sweeps import execute

pytestmark = [
    pytest.mark.parts,
    pytest.mark.engine,
    pytest.mark.scenario,
    pytest.mark.simulation,
    pytest.mark.studies,
    pytest.mark.theory,
    pytest.mark.takes(28),
]

METRICS = ("network_mse", "server_msd", "test_mse")
ATTACKS, RULES = part_names("attack"), part_names("aggregation")
BASE = Scenario(num_clients=6, dimension=3, num_participants=4, num_shared=2, iterations=8)
TRIALS, SEED = 2, 7


def scenario_of(attack: str, rule: str) -> Scenario:
    made = find_part("attack", attack)(num_byzantine=2, probability=0.7)
    return BASE.replace(attack=made, aggregation=find_part("aggregation", rule)())


def over(pairs: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "scenario", [scenario_of(*pair) for pair in pairs],
        ids=lambda scenario: f"{scenario.attack.kind}-{scenario.aggregation.kind}",
    )  # fmt: skip


EVERY = [(attack, rule) for attack in ATTACKS for rule in RULES]
# Every attack with a third of the rules and every rule with a third of the attacks, no two attacks with the same third
# of the rules: for rooms where the two have nothing to do with each other.
A_THIRD = [pair for pair in EVERY if (ATTACKS.index(pair[0]) + RULES.index(pair[1])) % 3 == 0]
every_pair, some_pairs = over(EVERY), over(A_THIRD)
# Theory knows the mean alone, and refuses all other rules whatever the attack.
pairs_for_theory = over([pair for pair in EVERY if pair[1] == "mean" or pair in A_THIRD])


@pytest.mark.thinned(4)
@some_pairs
def test_a_pair_goes_from_a_file_through_simulation_into_a_file_and_back(tmp_path: Path, scenario: Scenario) -> None:
    (tmp_path / "scenario.toml").write_text(scenario.to_toml(), encoding="utf-8")
    read = psofed.read_scenario(tmp_path / "scenario.toml")
    assert read == scenario
    result = simulate(read, trials=TRIALS, seed=SEED, keep_trials=True)
    said = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert Scenario.from_mapping(said["scenario"]) == scenario
    result.save(tmp_path / "result.nc")
    loaded = load_result(tmp_path / "result.nc")
    assert loaded.scenario == scenario
    assert loaded.to_json() == result.to_json()
    for metric in METRICS:
        assert np.array_equal(loaded.trial_curves[metric], result.trial_curves[metric])


@every_pair
def test_a_pair_does_in_the_engine_what_it_does_literally(as_literally: Callable, scenario: Scenario) -> None:
    assert as_literally(scenario, TRIALS, SEED, *range(TRIALS)).notes == ()


@pairs_for_theory
def test_a_pair_is_predicted_or_refused_by_name(scenario: Scenario) -> None:
    refusal = ""
    try:
        prediction = predict(scenario)
    except NotCoveredError as error:
        refusal = str(error)
    else:
        json.dumps(prediction.to_json(), allow_nan=False)
        assert prediction.terms.attack >= 0.0
    if scenario.attack.affine() is None or scenario.aggregation.kind != "mean":
        assert refusal, "theory knows affine attacks and the mean alone"
    assert not refusal or scenario.attack.kind in refusal or scenario.aggregation.kind in refusal


def test_all_pairs_are_swept_kept_and_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []

    def watched(cell, progress=None):
        computed.append(cell)
        return compute(cell, progress)

    compute = execute.compute_cell
    monkeypatch.setattr(execute, "compute_cell", watched)
    grid = {
        "attack": [scenario_of(attack, "mean").attack for attack in ATTACKS],
        "aggregation": [find_part("aggregation", rule)() for rule in RULES],
    }
    first, second = (psofed.sweep(BASE, grid, trials=TRIALS, seed=SEED, tail=1, store=tmp_path) for _ in range(2))
    assert len(computed) == len(ATTACKS) * len(RULES)
    assert same_values(first.cells, second.cells)
    data = second.to_dataset()
    assert data["attack"].values.tolist() == list(ATTACKS)
    assert data["aggregation"].values.tolist() == list(RULES)
    for attack, rule in A_THIRD:
        direct = simulate(scenario_of(attack, rule), trials=TRIALS, seed=SEED, tail=1)
        found = data["server_msd"].sel(attack=attack, aggregation=rule).values
        assert np.array_equal(found, direct.steady_state["server_msd"])


@pytest.mark.parametrize("kind", ATTACKS)
def test_the_strength_of_every_attack_can_be_set_and_swept(kind: str) -> None:
    from psofed.scenario.changes import with_values

    scenario, part = scenario_of(kind, "mean"), find_part("attack", kind)
    changed = with_values(scenario, {"attack.strength": 0.25})
    assert changed.attack.strength == 0.25
    assert changed.attack == scenario.attack.replace(**{part.strength_field(): 0.25})
    assert with_values(BASE, {"attack.kind": kind, "attack.clients": [1], "attack.strength": 0.25}).attack == part(
        clients=[1], **{part.strength_field(): 0.25}
    )
    mapping = scenario.to_mapping()
    mapping["attack"] |= {"strength": 0.5}
    with pytest.raises(psofed.InvalidValueError, match=f"attack.strength .*{part.strength_field()}.*{kind}"):
        Scenario.from_mapping(mapping)
    result = psofed.sweep(scenario, {"attack.strength": [0.1, 0.9]}, trials=1)
    assert [s.attack.strength for s in result.grid.scenarios()] == [0.1, 0.9]
    weak, strong = result.cells
    levels = [cell.steady_state["server_msd"][0] for cell in (weak, strong)]
    assert levels[0] != levels[1]
