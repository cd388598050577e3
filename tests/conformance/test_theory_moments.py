"""Draws have the moments that theory is told, of the masks (those of attacks are in test_attacks.py)."""

import math
import re

import numpy as np
import pytest

from psofed import NotCoveredError, Scenario, Selection, predict
from psofed.parts.registry import find_part, part_names
from reference.draws import draw_trial

pytestmark = [pytest.mark.parts, pytest.mark.theory]

D, M = 5, 3


@pytest.mark.parametrize("pattern", part_names("pattern"))
def test_masks_have_the_pair_moments_or_the_period_that_are_stated(pattern: str) -> None:
    part = find_part("pattern", pattern)()
    selection = Selection(pattern=part, coordinated=False)
    scenario = Scenario(num_clients=6, dimension=D, num_shared=M, iterations=2000, selection=selection)
    drawn = draw_trial(scenario, 5, 0).download_masks
    period = part.mask_period(D, M) if pattern == "round-robin" else None
    moments = part.mask_moments(D, M)
    assert period is not None or moments is not None
    if period is not None:
        assert np.array_equal(drawn[:-period], drawn[period:])
    if moments is not None:
        masks = drawn.reshape(-1, D).astype(float)
        error = 4.5 * math.sqrt(0.25 / len(masks))
        assert np.abs(masks.mean(axis=0) - moments[0]).max() < error
        pairs = (masks.T @ masks / len(masks))[~np.eye(D, dtype=bool)]
        assert np.abs(pairs - moments[1]).max() < error


@pytest.mark.parametrize("coordinated", [True, False])
def test_round_robin_masks_are_what_their_offset_says(coordinated: bool) -> None:
    part = find_part("pattern", "round-robin")()
    selection = Selection(pattern="round-robin", coordinated=coordinated)
    scenario = Scenario(num_clients=6, dimension=D, num_shared=M, iterations=20, selection=selection)
    drawn = draw_trial(scenario, 5, 0).download_masks  # (n, K, D)
    for k in range(6):
        stated = [
            offset
            for offset in range(D)
            if all(np.array_equal(part.mask_given_offset(D, M, np.array(offset), n), drawn[n, k]) for n in range(20))
        ]
        assert len(stated) == 1
    period = part.mask_period(D, M)
    assert np.array_equal(drawn[0], drawn[period])


@pytest.mark.parametrize("kind", part_names("attack"))
def test_every_attack_is_stated_to_the_theory_or_refused_by_name(kind: str) -> None:
    attack = find_part("attack", kind)(num_byzantine=2)
    scenario = Scenario(num_clients=6, dimension=3, attack=attack)
    if attack.affine() is None:
        with pytest.raises(NotCoveredError, match=f'"{kind}": {re.escape(attack.not_affine_because)}'):
            predict(scenario)
    else:
        prediction = predict(scenario)
        assert math.isfinite(prediction.network_mse) or not prediction.is_stable
