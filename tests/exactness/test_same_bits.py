"""Bits do not depend on threads, blocks, chunks or workers, and sources do not disturb each other."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import psofed
from psofed import Scenario, simulate
from psofed.parts.attacks import Gaussian
from psofed.reference.draws import draw_trial


def same_bits(a: psofed.SimulationResult, b: psofed.SimulationResult) -> bool:
    metrics = a.curve.keys()
    return all(
        np.array_equal(getattr(a, field)[metric], getattr(b, field)[metric])
        for field in ("steady_state", "curve", "curve_standard_error")
        for metric in metrics
    )


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_any_number_of_threads_gives_the_same_bits(small_scenario: Scenario, threads: int) -> None:
    assert same_bits(
        simulate(small_scenario, 55, 2, threads=1), simulate(small_scenario, 55, 2, threads=threads)
    )


def test_processes_give_the_same_bits(small_scenario: Scenario) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        elsewhere = simulate(small_scenario, 34, 2, executor=executor)
    assert same_bits(simulate(small_scenario, 34, 2), elsewhere)


def test_a_trial_is_the_same_alone_and_among_others(small_scenario: Scenario) -> None:
    many = simulate(small_scenario, trials=23, seed=6)
    for few in (1, 3, 4, 17):
        alone = simulate(small_scenario, trials=few, seed=6)
        assert np.array_equal(alone.steady_state["network_mse"], many.steady_state["network_mse"][:few])


def test_chunks_of_iterations_do_not_matter(small_scenario: Scenario) -> None:
    from psofed.engine.pso_fed import PsoFedRun
    from psofed.fleet import draw_fleet

    runs = [PsoFedRun(small_scenario, draw_fleet(small_scenario), 1, range(16)) for _ in range(2)]
    whole = np.empty((60, 3, 16))
    runs[0].advance(0, whole)
    pieces = np.empty((60, 3, 16))
    for first, last in ((0, 7), (7, 8), (8, 60)):
        runs[1].advance(first, pieces[first:last])
    assert np.array_equal(whole, pieces)


def test_a_shorter_run_is_the_beginning_of_a_longer_one(small_scenario: Scenario) -> None:
    short = simulate(small_scenario.replace(iterations=20), trials=4, keep_trials=True)
    long = simulate(small_scenario, trials=4, keep_trials=True)
    assert np.array_equal(short.trial_curves["test_mse"], long.trial_curves["test_mse"][:, :20])


def test_the_attack_changes_neither_data_nor_participants_nor_masks(small_scenario: Scenario) -> None:
    attacked = draw_trial(small_scenario, 8, 2)
    clean = draw_trial(small_scenario.replace(attack=None), 8, 2)
    for field in ("inputs", "noise", "participants", "download_masks", "test_inputs", "test_noise"):
        assert np.array_equal(getattr(attacked, field), getattr(clean, field))
    assert attacked.shocks.attacking.any()
    assert not clean.shocks.attacking.any()


@pytest.mark.parametrize(
    "changes",
    [
        {"stepsize": 0.02},
        {"num_shared": 4},
        {"uplink": "redrawn"},
        {"attack": Gaussian(num_byzantine=7, variance=9.0)},
    ],
)
def test_other_settings_see_the_same_data(small_scenario: Scenario, changes: dict) -> None:
    first, second = (draw_trial(s, 8, 2) for s in (small_scenario, small_scenario.replace(**changes)))
    assert np.array_equal(first.inputs, second.inputs)
    assert np.array_equal(first.noise, second.noise)
    assert np.array_equal(first.participants, second.participants)


def test_other_seeds_and_trials_see_other_data(small_scenario: Scenario) -> None:
    draws = [draw_trial(small_scenario, seed, trial).inputs for seed, trial in ((8, 2), (8, 3), (9, 2))]
    assert not np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


def test_the_figures_of_a_seed_never_change() -> None:
    """The bits are part of the contract; a change here is a change of every published number."""
    scenario = Scenario(
        num_clients=7, dimension=3, num_participants=3, iterations=40, attack=Gaussian(num_byzantine=2)
    )
    result = simulate(scenario, trials=3, seed=12345)
    assert result.steady_state["network_mse"].tolist() == FROZEN


FROZEN = [0.019029035646066707, 0.10622837723229153, 0.024600338282208062]
