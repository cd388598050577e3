"""Inner-product manipulation: all attackers send the honest mean update, turned round.

In each entry i an attacker sends  w'_i = w_{n,i} − scale · (m_i − w_{n,i}),  with w_n the server's model before the
upload and m_i the mean of the clean uploads of that entry in this iteration, which the attackers see. The inner
product of true and aggregated update becomes negative once scale · attackers > honest ones. Where no clean upload
holds the entry, the attacker sends its own value.

References
----------
Xie, Koyejo, Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation", UAI 2020.
"""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import ATTACK
from psofed.parts.attacks._shared import OWN, clean_moments, draw_attacking, pack_options
from psofed.scenario import Attack, Scenario

OPTIONS = {"scale": {"default": 2.0, "low": 0.0, "text": "ε: how far the turned mean update reaches"}}


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a, the set and ε."""
    return pack_options(attack, attack.scale)


@hook(ATTACK)
def attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    """Put the turned clean mean in the place of every attacked number."""
    participants, shared, lanes = sent.shape
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, target.size)
    count, mean, _ = clean_moments(entries, sent, attacking, target.size)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if attacking[p, lane]:
                    i = entries[p, m, lane]
                    if count[i, lane] > 0:
                        sent[p, m, lane] = server[i, lane] - options[OWN] * (mean[i, lane] - server[i, lane])


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
    >>> uploads, attacking = np.array([[9.0, 9.0], [1.0, np.nan], [3.0, np.nan]]), np.array([True, False, False])
    >>> attack, nothing = Attack(num_byzantine=1, kind="inner-product", scale=2), np.zeros((3, 2))
    >>> corrupt(attack, uploads, attacking, np.array([0.5, 0.5]), nothing, nothing[0])
    array([[-2.5,  9. ],
           [ 1. ,  nan],
           [ 3. ,  nan]])
    """
    received = uploads.copy()
    for i in range(len(server)):
        clean = uploads[~attacking & ~np.isnan(uploads[:, i]), i]
        if len(clean):
            turned = server[i] - attack.scale * (clean.mean() - server[i])
            received[attacking & ~np.isnan(uploads[:, i]), i] = turned
    return received
