"""What must hold for any scenario of any algorithm (Hypothesis)."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from psofed import Attack, Scenario, simulate
from psofed.parts.registry import load_part, part_names
from psofed.results.traffic import measure_communication

OPTIONS = {
    "pso-fed": st.just({}),
    "online-fed": st.fixed_dictionaries(
        {"budget": st.sampled_from(["fewer-exchanges", "fewer-participants"])}
    ),
    "signsgd": st.fixed_dictionaries(
        {
            "signs": st.sampled_from(["stochastic", "deterministic"]),
            "bound": st.floats(0.1, 10),
            "vote": st.sampled_from(["majority", "mean", "sum"]),
        }
    ),
    "cs-fed": st.fixed_dictionaries(
        {
            "measurements": st.integers(2, 9),
            "decoding_steps": st.integers(1, 4),
            "joint": st.booleans(),
            "magnitude": st.booleans(),
        }
    ),
    "qs-fed": st.fixed_dictionaries(
        {"rows": st.integers(1, 5), "columns": st.integers(1, 5), "top": st.integers(1, 7)}
    )
    | st.fixed_dictionaries(
        {
            "columns": st.integers(1, 5),
            "top": st.integers(1, 7),
            "hashes": st.just("fixed"),
            "momentum": st.floats(0, 0.99),
            "error_feedback": st.booleans(),
        }
    ),
}


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    clients, dimension = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    algorithm = draw(st.sampled_from(part_names("algorithms")))
    attack = st.builds(Attack, num_byzantine=st.integers(0, clients), probability=st.floats(0, 1))
    return Scenario(
        num_clients=clients,
        dimension=dimension,
        num_participants=draw(st.integers(1, clients)),
        num_shared=draw(st.integers(1, dimension)),
        stepsize=draw(st.floats(0.01, 0.1)),
        iterations=draw(st.integers(1, 25)),
        attack=draw(st.none() | attack),
        algorithm=algorithm,
        algorithm_options=draw(OPTIONS.get(algorithm, st.just({}))),
    )


@given(scenarios())
def test_any_scenario_of_any_algorithm_survives_toml_and_back(scenario: Scenario) -> None:
    assert Scenario.from_toml(scenario.to_toml()) == scenario
    assert Scenario.from_mapping(scenario.to_mapping()) == scenario


@given(scenarios())
def test_no_algorithm_ever_sends_more_than_pso_fed(scenario: Scenario) -> None:
    sent = measure_communication(scenario).to_json()
    budget = measure_communication(scenario.replace(algorithm="pso-fed", algorithm_options=None)).to_json()
    for row in ("per_iteration", "total"):
        for key, value in sent[row].items():
            assert 0 <= value <= budget[row][key]


@settings(max_examples=40, deadline=None)
@given(scenarios())
def test_any_scenario_of_any_algorithm_equals_its_reference(scenario: Scenario) -> None:
    # On a line, measurements that were joined can cancel but for rounding, and the sign of that is chance.
    assume(not (getattr(scenario.algorithm_options, "joint", False) and scenario.dimension == 1))
    reference = load_part("algorithms", scenario.algorithm).reference(scenario, 3, 0)
    result = simulate(scenario, trials=1, seed=3, threads=1, keep_trials=True)
    for metric in ("network_mse", "server_msd", "test_mse"):
        curve = result.trial_curves[metric][0]
        assert np.allclose(curve, getattr(reference, metric), rtol=1e-9, atol=1e-15)
