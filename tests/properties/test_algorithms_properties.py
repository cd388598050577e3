"""What must hold for any scenario of any algorithm (Hypothesis)."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psofed import Algorithm, InvalidValueError, Scenario
from psofed.common.options import option_of, value_type
from psofed.parts.attacks import Gaussian
from psofed.parts.registry import find_part, part_names
from psofed.results.traffic import measure_communication
from reference.literal import run_trial

sys.path.insert(0, str(Path(__file__).parents[1] / "exactness"))
from few_trials import TRIALS, advance

pytestmark = [pytest.mark.parts, pytest.mark.engine]

# Where the range of an option is open or too wide to be quick.
SIZES = {"measurements": st.integers(2, 9), "decoding_steps": st.integers(1, 4), "top": st.integers(1, 7)}
RANGES = {"int": st.integers(1, 5), "bool": st.booleans(), "float": st.floats(0.1, 0.99)}


def algorithms(kind: str) -> st.SearchStrategy[Algorithm]:
    """Any value of every option of an algorithm; what it refuses is drawn again."""
    part, options = find_part("algorithm", kind), {}
    for name, field in part.options().items():
        any_value = st.sampled_from(option_of(field).choices or (field.default,))
        any_value = any_value if option_of(field).choices else RANGES[value_type(field)[0]]
        options[name] = st.just(field.default) | SIZES.get(name, any_value)

    def make(values: dict) -> Algorithm | None:
        try:
            return part(**values)
        except InvalidValueError:
            return None

    return st.fixed_dictionaries(options).map(make).filter(lambda made: made is not None)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    clients, dimension = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    attack = st.builds(Gaussian, num_byzantine=st.integers(0, clients), probability=st.floats(0, 1))
    return Scenario(
        num_clients=clients,
        dimension=dimension,
        num_participants=draw(st.integers(1, clients)),
        num_shared=draw(st.integers(1, dimension)),
        stepsize=draw(st.floats(0.01, 0.1)),
        iterations=draw(st.integers(1, 25)),
        attack=draw(st.none() | attack),
        algorithm=draw(st.sampled_from(part_names("algorithm")).flatmap(algorithms)),
    )


@given(scenarios())
def test_any_scenario_of_any_algorithm_survives_toml_and_back(scenario: Scenario) -> None:
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    assert Scenario.from_mapping(scenario.to_mapping()) == scenario


@given(scenarios())
def test_no_algorithm_ever_sends_more_than_pso_fed(scenario: Scenario) -> None:
    sent = measure_communication(scenario).to_json()
    budget = measure_communication(scenario.replace(algorithm="pso-fed")).to_json()
    for row in ("per_iteration", "total"):
        for key, value in sent[row].items():
            assert 0 <= value <= budget[row][key]


@settings(max_examples=40, deadline=None)
@given(scenarios())
def test_any_scenario_of_any_algorithm_equals_its_reference(scenario: Scenario) -> None:
    """As plain Python: compiled, every algorithm is compared in tests/exactness/test_algorithms_equal_references.py."""
    found, _ = advance(scenario, 3, scenario.iterations)
    reference = run_trial(scenario, 3, TRIALS - 1)
    for q, metric in enumerate(("network_mse", "server_msd", "test_mse")):
        assert np.allclose(found[:, q, -1], getattr(reference, metric), rtol=1e-9, atol=1e-15)
