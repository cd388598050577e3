"""Every pattern's draws: exactly M entries, the stated shares, and the promises on time and clients."""

import math

import numpy as np
import pytest

from psofed import Scenario, Selection
from psofed.parts.contexts import Mask
from psofed.parts.patterns import Random
from psofed.parts.registry import part_names
from reference.draws import draw_trial

pytestmark = [pytest.mark.parts, pytest.mark.engine]

PATTERNS = part_names("pattern")
K, D, M, N = 6, 5, 2, 400


def masks(pattern: str, coordinated: bool, trials: int = 8, shared: int = M) -> np.ndarray:
    """Download masks, shape (trials, N, K, D)."""
    selection = Selection(pattern=pattern, coordinated=coordinated)
    scenario = Scenario(num_clients=K, dimension=D, num_shared=shared, iterations=N, selection=selection)
    return np.array([draw_trial(scenario, 3, trial).download_masks for trial in range(trials)])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_coordinated_clients_share_one_mask(pattern: str) -> None:
    drawn = masks(pattern, coordinated=True)
    assert (drawn == drawn[:, :, :1]).all()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_uncoordinated_clients_have_masks_of_their_own(pattern: str) -> None:
    drawn = masks(pattern, coordinated=False, trials=200)[:, 0]
    together = np.mean(drawn[:, 0] & drawn[:, 1])
    error = math.sqrt((M / D) ** 2 / (200 * D))
    assert abs(together - (M / D) ** 2) < 4 * error


@pytest.mark.parametrize("coordinated", [True, False])
def test_round_robin_moves_on_by_m(coordinated: bool) -> None:
    drawn = masks("round-robin", coordinated)
    assert np.array_equal(np.roll(drawn[:, :-1], M, axis=-1), drawn[:, 1:])


def test_participants_are_distinct_and_equally_often_drawn() -> None:
    scenario = Scenario(num_clients=9, dimension=2, num_participants=4, iterations=5000)
    chosen = draw_trial(scenario, 1, 0).participants
    assert (chosen.sum(axis=1) == 4).all()
    share, pair = 4 / 9, 4 / 9 * 3 / 8
    assert np.abs(chosen.mean(axis=0) - share).max() < 4.5 * math.sqrt(share * (1 - share) / 5000)
    both = (chosen[:, :, None] & chosen[:, None, :]).mean(axis=0)[np.triu_indices(9, 1)]
    assert np.abs(both - pair).max() < 4.5 * math.sqrt(pair * (1 - pair) / 5000)


def test_a_redrawn_uplink_is_independent_of_the_download() -> None:
    scenario = Scenario(num_clients=9, dimension=2, num_participants=4, iterations=5000, uplink="redrawn")
    draws = draw_trial(scenario, 1, 0)
    assert (draws.uploaders.sum(axis=1) == 4).all()
    overlap = np.mean(draws.participants & draws.uploaders)
    assert abs(overlap - (4 / 9) ** 2) < 4 * math.sqrt((4 / 9) ** 2 / (5000 * 9))


@pytest.mark.parametrize(
    ("shared", "chosen"), [(1, [0]), (3, [0, 98, 99]), (32, [0, *range(69, 100)]), (33, [*range(33)])]
)
def test_up_to_32_random_entries_are_chosen_floyds_way_and_more_by_shuffling(shared: int, chosen: list[int]) -> None:
    out = np.empty(shared, np.int64)
    Random().select(Mask(0, 0, 100, shared, np.zeros(shared), 0.0), out)
    assert out.tolist() == chosen
