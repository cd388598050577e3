"""Every algorithm, no exceptions: same bits anywhere, paired draws, the budget, divergence, options."""

import subprocess
import sys

import numpy as np
import pytest

from psofed import InvalidValueError, Scenario, UnknownFieldError, simulate
from psofed.engine.run import Run
from psofed.fleet import draw_fleet
from psofed.parts.attacks import Gaussian
from psofed.parts.registry import find_part, part_names
from psofed.results.traffic import measure_communication

pytestmark = [pytest.mark.parts, pytest.mark.engine, pytest.mark.simulation, pytest.mark.takes(50)]

ALGORITHMS = part_names("algorithm")
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


@every_algorithm
def test_a_trial_has_the_same_bits_on_any_thread_and_in_any_block(small_scenario: Scenario, algorithm: str) -> None:
    scenario = small_scenario.replace(algorithm=algorithm)
    many = simulate(scenario, trials=23, seed=6, threads=1, keep_trials=True)
    for few, threads in ((1, 1), (3, 2), (23, 3)):
        other = simulate(scenario, trials=few, seed=6, threads=threads, keep_trials=True)
        for metric, curves in other.trial_curves.items():
            assert np.array_equal(curves, many.trial_curves[metric][:few])


@every_algorithm
def test_chunks_of_iterations_do_not_matter(small_scenario: Scenario, algorithm: str) -> None:
    scenario = small_scenario.replace(algorithm=algorithm)
    runs = [Run(scenario, draw_fleet(scenario), 1, range(16)) for _ in range(2)]
    whole, pieces = np.empty((60, 3, 16)), np.empty((60, 3, 16))
    runs[0].advance(0, whole)
    for first, last in ((0, 7), (7, 8), (8, 60)):
        runs[1].advance(first, pieces[first:last])
    assert np.array_equal(whole, pieces)


@every_algorithm
def test_the_attack_leaves_the_data_alone(small_scenario: Scenario, algorithm: str) -> None:
    """Before anything is uploaded, runs with and without attack cannot differ; a null attack differs by rounding."""
    scenario = small_scenario.replace(algorithm=algorithm)
    null = Gaussian(num_byzantine=7, probability=1.0, variance=0.0)
    strong = Gaussian(num_byzantine=7, probability=1.0, variance=4.0)
    none, nulled, attacked = (
        simulate(scenario.replace(attack=attack), trials=4, keep_trials=True) for attack in (None, null, strong)
    )
    for metric, curves in none.trial_curves.items():
        assert np.allclose(curves, nulled.trial_curves[metric], rtol=1e-10, atol=0)
        assert np.array_equal(curves[:, 0], attacked.trial_curves[metric][:, 0])
        assert not np.array_equal(curves, attacked.trial_curves[metric])


@every_algorithm
def test_all_algorithms_see_the_same_data_and_the_same_test_set(small_scenario: Scenario, algorithm: str) -> None:
    """All start from models that are zero, so the first iteration shows the data: errors are y themselves."""
    first = [
        simulate(small_scenario.replace(algorithm=name), trials=4, seed=3, keep_trials=True).trial_curves
        for name in ("pso-fed", algorithm)
    ]
    for metric in first[0]:
        assert np.allclose(first[0][metric][:, 0], first[1][metric][:, 0], rtol=1e-14, atol=0)


@every_algorithm
def test_divergence_is_reported(small_scenario: Scenario, algorithm: str) -> None:
    scenario = small_scenario.replace(algorithm=algorithm, stepsize=1e8)
    result = simulate(scenario, trials=5)
    assert result.diverged_trials.tolist() == [0, 1, 2, 3, 4]
    assert (result.diverged_at < 60).all()
    assert not np.isnan(result.curve["test_mse"]).any()


@every_algorithm
@pytest.mark.parametrize(("participants", "shared", "dimension"), [(5, 1, 5), (3, 2, 7), (4, 6, 6), (1, 3, 8)])
def test_traffic_stays_within_the_budget(algorithm: str, participants: int, shared: int, dimension: int) -> None:
    scenario = Scenario(
        num_clients=9,
        dimension=dimension,
        num_participants=participants,
        num_shared=shared,
        algorithm=algorithm,
        iterations=1000,
    )
    budget = measure_communication(scenario.replace(algorithm="pso-fed"))
    sent = measure_communication(scenario)
    assert 0 < sent.bits_up <= budget.bits_up == 64 * participants * shared
    assert 0 < sent.bits_down <= budget.bits_down
    # Not only on average: nothing is ever sent before the budget has paid for it, and nothing is left unused.
    traffic = scenario.algorithm.traffic(scenario)
    made = [traffic.exchanges_in(n) for n in range(1000)]
    assert sum(made) == traffic.exchanges_before(1000)
    assert all(0 <= count <= scenario.algorithm.most_participants(scenario) <= 9 for count in made)
    largest = max(traffic.bits_up, traffic.bits_down)
    assert all(traffic.exchanges_before(n) * largest <= n * traffic.budget for n in range(1000))
    assert traffic.budget * 1000 - sum(made) * largest < traffic.group * largest
    total = sent.to_json()["total"]
    assert total["bits_down"] == sum(made) * traffic.bits_down == 8 * total["bytes_down"]


@every_algorithm
def test_bad_options_are_refused_by_name(algorithm: str) -> None:
    mapping = {"num_clients": 9, "dimension": 4, "algorithm": algorithm}
    with pytest.raises(UnknownFieldError, match=r"algorithm_options\.nonsense"):
        Scenario.from_mapping({**mapping, "algorithm_options": {"nonsense": 1}})
    with pytest.raises(InvalidValueError, match="algorithm_options"):
        Scenario.from_mapping({**mapping, "algorithm_options": 7})
    part = find_part("algorithm", algorithm)
    for name in part.options():
        for bad in ("nonsense", float("nan"), -1, None):
            with pytest.raises(InvalidValueError, match=rf"algorithm_options\.{name}"):
                part(**{name: bad})


@pytest.mark.thinned(1)
@pytest.mark.parametrize("algorithm", part_names("algorithm"))
def test_a_fleet_of_one_client_follows_the_equations(as_literally, algorithm: str) -> None:
    as_literally(Scenario(num_clients=1, dimension=2, num_participants=1, iterations=12, algorithm=algorithm), 2, 4)


def test_scenarios_of_all_algorithms_are_made_without_numba() -> None:
    code = (
        "import sys, psofed\n"
        f"for name in {ALGORITHMS!r}: psofed.Scenario(num_clients=9, dimension=4, algorithm=name)\n"
        "sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
