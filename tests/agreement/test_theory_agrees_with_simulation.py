"""Theory against simulation, two-sided, in standard errors over independent trials, corrected for the number of points.

Each point is a scenario and a metric. With N points and a chance of false alarm of one in a thousand for all of them
together, a point may be off by z standard errors with 2Φ(−z) = 0.001/N (Bonferroni), about 4.5 for the grids here.
"""

import functools
import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

import psofed
from psofed import Data, Scenario, Selection
from psofed.parts.attacks import Gaussian

pytestmark = [pytest.mark.theory, pytest.mark.simulation]

FALSE_ALARM = 0.001
PATTERNS = list(itertools.product(("random", "round-robin"), (True, False), ("same", "redrawn")))
METRICS = ("network_mse", "server_msd")
SLOW = pytest.mark.slow


def scenario_of(pattern: str, coordinated: bool, uplink: str, **changes) -> Scenario:
    values = {
        "num_clients": 12,
        "dimension": 4,
        "num_participants": 4,
        "stepsize": 0.12,
        "iterations": 1500,
        "attack": Gaussian(num_byzantine=4),
        "data": Data(input_variance=psofed.Uniform(0.5, 1.2)),
    } | changes
    return Scenario(uplink=uplink, selection=Selection(pattern=pattern, coordinated=coordinated), **values)


def white_grid() -> list[Scenario]:
    return [
        scenario_of(*kind, num_shared=shared, num_clients=6 if is_scattered(*kind) else 12)
        for kind in PATTERNS
        for shared in (1, 2, 3, 4)
    ]


def is_scattered(pattern: str, coordinated: bool, _uplink: str) -> bool:
    """Whether theory has to average over the clients' offsets.

    For six clients it goes through all of them, in a second. For twelve it takes a sample, in half a minute; the
    edges have one of those.
    """
    return pattern == "round-robin" and not coordinated


def participation_grid() -> list[Scenario]:
    return [
        scenario_of(*kind, num_shared=2, dimension=3, num_clients=5, num_participants=count)
        for kind in PATTERNS
        for count in (1, 5)
    ]


def correlated_grid() -> list[Scenario]:
    generator = np.random.default_rng(3)
    factors = generator.standard_normal((6, 3, 3))
    measured = Data(covariances=[(a @ a.T / 6 + 0.3 * np.eye(3)).tolist() for a in factors])
    common = {"num_clients": 6, "dimension": 3, "num_participants": 2, "num_shared": 2, "iterations": 800}
    return [
        scenario_of(*kind, data=data, **common)
        for kind in PATTERNS
        for data in (Data(input_correlation=0.5, input_variance=0.7), measured)
    ]


def edge_grid() -> list[Scenario]:
    return [
        scenario_of(
            "random", True, "same", num_clients=1, num_participants=1, num_shared=2, attack=Gaussian(num_byzantine=1)
        ),
        scenario_of("random", False, "same", dimension=1, num_shared=1),
        scenario_of("round-robin", True, "same", dimension=6, num_shared=4),
        scenario_of("round-robin", False, "same", dimension=6, num_shared=4, num_clients=4),
        scenario_of("round-robin", False, "same", num_shared=3),  # a sample of offsets
        scenario_of("random", False, "same", num_shared=2, attack=Gaussian(num_byzantine=12, probability=1.0)),
        scenario_of("random", True, "same", num_shared=2, attack=None),
    ]


def learner_grid() -> list[Scenario]:
    small = {"num_clients": 6, "dimension": 3, "num_shared": 1, "iterations": 900}
    learners = [
        {"learner": psofed.learners.NLMS(regularisation=0.1), "stepsize": 0.5},
        {"learner": psofed.learners.LeakyLMS(leakage=0.1)},
        {"stepsize": psofed.Uniform(0.05, 0.25)},
    ]
    return [
        scenario_of("random", coordinated, "same", **small | learner)
        for coordinated in (True, False)
        for learner in learners
    ]


def server_held_grid() -> list[Scenario]:
    small = {"num_clients": 6, "dimension": 3, "num_shared": 1, "iterations": 1500}
    changes = [{}, {"attack": psofed.attacks.LabelPoisoning(num_byzantine=2)}]
    return [scenario_of("random", True, "same", algorithm="online-fed", **small | change) for change in changes]


def network_grid() -> list[Scenario]:
    small = {"num_clients": 6, "dimension": 3, "num_shared": 1, "iterations": 900}
    noisy = psofed.Links(
        up=[psofed.channels.Quantised(bits=6, reach=16.0), psofed.channels.Lossy(probability=0.2)],
        down=psofed.channels.Noisy(variance=0.01),
    )
    away = psofed.availabilities.Bernoulli(probability=psofed.Uniform(0.2, 0.9), learns="available")
    groups = [psofed.attacks.SignFlip(clients=[0], probability=0.5), Gaussian(clients=[1, 2])]
    parts = [{"channel": noisy}, {"availability": away}, {"attack": groups, "channel": noisy, "availability": away}]
    late = [
        ("round-robin", True, psofed.delays.Fixed(iterations=3, weight=0.8)),
        ("random", False, psofed.delays.Fixed(iterations=2)),
    ]
    return [scenario_of("random", False, "same", **small | part) for part in parts] + [
        scenario_of(pattern, coordinated, "same", delay=delay, **small) for pattern, coordinated, delay in late
    ]


GRIDS = {
    "network": network_grid,
    "learners": learner_grid,
    "server-held": server_held_grid,
    "white": white_grid,
    "participation": participation_grid,
    "correlated": correlated_grid,
    "edges": edge_grid,
}


@functools.cache
def simulated(scenario: Scenario, trials: int = 512):
    return psofed.simulate(scenario, trials=trials, seed=11, tail=scenario.iterations - 300)


def z_scores(scenarios: list[Scenario], theory: str = "exact") -> np.ndarray:
    scores = []
    for scenario in scenarios:
        result, prediction = simulated(scenario), psofed.predict(scenario, theory=theory)
        sampling = prediction.steady_state.sampling_error
        for metric, own_error in zip(METRICS, (sampling.excess, sampling.server), strict=True):
            estimate = getattr(result, metric)
            error = math.hypot(estimate.standard_error, own_error)
            scores.append((getattr(prediction, metric) - estimate.mean) / error)
    return np.array(scores)


def critical_value(points: int) -> float:
    return float(norm.isf(FALSE_ALARM / 2 / points))


@pytest.mark.slow
@pytest.mark.parametrize("grid", GRIDS)
def test_exact_theory_agrees_with_simulation(grid: str) -> None:
    scores = z_scores(GRIDS[grid]())
    assert np.abs(scores).max() < critical_value(len(scores)), scores.round(1)
    # A small bias everywhere would hide below the limit for one point; it cannot in the sum of squares.
    assert (scores**2).mean() < 1 + 4.5 * math.sqrt(2 / len(scores)) * 2, scores.round(1)


def test_exact_theory_is_within_half_a_percent_of_a_long_simulation() -> None:
    scenario = Scenario(num_clients=50, dimension=5, iterations=2500, attack=Gaussian(num_byzantine=15))
    result = psofed.simulate(scenario, trials=256, seed=5, tail=2200)
    prediction = psofed.predict(scenario)
    assert prediction.network_mse == pytest.approx(result.network_mse.mean, rel=0.005)
    allowed = max(0.01 * result.server_msd.mean, 3.5 * result.server_msd.standard_error)
    assert abs(prediction.server_msd - result.server_msd.mean) < allowed
    allowed = max(0.01 * result.test_mse.mean, 3.5 * result.test_mse.standard_error)
    assert abs(prediction.test_mse - result.test_mse.mean) < allowed


@pytest.mark.parametrize(
    ("pattern", "coordinated", "uplink"),
    [pytest.param(*kind, marks=SLOW) if is_scattered(*kind) else kind for kind in PATTERNS],
)
def test_predicted_learning_curve_follows_the_simulated_one(pattern: str, coordinated: bool, uplink: str) -> None:
    clients = 6 if is_scattered(pattern, coordinated, uplink) else 12
    scenario = scenario_of(pattern, coordinated, uplink, num_shared=1, iterations=200, num_clients=clients)
    result = psofed.simulate(scenario, trials=512, seed=2)
    curve = psofed.predict(scenario).learning_curve()
    assert result.bin_width == 1
    for metric in METRICS:
        error = np.maximum(result.curve_standard_error[metric], 1e-12)
        scores = (getattr(curve, metric) - result.curve[metric])[1:] / error[1:]
        assert np.abs(scores).max() < critical_value(2 * len(PATTERNS) * len(scores))
    assert curve.server_msd[0] == pytest.approx(1.0)


def full_sharing(uplink: str) -> list[Scenario]:
    return [scenario_of("random", coordinated, uplink, num_shared=4) for coordinated in (True, False)]


def test_the_papers_theory_fails_the_same_check_where_all_is_shared_and_the_uplink_is_the_same() -> None:
    scores = z_scores(full_sharing("same"), theory="paper")
    assert np.abs(scores).min() > critical_value(len(scores))


def test_the_papers_theory_passes_the_check_where_the_uplink_is_redrawn() -> None:
    scores = z_scores(full_sharing("redrawn"), theory="paper")
    assert np.abs(scores).max() < critical_value(len(scores))


def test_remembering_participants_but_not_masks_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    # Half a fix: keep a_{k,n} together in download and upload, but average S_{k,n+1} apart.
    from psofed.theory.masks import FreshMasks
    from psofed.theory.model import TheoryModel

    right = TheoryModel._random_mask
    monkeypatch.setattr(
        TheoryModel, "_random_mask", lambda self: FreshMasks(right(self).p[0, 0], right(self).q, is_common=True)
    )
    scenario = scenario_of(
        "random", True, "same", num_clients=10, num_participants=2, num_shared=2, stepsize=0.05, iterations=4000
    )
    scores = z_scores([scenario])
    assert np.abs(scores).min() > critical_value(len(scores)), scores
    monkeypatch.undo()
    assert np.abs(z_scores([scenario])).max() < critical_value(2)


def test_the_best_stepsize_lies_where_the_simulated_error_is_lowest() -> None:
    attack = Gaussian(num_byzantine=4, probability=0.5, variance=0.5)
    scenario = scenario_of("random", True, "same", num_shared=1, iterations=3000, attack=attack)
    best = psofed.optimal_stepsize(scenario)
    levels = {}
    for factor in (0.5, 1.0, 2.0):
        # The same seed: the three see the same data, so their differences are sharp.
        result = psofed.simulate(scenario.replace(stepsize=best * factor), trials=128, seed=4, tail=2000)
        levels[factor] = result.steady_state["network_mse"]
    for factor in (0.5, 2.0):
        worse = levels[factor] - levels[1.0]
        assert worse.mean() > 4 * worse.std(ddof=1) / math.sqrt(len(worse))


def test_what_is_predicted_to_diverge_diverges() -> None:
    scenario = scenario_of("random", True, "same", num_shared=1, iterations=3000)
    limit = psofed.predict(scenario).max_stepsize
    unstable = psofed.simulate(scenario.replace(stepsize=3 * limit), trials=8, seed=1)
    assert len(unstable.diverged_trials) == 8
    assert not psofed.predict(scenario.replace(stepsize=1.01 * limit)).is_stable
    assert psofed.predict(scenario.replace(stepsize=0.99 * limit)).is_stable
