"""A Byzantine participant exaggerates: it sends a multiple of its update, with probability p_a.

With w_n the server's model before the upload, w'_{k,n+1} = w_n + scale · (w_{k,n+1} − w_n) on the shared entries.
With the scale |S_n| one client alone decides the mean ("model replacement").

References
----------
Bagdasaryan, Veit, Hua, Estrin, Shmatikov, "How to backdoor federated learning", AISTATS 2020.
"""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import ATTACK
from psofed.parts.attacks._shared import OWN, draw_attacking, pack_options
from psofed.scenario import Attack, Scenario

OPTIONS = {"scale": {"default": 10.0, "low": 0.0, "text": "what the update is multiplied by"}}


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a, the set and the scale."""
    return pack_options(attack, attack.scale)


@hook(ATTACK)
def attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    """Multiply the update of every number that a Byzantine client sends while it attacks."""
    participants, shared, lanes = sent.shape
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, target.size)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if attacking[p, lane]:
                    own = server[entries[p, m, lane], lane]
                    sent[p, m, lane] = own + options[OWN] * (sent[p, m, lane] - own)


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
    >>> attack, nothing = Attack(num_byzantine=1, kind="scaled-update", scale=3), np.zeros((2, 2))
    >>> corrupt(attack, uploads, attacking, np.array([0.5, 0.5]), nothing, nothing[0])
    array([[ 2., nan],
           [ 2.,  3.]])
    """
    return np.where(attacking[:, None], server + attack.scale * (uploads - server), uploads)
