"""Bits do not depend on threads, blocks or workers, and sources do not disturb each other."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import psofed
from psofed import Data, Scenario, Selection, draw_fleet, simulate
from psofed.parts.aggregations import FLTrust
from psofed.parts.attacks import ColludingGaussian, DataPoisoning, Gaussian, LabelPoisoning, Mimic
from psofed.parts.drifts import Jump, RandomWalk
from psofed.parts.models import Rff
from psofed.simulation import blocks
from reference.draws import draw_trial

pytestmark = [pytest.mark.engine, pytest.mark.simulation]


def same_bits(a: psofed.SimulationResult, b: psofed.SimulationResult) -> bool:
    metrics = a.curve.keys()
    return all(
        np.array_equal(getattr(a, field)[metric], getattr(b, field)[metric])
        for field in ("steady_state", "curve", "curve_standard_error")
        for metric in metrics
    )


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_any_number_of_threads_gives_the_same_bits(small_scenario: Scenario, threads: int) -> None:
    assert same_bits(simulate(small_scenario, 55, 2, threads=1), simulate(small_scenario, 55, 2, threads=threads))


def test_processes_give_the_same_bits(small_scenario: Scenario) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        elsewhere = simulate(small_scenario, 34, 2, executor=executor)
    assert same_bits(simulate(small_scenario, 34, 2), elsewhere)


def test_all_blocks_of_a_process_share_one_drawn_fleet(
    small_scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate(small_scenario, trials=1)  # loads the kernels, with a fleet of its own
    drawn: list[Scenario] = []
    monkeypatch.setattr(blocks, "draw_fleet", lambda s: drawn.append(s) or draw_fleet(s))
    simulate(small_scenario, trials=40, threads=1)
    assert drawn == [small_scenario]


def test_a_trial_is_the_same_alone_and_among_others(small_scenario: Scenario) -> None:
    many = simulate(small_scenario, trials=23, seed=6)
    for few in (1, 3, 4, 17):
        alone = simulate(small_scenario, trials=few, seed=6)
        assert np.array_equal(alone.steady_state["network_mse"], many.steady_state["network_mse"][:few])


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
    [{"stepsize": 0.02}, {"num_shared": 4}, {"uplink": "redrawn"}, {"attack": Gaussian(num_byzantine=7, variance=9.0)}],
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
    scenario = Scenario(num_clients=7, dimension=3, num_participants=3, iterations=40, attack=Gaussian(num_byzantine=2))
    result = simulate(scenario, trials=3, seed=12345)
    assert result.steady_state["network_mse"].tolist() == FROZEN


FROZEN = [0.019029035646066707, 0.10622837723229153, 0.024600338282208062]

# Everything that draws numbers of its own. References share these draws, so only figures tell when they move.
DRAWN: dict[str, tuple[dict, list[float]]] = {
    "a walk": ({"drift": RandomWalk(variance=0.01)}, [0.21353992807319022, 0.2774936063105858]),
    "a walk in four dimensions": (
        {"drift": RandomWalk(variance=0.01), "dimension": 4},
        [0.215924806139547, 0.33930330995409264],
    ),
    "a jump": ({"drift": Jump(size=1.5, at=5)}, [0.09002682568447654, 0.14522600362580293]),
    "features": (
        {"model": Rff(bandwidth=1.3), "data": Data(function="sine", input_dimension=2)},
        [0.5126266526526302, 1.3717066012480719],
    ),
    "correlated inputs": ({"data": Data(input_correlation=0.6)}, [0.10334386172588964, 0.21802781220772222]),
    "targets of their own": ({"data": Data(target_spread=0.3)}, [0.578761896052941, 0.13243280229828885]),
    "masks and participants of their own": (
        {"uplink": "redrawn", "selection": Selection(pattern="random", coordinated=False)},
        [0.024139290888679766, 0.00664747703854172],
    ),
    "wrong labels": ({"attack": LabelPoisoning(num_byzantine=2)}, [0.05844085497099377, 0.05150928600706283]),
    "wrong inputs": ({"attack": DataPoisoning(num_byzantine=2)}, [0.03600531221567412, 0.020154578158698665]),
    "one to copy": ({"attack": Mimic(num_byzantine=2)}, [0.018443230386051966, 0.0011073752990989967]),
    "a small root set": ({"aggregation": FLTrust(root_size=2)}, [0.028054225684515165, 0.016963162495874665]),
    "a large root set": ({"aggregation": FLTrust(root_size=9)}, [0.020529418150585906, 0.008888473453732032]),
    "cs-fed": ({"algorithm": "cs-fed"}, [0.04546821887131054, 0.03233566745459622]),
    "online-fed": ({"algorithm": "online-fed"}, [0.45277185258483754, 0.556215669483863]),
    "qs-fed": ({"algorithm": "qs-fed"}, [0.17025866703613135, 0.22418120300116784]),
    "rosdhb": ({"algorithm": "rosdhb"}, [0.6251871432030297, 0.5903887476286978]),
    "demoa": ({"algorithm": "demoa"}, [1.2651231044689655, 1.3422067623815122]),
    "colluding clients": ({"attack": ColludingGaussian(num_byzantine=2)}, [0.18465356026716723, 0.39742345857551215]),
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_what_a_seed_draws_never_changes(drawn: str) -> None:
    changes, figures = DRAWN[drawn]
    scenario = Scenario(
        num_clients=7, dimension=3, num_participants=3, num_shared=2, iterations=40, attack=Gaussian(num_byzantine=2)
    ).replace(**changes)
    result = simulate(scenario, trials=2, seed=12345)
    steady = result.steady_state
    assert result.notes == (), "all of it is compiled"
    assert [steady["network_mse"][1], steady["server_msd"][1]] == pytest.approx(figures, rel=1e-9)
