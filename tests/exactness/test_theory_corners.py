"""Corners of the exact theory that were wrong once: each test failed before its mend."""

import dataclasses
import math

import numpy as np
import pytest

import psofed
from psofed import Data, Scenario, Selection
from psofed.attacks import SignFlip
from psofed.drifts import RandomWalk
from psofed.theory.iteration import Sources
from psofed.theory.model import TheoryModel
from psofed.theory.solve import Solver
from reference.attacks import make_attack

pytestmark = [pytest.mark.theory, pytest.mark.takes(41)]


def scattered(**changes) -> Scenario:
    return Scenario(**{"selection": Selection(pattern="round-robin", coordinated=False)} | changes)


def test_one_client_learns_alike_whether_its_window_is_coordinated_or_not() -> None:
    scenario = scattered(
        num_clients=1, dimension=3, num_participants=1, num_shared=1, stepsize=0.05,
        data=Data(covariances=[np.diag([4.0, 1.0, 0.1]).tolist()], noise_variance=0.1),
        attack=make_attack(num_byzantine=1, probability=1.0, variance=1.0),
    )  # fmt: skip
    curve = psofed.predict(scenario).learning_curve(40)
    together = scenario.replace(selection=Selection(pattern="round-robin", coordinated=True))
    np.testing.assert_allclose(curve.network_mse, psofed.predict(together).learning_curve(40).network_mse, rtol=1e-12)
    assert curve.network_mse[:4].round(2).tolist() == [1.80, 3.12, 4.15, 4.97]


@pytest.mark.parametrize("correlation", [0.0, 0.4])
def test_the_lag_is_averaged_over_all_offsets(correlation: float) -> None:
    clients, dimension = (4, 3) if correlation == 0.0 else (3, 4)
    scenario = scattered(
        num_clients=clients, dimension=dimension, num_participants=2, num_shared=2, stepsize=0.15,
        data=Data(input_variance=tuple(np.linspace(0.3, 1.2, clients)), input_correlation=correlation),
        drift=RandomWalk(variance=0.01),
    )  # fmt: skip
    model = TheoryModel(scenario)
    assert not model.is_sampled
    offsets, solver = model.windows.offsets(0), Solver(model)
    assert len(offsets) > 24
    alone = (next(solver.recursions(0.15, row[None])).steady_state(Sources(0.0, 0.0, 1.0))[0] for row in offsets)
    drift = psofed.predict(scenario).steady_state.drift
    assert (drift.excess, drift.server, drift.honest) == pytest.approx(np.mean(list(alone), axis=(0, 1)), rel=1e-7)


def test_the_lag_of_scattered_windows_agrees_with_simulation() -> None:
    scenario = scattered(
        num_clients=5, dimension=5, num_participants=2, num_shared=2, stepsize=0.15, iterations=1200,
        data=Data(input_variance=tuple(np.linspace(0.3, 1.2, 5)), noise_variance=0.02),
        drift=RandomWalk(variance=0.01),
    )  # fmt: skip
    result, predicted = psofed.simulate(scenario, trials=512, seed=3, tail=1000), psofed.predict(scenario)
    for metric in ("network_mse", "server_msd"):
        found = getattr(result, metric)
        assert abs(getattr(predicted, metric) - found.mean) < 3.5 * found.standard_error


def test_a_sampled_prediction_states_its_sampling_error_in_json() -> None:
    prediction = psofed.predict(scattered(num_clients=12, dimension=4, num_participants=4, num_shared=2))
    stated, known = prediction.to_json()["sampling_error"], prediction.steady_state.sampling_error
    assert 0 < stated["network_mse"] == known.excess < 0.001 * prediction.network_mse
    # The server MSD has a standard deviation of 3.5 % over sets of offsets. A sample has at most 32, always the
    # same ones: 3.5 %/√32 = 0.62 %.
    assert 0 < stated["server_msd"] == known.server < 0.0065 * prediction.server_msd


def test_another_sample_of_offsets_lies_within_the_stated_sampling_error() -> None:
    prediction = psofed.predict(scattered(num_clients=12, dimension=4, num_participants=4, num_shared=2))
    offsets = np.random.default_rng(7).integers(0, 4, (128, 12))
    recursions = prediction.solver.recursions(prediction.scenario.mean_stepsize, offsets)
    levels = np.concatenate([recursion.steady_state(Sources())[0] for recursion in recursions])
    stated, total = prediction.steady_state.sampling_error, prediction.steady_state.total
    other = levels.std(axis=0, ddof=1) / np.sqrt(len(levels))
    # Of 32 sets, whose standard deviation is off by 1/√62, and that of 128 by 1/√254
    assert stated.server == pytest.approx(2.0 * other[1], rel=3.5 * np.hypot(1 / 62**0.5, 1 / 254**0.5))
    for position, name in enumerate(("excess", "server", "honest")):
        difference = getattr(total, name) - levels[:, position].mean()
        assert abs(difference) < 3.5 * np.hypot(getattr(stated, name), other[position])


@pytest.mark.slow
def test_the_sampling_error_knows_the_drift() -> None:
    still = scattered(num_clients=12, dimension=4, num_participants=4, num_shared=2)
    walking = still.replace(drift=RandomWalk(variance=0.01))
    assert TheoryModel(still).is_sampled
    errors = [psofed.predict(scenario).steady_state.sampling_error for scenario in (still, walking)]
    # The lag is two orders of magnitude larger than the excess without it, and so is its spread over offsets.
    assert errors[1].excess > 10 * errors[0].excess
    assert math.isfinite(errors[1].server)


def test_targets_of_their_own_keep_clients_apart_also_where_models_have_one_entry() -> None:
    """Alike in their variances, clients were counted as one; with one entry that was not noticed, and failed."""
    scenario = Scenario(
        num_clients=12, dimension=1, num_participants=3, data=Data(input_variance=1.0, target_spread=0.5)
    )
    apart = scenario.replace(data=Data(input_variance=[1.0 + 1e-9 * k for k in range(12)], target_spread=0.5))
    assert psofed.predict(scenario).network_mse == pytest.approx(psofed.predict(apart).network_mse, rel=1e-6)


def test_flipped_updates_over_windows_of_each_client_are_stable_where_correlated_inputs_say_so() -> None:
    scenario = scattered(
        num_clients=2, dimension=2, num_participants=1, num_shared=1, stepsize=0.2,
        data=Data(input_variance=(0.87, 0.39), noise_variance=(0.083, 0.104)),
        attack=SignFlip(num_byzantine=2, probability=0.3, scale=0.87, of="update"),
    )  # fmt: skip
    prediction = psofed.predict(scenario)
    assert prediction.network_mse == pytest.approx(0.30434, rel=1e-4)
    assert prediction.spectral_radius == pytest.approx(0.99176, rel=1e-5)
    assert prediction.max_stepsize == pytest.approx(0.2330, rel=1e-3)
    assert prediction.learning_curve(1200).network_mse[-1] == pytest.approx(prediction.network_mse, rel=1e-3)


def random_system(seed: int, pattern: str, coordinated: bool) -> Scenario:
    rng = np.random.default_rng(seed)
    clients, dimension = int(rng.integers(1, 4)), 2
    kind = ("sign-flip", "scaled-update")[int(rng.integers(2))]
    options = {"of": ("update", "model")[int(rng.integers(2))]} if kind == "sign-flip" else {}
    attack = make_attack(
        kind=kind, num_byzantine=int(rng.integers(1, clients + 1)), scale=float(rng.uniform(0.2, 4.0)),
        probability=float(rng.choice([0.3, 1.0])), byzantine_set=str(rng.choice(["fixed", "redrawn"])), **options,
    )  # fmt: skip
    return Scenario(
        num_clients=clients, dimension=dimension, num_participants=int(rng.integers(1, clients + 1)), num_shared=1,
        stepsize=float(rng.uniform(0.05, 0.9)), uplink=str(rng.choice(["same", "redrawn"])), attack=attack,
        selection=Selection(pattern=pattern, coordinated=coordinated),
        data=Data(input_variance=tuple(rng.uniform(0.2, 1.2, clients)), noise_variance=0.1),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "coordinated"),
    [
        ("random", True),
        ("random", False),
        ("round-robin", True),
        pytest.param("round-robin", False, marks=pytest.mark.slow),
    ],
)
def test_white_inputs_are_as_stable_as_inputs_that_are_hardly_correlated(pattern: str, coordinated: bool) -> None:
    """White inputs eliminate pairs of clients, correlated ones keep all moments."""
    for seed in range(25):
        white = random_system(seed, pattern, coordinated)
        full = white.replace(data=dataclasses.replace(white.data, input_correlation=1e-13))
        one, other = (psofed.Prediction(scenario) for scenario in (white, full))
        assert one.is_stable == other.is_stable, seed
        assert one.spectral_radius == pytest.approx(other.spectral_radius, rel=1e-6), seed
        assert one.network_mse == pytest.approx(other.network_mse, rel=1e-6), seed


def test_where_no_stepsize_is_stable_everything_says_so() -> None:
    attack = SignFlip(num_byzantine=20, probability=1.0, scale=6.0)
    scenario = Scenario(num_clients=20, dimension=5, attack=attack)
    prediction = psofed.predict(scenario)
    assert prediction.max_stepsize == 0.0
    assert math.isnan(prediction.optimal_stepsize)
    assert prediction.to_json()["optimal_stepsize"] is None
    assert "no stepsize is stable" in str(prediction.report()).lower()
    for question in (psofed.optimal_stepsize, psofed.tune):
        with pytest.raises(psofed.NotCoveredError, match="No stepsize is stable"):
            question(scenario)


@pytest.mark.parametrize("options", [{"kind": "label-poisoning"}, {"kind": "data-poisoning", "variance": 0.0}])
def test_poisoned_samples_may_have_a_singular_covariance(options) -> None:
    """The first client sees no inputs at all; it only downloads."""
    data = Data(input_variance=[0.0, 1.0], input_correlation=0.5)
    scenario = Scenario(num_clients=2, dimension=2, num_participants=1, data=data)
    attack = make_attack(num_byzantine=2, probability=0.5, **options)
    singular = psofed.predict(scenario.replace(attack=attack)).network_mse
    nearly = scenario.replace(attack=attack, data=Data(input_variance=[1e-9, 1.0], input_correlation=0.5))
    assert singular == pytest.approx(psofed.predict(nearly).network_mse, rel=1e-6)


def test_the_best_stepsize_is_found_close_to_the_largest_stable_one() -> None:
    """The errors there come from a system that restarted GMRES left unsolved."""
    scenario = Scenario(
        num_clients=2, dimension=6, num_participants=2, num_shared=1,
        selection=Selection(pattern="round-robin", coordinated=True),
        data=Data(input_variance=(0.8, 0.3), noise_variance=(0.06696408405855299, 0.05331212904092269)),
        attack=make_attack(kind="data-poisoning", num_byzantine=1, probability=0.5, variance=0.5),
    )  # fmt: skip
    assert psofed.optimal_stepsize(scenario) == 0.0


def test_the_least_stable_offsets_decide_on_stability() -> None:
    """A few sampled offsets missed the worst, and the prediction was a network MSE of −1.54."""
    scenario = scattered(
        num_clients=3, dimension=4, num_participants=3, num_shared=1, stepsize=0.41503,
        data=Data(input_variance=(0.3, 0.9, 1.1), noise_variance=0.05),
    )  # fmt: skip
    prediction = psofed.predict(scenario)
    assert prediction.spectral_radius > 1.0
    assert prediction.network_mse == math.inf
    limit = prediction.max_stepsize
    assert limit < 0.41503
    for share in (0.99, 0.9999):
        assert psofed.predict(scenario.replace(stepsize=share * limit)).network_mse > 0.05
