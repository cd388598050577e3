"""A Byzantine participant downloads and then stays silent, with probability p_a.

Nothing of its upload arrives; under the mean it counts, as an entry that is not shared does, with the server's old
value. What each rule makes of missing numbers is said in :mod:`psofed.parts.aggregations`.
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
    """Send nothing (NaN) while a Byzantine client attacks."""
    participants, shared, lanes = sent.shape
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, target.size)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if attacking[p, lane]:
                    sent[p, m, lane] = np.nan


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
    >>> uploads, attacking = np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([True, False])
    >>> attack, nothing = Attack(num_byzantine=1, kind="drop-out"), np.zeros((2, 2))
    >>> corrupt(attack, uploads, attacking, nothing[0], nothing, nothing[0])
    array([[nan, nan],
           [ 2.,  3.]])
    """
    return np.where(attacking[:, None], np.nan, uploads)
