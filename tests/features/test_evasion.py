"""Errors on inputs that are moved to hurt most: closed form, simulation, theory, files, sweeps and refusals."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import psofed
from psofed import (
    Data,
    Evasion,
    InvalidValueError,
    NotCoveredError,
    Scenario,
    UnknownFieldError,
    load_result,
    simulate,
)
from psofed.attacks import ConstantBias, Gaussian
from psofed.fleet import draw_fleet
from psofed.reference.literal import run_trial
from psofed.results import EVASION_TITLES
from psofed.simulation.evasion import worst_mean_square

pytestmark = [pytest.mark.simulation, pytest.mark.theory, pytest.mark.results]

BASE = Scenario(
    num_clients=6, dimension=3, num_participants=3, num_shared=2, iterations=50,
    attack=Gaussian(num_byzantine=2, probability=0.5), evasion=Evasion(epsilon=0.3),
)  # fmt: skip


@pytest.mark.parametrize("norm", ["2", "inf"])
def test_nobody_can_move_an_input_so_that_it_hurts_more(norm: str) -> None:
    """The closed form against the best of many moves, and against the one that is known to be best."""
    rng = np.random.default_rng(0)
    w, target, epsilon = rng.normal(size=4), rng.normal(size=4), 0.2
    inputs, noise = rng.normal(size=(200_000, 4)), 0.1 * rng.normal(size=200_000)
    errors = inputs @ (target - w) + noise
    length = np.linalg.norm(w) if norm == "2" else np.abs(w).sum()
    moves = rng.normal(size=(2000, 4))
    moves *= epsilon / (np.linalg.norm(moves, axis=1) if norm == "2" else np.abs(moves).max(axis=1))[:, None]
    assert np.abs(moves @ w).max() <= epsilon * length
    best = epsilon * (w / np.linalg.norm(w) if norm == "2" else np.sign(w))
    moved = np.abs(errors + np.sign(errors) * (best @ w))
    assert np.allclose(moved, np.abs(errors) + epsilon * length)
    variance = np.array([np.sum((target - w) ** 2) + 0.01])
    expected = worst_mean_square(Evasion(epsilon=epsilon, norm=norm), w[:, None], variance)[0]
    assert expected == pytest.approx(np.mean(moved**2), rel=0.01)


@pytest.mark.parametrize("norm", ["2", "inf"])
@pytest.mark.parametrize("algorithm", ["pso-fed", "online-fed"])
def test_the_simulation_measures_what_the_literal_models_give(norm: str, algorithm: str) -> None:
    """On a tail shorter than 64 iterations every one of its models is looked at."""
    data = Data(input_correlation=0.5, target_spread=0.2) if algorithm == "pso-fed" else Data()
    scenario = BASE.replace(evasion=Evasion(epsilon=0.3, norm=norm), algorithm=algorithm, data=data)
    result, literal = simulate(scenario, trials=3, seed=5, tail=10), run_trial(scenario, 5, 1)
    fleet, found = draw_fleet(scenario), []
    offsets = np.zeros((6, 3)) if fleet.target_offsets is None else fleet.target_offsets
    for models in literal.models[-10:]:
        server, clients = models[0], models[1:] if len(models) > 1 else np.repeat(models, 6, axis=0)

        def worst(w: np.ndarray, square: float) -> float:
            length = np.linalg.norm(w) if norm == "2" else np.abs(w).sum()
            return square + 2 * math.sqrt(2 / math.pi * square) * 0.3 * length + (0.3 * length) ** 2

        at_server = worst(server, np.sum((fleet.target - server) ** 2) + fleet.noise_variance.mean())
        at_clients = []
        for k, w in enumerate(clients):
            error = fleet.target + offsets[k] - w
            at_clients.append(worst(w, error @ fleet.covariances()[k] @ error + fleet.noise_variance[k]))
        found.append([at_server, np.mean(at_clients)])
    expected = np.mean(found, axis=0)
    assert result.evasion is not None
    assert [result.evasion[name][1] for name in EVASION_TITLES] == pytest.approx(expected, rel=1e-9)


def test_without_a_move_it_is_the_error_itself_and_other_bits_stay_as_they_were() -> None:
    still = simulate(BASE.replace(evasion=Evasion(epsilon=0.0), iterations=400), trials=8)
    none = simulate(BASE.replace(evasion=None, iterations=400), trials=8)
    assert none.evasion is None
    assert all(np.array_equal(still.curve[m], none.curve[m]) for m in still.curve)
    assert still.evasion["evasion_test_mse"].mean() == pytest.approx(none.test_mse.mean, rel=0.2)


def test_theory_bounds_what_is_simulated_and_its_exact_parts_are_exact() -> None:
    scenario = Scenario(
        num_clients=10, dimension=4, num_participants=4, num_shared=2, iterations=1500, stepsize=0.1,
        attack=Gaussian(num_byzantine=3, probability=0.3), evasion=Evasion(epsilon=0.2),
    )  # fmt: skip
    found = psofed.simulate(scenario, trials=128, seed=3, tail=1000).evasion["evasion_test_mse"]
    stated = psofed.predict(scenario).evasion
    error = 3 * found.std(ddof=1) / len(found) ** 0.5
    assert stated.lower - error <= found.mean() <= stated.upper + error
    # Without a cross term, in the limits of small and of large ε, the bounds meet.
    for epsilon in (1e-9, 1e6):
        tight = psofed.predict(scenario.replace(evasion=Evasion(epsilon=epsilon))).evasion
        assert tight.upper == pytest.approx(tight.lower, rel=1e-5)
        assert tight.upper == pytest.approx(tight.error + tight.reach, rel=1e-5)


def test_the_bounds_are_those_of_normal_errors() -> None:
    """E(|e| + a)² = E e² + 2 a E|e| + a², with the least and the largest a E|e| that there can be."""
    from scipy.stats import halfnorm

    scenario = BASE.replace(evasion=Evasion(epsilon=0.2))
    prediction, fleet = psofed.predict(scenario), draw_fleet(scenario)
    target = float((fleet.target**2).sum())
    length, mean = target + prediction.server_msd, halfnorm.mean()
    stated, error = prediction.evasion, prediction.test_mse
    assert (stated.error, stated.reach) == pytest.approx((error, 0.04 * length))
    least, most = math.sqrt(fleet.test_noise_variance * target), math.sqrt(error * length)
    assert stated.lower == pytest.approx(error + 0.04 * length + 2 * 0.2 * mean * least)
    assert stated.upper == pytest.approx(error + 0.04 * length + 2 * 0.2 * mean * most)


def test_it_travels_through_files_sweeps_and_the_store(tmp_path: Path) -> None:
    assert Scenario.from_toml(BASE.to_toml()) == BASE
    result = simulate(BASE, trials=3)
    json.dumps(result.to_json(), allow_nan=False)
    result.save(tmp_path / "r.nc")
    loaded = load_result(tmp_path / "r.nc")
    assert loaded.to_json() == result.to_json()
    grid = {"evasion.epsilon": [0.0, 0.5]}
    first, second = (psofed.sweep(BASE, grid, trials=3, store=tmp_path / "cells") for _ in range(2))
    assert all(a.same_bits(b) for a, b in zip(first.cells, second.cells, strict=True))
    low, high = second.to_dataset()["evasion_test_mse"].mean("trial").values
    assert low < high
    assert "evasion_network_mse_db" in second.save(tmp_path / "out")[1].read_text().splitlines()[0]


def test_what_it_cannot_measure_or_predict_is_refused_by_name() -> None:
    with pytest.raises(NotCoveredError, match=r"\[evasion\].*linear"):
        simulate(
            Scenario(num_clients=6, dimension=5, data=Data(function="sine"), evasion=Evasion(epsilon=1)),
            trials=1,
        )
    with pytest.raises(NotCoveredError, match=r"\[evasion\].*\[drift\]"):
        simulate(BASE.replace(drift=psofed.drifts.RandomWalk(variance=1e-4)), trials=1)
    with pytest.raises(NotCoveredError, match=r'evasion.norm = "inf"'):
        _ = psofed.predict(BASE.replace(evasion=Evasion(epsilon=1, norm="inf"))).evasion
    biased = psofed.predict(BASE.replace(attack=ConstantBias(num_byzantine=2)))
    assert "bias" in biased.to_json()["evasion"]["not_covered"]
    with pytest.raises(InvalidValueError, match=r"evasion\.epsilon must be at least 0"):
        Evasion(epsilon=-1)
    with pytest.raises(InvalidValueError, match=r'evasion.norm must be .*"2" or "inf"|evasion.norm'):
        Evasion(epsilon=1, norm="1")
    with pytest.raises(UnknownFieldError, match=r"evasion.size"):
        Scenario.from_mapping({"num_clients": 5, "dimension": 2, "evasion": {"epsilon": 1, "size": 2}})
    with pytest.raises(InvalidValueError, match=r"evasion.epsilon"):
        Scenario.from_mapping({"num_clients": 5, "dimension": 2, "evasion": {"norm": "2"}})


@pytest.mark.parametrize(("given", "norm"), [(2, "2"), (2.0, "2"), (math.inf, "inf")])
def test_the_norm_may_be_given_as_a_number_as_the_command_line_reads_it(given: float, norm: str) -> None:
    assert Evasion(epsilon=0.1, norm=given).norm == norm  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=r'evasion\.norm must be one of "2", "inf"'):
        Evasion(epsilon=0.1, norm=1)  # type: ignore[arg-type]


def test_errors_of_trials_that_diverge_are_infinite_without_a_word_from_numpy() -> None:
    # Each is finite for some iterations more, and their sum is not.
    one = Scenario(num_clients=1, dimension=1, stepsize=3e6, iterations=30, evasion=Evasion(epsilon=0.3))
    result = simulate(one, trials=16, tail=30)
    assert result.evasion is not None
    assert all(np.isinf(values).all() for values in result.evasion.values())
