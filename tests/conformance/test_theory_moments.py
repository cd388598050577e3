"""Draws have the moments that theory is told: of the masks and of the attack."""

import itertools
import math

import numpy as np
import pytest

from psofed import Attack, NotCoveredError, Scenario, Selection, predict
from psofed.parts.registry import load_part, part_names
from psofed.reference.draws import draw_trial
from psofed.theory.affine_attacks import NOT_AFFINE, STATEMENTS, statement_of
from psofed.theory.masks import random_mask_moments, window_masks, window_period
from psofed.theory.models import byzantine_chances

D, M = 5, 3
WITH_MOMENTS = [
    kind for kind in part_names("attacks") if hasattr(load_part("attacks", kind), "perturbation_moments")
]


def test_random_masks_have_the_stated_pair_moments() -> None:
    selection = Selection(pattern="random", coordinated=False)
    scenario = Scenario(num_clients=6, dimension=D, num_shared=M, iterations=2000, selection=selection)
    masks = draw_trial(scenario, 5, 0).download_masks.reshape(-1, D).astype(float)
    first, second = load_part("patterns", "random").mask_moments(D, M)
    error = 4.5 * math.sqrt(0.25 / len(masks))
    assert np.abs(masks.mean(axis=0) - first).max() < error
    assert np.abs(masks.T @ masks / len(masks) - second).max() < error


@pytest.mark.parametrize("coordinated", [True, False])
def test_round_robin_masks_are_what_their_offset_says(coordinated: bool) -> None:
    part = load_part("patterns", "round-robin")
    selection = Selection(pattern="round-robin", coordinated=coordinated)
    scenario = Scenario(num_clients=6, dimension=D, num_shared=M, iterations=20, selection=selection)
    drawn = draw_trial(scenario, 5, 0).download_masks  # (n, K, D)
    for k in range(6):
        stated = [
            offset
            for offset in range(D)
            if all(
                np.array_equal(part.mask_given_offset(D, M, np.array(offset), n), drawn[n, k])
                for n in range(20)
            )
        ]
        assert len(stated) == 1
    period = part.mask_period(D, M)
    assert np.array_equal(drawn[0], drawn[period])


@pytest.mark.parametrize("kind", WITH_MOMENTS)
def test_perturbations_have_the_stated_moments(kind: str) -> None:
    part = load_part("attacks", kind)
    attack = Attack(kind=kind, num_byzantine=3, probability=0.4)
    scenario = Scenario(num_clients=5, dimension=D, iterations=4000, attack=attack)
    drawn = draw_trial(scenario, 5, 0).perturbations  # (n, K, D)
    moments = part.perturbation_moments(attack, 5)
    for k in range(5):
        assert_mean(drawn[:, k].mean(axis=1), moments.mean[k])
        assert_mean((drawn[:, k] ** 2).mean(axis=1), moments.second[k])
    for k, l in itertools.combinations(range(5), 2):  # noqa: E741
        assert_mean((drawn[:, k] * drawn[:, l]).mean(axis=1), moments.common[k] * moments.common[l])


def assert_mean(samples: np.ndarray, stated: float) -> None:
    """Iterations are independent whatever the attack; entries and clients need not be."""
    assert abs(samples.mean() - stated) <= 4.5 * samples.std(ddof=1) / math.sqrt(len(samples))


@pytest.mark.parametrize("kind", part_names("attacks"))
def test_every_attack_is_stated_to_the_theory_or_refused_by_name(kind: str) -> None:
    scenario = Scenario(num_clients=6, dimension=3, attack=Attack(kind=kind, num_byzantine=2))
    if kind in STATEMENTS:
        assert math.isfinite(predict(scenario).network_mse) or not predict(scenario).is_stable
    else:
        assert kind in NOT_AFFINE
        with pytest.raises(NotCoveredError, match=kind):
            predict(scenario)


@pytest.mark.parametrize("kind", WITH_MOMENTS)
def test_statements_and_perturbation_moments_say_the_same(kind: str) -> None:
    for byzantine_set in ("fixed", "redrawn"):
        attack = Attack(kind=kind, num_byzantine=3, probability=0.4, byzantine_set=byzantine_set)
        moments = load_part("attacks", kind).perturbation_moments(attack, 5)
        stated = statement_of(attack)
        chance, factor = byzantine_chances(attack, 5)
        chance = attack.probability * chance
        second = stated.offset**2 + stated.variance + stated.common_variance
        np.testing.assert_allclose(moments.mean, chance * stated.offset)
        np.testing.assert_allclose(moments.second, chance * second)
        together = factor * chance[0] * chance[1] * (stated.offset**2 + stated.common_variance)
        assert moments.common[0] * moments.common[1] == pytest.approx(together)


def test_the_theorys_masks_are_those_of_the_patterns() -> None:
    first, second = load_part("patterns", "random").mask_moments(D, M)
    p, pair = random_mask_moments(D, M)
    np.testing.assert_allclose(second, np.where(np.eye(D) > 0, p, pair))
    assert first == p
    part, offsets = load_part("patterns", "round-robin"), np.arange(D)
    for n in range(4):
        np.testing.assert_array_equal(
            window_masks(D, M, offsets, n), part.mask_given_offset(D, M, offsets, n)
        )
    assert window_period(6, 4) == part.mask_period(6, 4)
