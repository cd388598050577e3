"""A little is enough (ALIE): all attackers hide just outside the honest spread, on the same side.

In each entry i an attacker sends  w'_i = m_i + z s_i,  with m_i and s_i the mean and (sample) standard deviation of
the clean uploads of that entry in this iteration, which the attackers see. Near enough to pass as honest, they
shift what the server learns. Where fewer than two clean uploads hold the entry, s_i is 0; where none does, the
attacker has nothing to hide among and sends its own value.

References
----------
Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for distributed learning", NeurIPS 2019.
"""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import ATTACK
from psofed.parts.attacks._shared import OWN, clean_moments, draw_attacking, pack_options
from psofed.scenario import Attack, Scenario

OPTIONS = {"deviations": {"default": 1.5, "text": "z: how many standard deviations from the honest mean"}}


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a, the set and z."""
    return pack_options(attack, attack.deviations)


@hook(ATTACK)
def attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    """Put every attacked number z deviations beside the clean mean."""
    participants, shared, lanes = sent.shape
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, target.size)
    count, mean, deviation = clean_moments(entries, sent, attacking, target.size)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if attacking[p, lane]:
                    i = entries[p, m, lane]
                    if count[i, lane] > 0:
                        sent[p, m, lane] = mean[i, lane] - options[OWN] * deviation[i, lane]


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
    >>> attack, nothing = Attack(num_byzantine=1, kind="little-is-enough", deviations=2**0.5), np.zeros((3, 2))
    >>> corrupt(attack, uploads, attacking, nothing[0], nothing, nothing[0]).round(9)
    array([[ 4.,  9.],
           [ 1., nan],
           [ 3., nan]])
    """
    received = uploads.copy()
    for i in range(len(server)):
        clean = uploads[~attacking & ~np.isnan(uploads[:, i]), i]
        if len(clean):
            spread = clean.std(ddof=1) if len(clean) > 1 else 0.0
            received[attacking & ~np.isnan(uploads[:, i]), i] = clean.mean() + attack.deviations * spread
    return received
