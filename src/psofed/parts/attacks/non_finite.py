"""A Byzantine participant sends numbers that are none: NaN, infinity or minus infinity, with probability p_a.

Entries 0, 3, 6, … become NaN, entries 1, 4, 7, … infinity, entries 2, 5, 8, … minus infinity. A server that averages
without looking is destroyed by one such upload; here no rule lets one into the model, and what arrives not
finite counts as not sent. So the attack is as harmful as ``"drop-out"``, and a test of every rule.
"""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import ATTACK
from psofed.parts.attacks._shared import draw_attacking, pack_options
from psofed.scenario import Attack, Scenario


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a and the set."""
    return pack_options(attack)


@hook(ATTACK)
def attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    """Send NaN, ∞ or −∞ (as errors: NaN, −∞, ∞) while a Byzantine client attacks."""
    participants, shared, lanes = sent.shape
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, target.size)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if attacking[p, lane]:
                    kind = entries[p, m, lane] % 3
                    sent[p, m, lane] = np.nan if kind == 0 else (-np.inf if kind == 1 else np.inf)


def corrupt(
    attack: Attack,
    uploads: FloatArray,
    attacking: NDArray[np.bool_],
    server: FloatArray,
    own: FloatArray,
    common: FloatArray,
) -> FloatArray:
    """Return the uploads as the server receives them (see :func:`psofed.parts.attacks.gaussian.corrupt`).

    Examples
    --------
    >>> uploads, attacking = np.array([[1.0, 2.0], [2.0, 3.0]]), np.array([True, False])
    >>> attack, nothing = Attack(num_byzantine=1, kind="non-finite"), np.zeros((2, 2))
    >>> corrupt(attack, uploads, attacking, nothing[0], nothing, nothing[0])
    array([[nan, inf],
           [ 2.,  3.]])
    """
    bad = np.resize([np.nan, np.inf, -np.inf], len(server))
    return np.where(attacking[:, None] & ~np.isnan(uploads), bad, uploads)
