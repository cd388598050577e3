"""Estimates and differences: intervals that hold for few trials, heavy tails and divergence."""

import math

import numpy as np
import pytest

from psofed.results import estimate, find_unsteady
from psofed.results.differences import paired_difference
from psofed.results.estimates import is_heavy_tailed, lower_bound_of_mean, median_interval, sign_test_rank

pytestmark = pytest.mark.results

REPEATS = 1500
GENERATORS = {
    "normal": (lambda rng, n: 1 + 0.1 * rng.standard_normal(n), 1.0),
    "gamma": (lambda rng, n: rng.gamma(4.0, 0.25, n), 1.0),
    "lognormal 1": (lambda rng, n: np.exp(rng.standard_normal(n)), math.exp(0.5)),
    "lognormal 2": (lambda rng, n: np.exp(2 * rng.standard_normal(n)), math.exp(2.0)),
    "Pareto 1.5": (lambda rng, n: 1 + rng.pareto(1.5, n), 3.0),
    "Pareto 3": (lambda rng, n: 1 + rng.pareto(3.0, n), 1.5),
    # Calm, but for one trial in ten that is carried away.
    "mixture": (lambda rng, n: 1 + 0.1 * rng.standard_normal(n) + 100 * (rng.random(n) < 0.1), 11.0),
}


def test_few_trials_have_students_interval() -> None:
    value = estimate(np.array([1.0, 2.0, 1.5, 1.2]))
    assert value.interval[1] - value.mean == pytest.approx(3.182446 * value.standard_error, rel=1e-6)
    assert not value.is_heavy_tailed


@pytest.mark.parametrize("name", GENERATORS)
@pytest.mark.parametrize("count", [32, 100])
def test_the_interval_of_the_mean_covers_it_whatever_the_tails(name: str, count: int) -> None:
    """At least 92.5 % of intervals, where Student's alone would cover 66 to 95 %."""
    draw, mean = GENERATORS[name]
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(REPEATS):
        low, high = estimate(draw(rng, count)).interval
        inside += low <= mean <= high
    # 92.5 % less three standard errors of a fraction of 1500.
    assert inside / REPEATS > 0.925 - 3 * math.sqrt(0.925 * 0.075 / REPEATS)


def test_students_interval_alone_would_fail_on_heavy_tails() -> None:
    """So that the test above tests something."""
    rng = np.random.default_rng(7)
    inside = 0
    for _ in range(400):
        values = np.exp(2 * rng.standard_normal(100))
        reach = 1.984 * values.std(ddof=1) / 10
        inside += abs(values.mean() - math.exp(2.0)) <= reach
    assert inside / 400 < 0.85


@pytest.mark.parametrize("name", ["gamma", "lognormal 2", "Pareto 1.5", "mixture"])
@pytest.mark.parametrize("count", [6, 9, 40])
def test_the_median_interval_covers_the_median(name: str, count: int) -> None:
    draw, _ = GENERATORS[name]
    rng = np.random.default_rng(11)
    truth = float(np.median(draw(rng, 400_001)))
    inside = 0
    for _ in range(REPEATS):
        low, high = median_interval(draw(rng, count))[1]
        inside += low <= truth <= high
    assert inside / REPEATS > 0.95 - 3 * math.sqrt(0.05 * 0.95 / REPEATS)


def test_ordinary_samples_are_not_called_heavy_tailed() -> None:
    rng = np.random.default_rng(3)
    for count, most in ((16, 0.15), (32, 0.12), (100, 0.01)):
        calls = [is_heavy_tailed(rng.gamma(4.0, 0.25, count)) for _ in range(400)]
        assert np.mean(calls) <= most, count


def test_the_next_seed_does_not_contradict_a_heavy_tailed_estimate() -> None:
    rng = np.random.default_rng(5)
    contradictions = 0
    for _ in range(300):
        first, second = (estimate(np.exp(3 * rng.standard_normal(64))) for _ in range(2))
        assert first.is_heavy_tailed
        assert first.interval[1] == math.inf
        low = max(first.median_interval[0], second.median_interval[0])
        contradictions += low > min(first.median_interval[1], second.median_interval[1])
    assert contradictions <= 6  # 0.5 % are expected of two 95 % intervals without a point in common


def test_diverged_trials_leave_the_median_its_interval() -> None:
    values = np.concatenate([np.linspace(1.0, 2.0, 30), np.full(5, math.inf)])
    found = estimate(values)
    assert found.mean == math.inf
    assert found.median == pytest.approx(values[17])
    assert 1.0 < found.median_interval[0] < found.median < found.median_interval[1] < math.inf
    assert found.typical[0] == found.median


def test_too_few_trials_have_no_median_interval() -> None:
    assert sign_test_rank(5) == 0
    assert math.isnan(estimate(np.arange(1.0, 6.0)).median_interval[0])


def test_the_lower_bound_of_a_mean_lies_below_it() -> None:
    values = np.arange(1.0, 101.0)
    assert 0 < lower_bound_of_mean(values) < values.mean()


# Differences.


def pairs_of(name: str, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that share most of their draws; the first is lower by a factor that varies around 0.8."""
    draw, _ = GENERATORS[name]
    second = draw(rng, count)
    return 0.8 * second * np.exp(0.3 * rng.standard_normal(count)), second


@pytest.mark.parametrize("name", ["lognormal 2", "Pareto 1.5", "mixture"])
def test_the_difference_of_heavy_tailed_pairs_covers_the_truth(name: str) -> None:
    rng = np.random.default_rng(13)
    inside = heavy = 0
    for _ in range(600):
        found = paired_difference(*pairs_of(name, rng, 48))
        heavy += found.is_heavy_tailed
        truth = 10 * math.log10(0.8 if found.is_heavy_tailed else 0.8 * math.exp(0.045))
        inside += found.interval[0] <= truth <= found.interval[1]
    assert heavy > 500
    assert inside / 600 > 0.95 - 3 * math.sqrt(0.05 * 0.95 / 600)


def test_the_difference_of_calm_pairs_is_that_of_the_means_and_covers_it() -> None:
    rng = np.random.default_rng(17)
    inside = 0
    for _ in range(600):
        common = 1 + 0.1 * rng.standard_normal(24)
        a, b = common + 0.05 * rng.standard_normal(24), 2 * common + 0.05 * rng.standard_normal(24)
        found = paired_difference(a, b)
        assert found.statistic == "ratio of means"
        inside += found.interval[0] <= 10 * math.log10(0.5) <= found.interval[1]
    assert abs(inside / 600 - 0.95) < 3.5 * math.sqrt(0.05 * 0.95 / 600)


def test_a_difference_in_decibels_is_one_in_per_cent() -> None:
    found = paired_difference(np.array([1.0, 1.1, 0.9]), np.array([2.0, 2.2, 1.8]))
    assert found.decibels == pytest.approx(-3.0103)
    assert found.percent == pytest.approx(-50.0)
    assert (found.lower, found.higher) == (3, 0)


def test_the_one_that_diverges_loses() -> None:
    calm, lost = np.linspace(1.0, 1.2, 16), np.full(16, math.inf)
    found = paired_difference(calm, lost)
    assert found.decibels == -math.inf
    assert found.is_significant
    assert found.diverged == (0, 16)
    assert not paired_difference(lost, lost).is_significant
    assert math.isnan(paired_difference(lost, lost).decibels)


def test_one_diverged_trial_does_not_decide() -> None:
    calm = np.linspace(1.0, 1.2, 16)
    once = calm.copy()
    once[3] = math.inf
    found = paired_difference(calm, once)
    assert found.is_heavy_tailed
    assert not found.is_significant
    assert found.decibels == 0.0


@pytest.mark.parametrize("trials", [2, 4, 16, 64])
def test_steady_runs_are_seldom_called_unsteady(trials: int) -> None:
    """However few trials there are: their halves differ by chance, and more often by far where trials are few."""
    changes = np.random.default_rng(trials).standard_normal((4000, trials))
    alarms = sum(bool(find_unsteady({"mse": np.ones(trials)}, {"mse": change})) for change in changes)
    assert alarms <= 8  # 2 of 4000 expected
    assert find_unsteady({"mse": np.ones(trials)}, {"mse": 0.1 + 1e-5 * changes[0]})
