"""All attackers send what one honest client sends, which so gets too many votes.

In each entry an attacker sends the number that the clean participant with the lowest client number, of those who
share the entry in this iteration, sends; always siding with the same clients, it biases the model towards their
data. Where no clean upload holds the entry, the attacker sends its own value. Nothing it sends is out of the
ordinary, so no rule can tell it from an honest client.

References
----------
Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.
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
    """Copy the clean upload of the lowest client number into every attacked number."""
    participants, shared, lanes = sent.shape
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, target.size)
    # The lowest clean client for each entry, and what it sends.
    lowest = np.full(server.shape, is_byzantine.shape[0])
    copied = np.zeros(server.shape)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                i = entries[p, m, lane]
                if not attacking[p, lane] and uploaders[p, lane] < lowest[i, lane]:
                    lowest[i, lane] = uploaders[p, lane]
                    copied[i, lane] = sent[p, m, lane]
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if attacking[p, lane]:
                    i = entries[p, m, lane]
                    if lowest[i, lane] < is_byzantine.shape[0]:
                        sent[p, m, lane] = copied[i, lane]


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
    >>> uploads, attacking = np.array([[9.0, 9.0], [np.nan, 1.0], [3.0, 2.0]]), np.array([True, False, False])
    >>> attack, nothing = Attack(num_byzantine=1, kind="mimic"), np.zeros((3, 2))
    >>> corrupt(attack, uploads, attacking, nothing[0], nothing, nothing[0])
    array([[ 3.,  1.],
           [nan,  1.],
           [ 3.,  2.]])
    """
    received = uploads.copy()
    for i in range(len(server)):
        clean = uploads[~attacking & ~np.isnan(uploads[:, i]), i]
        if len(clean):
            received[attacking & ~np.isnan(uploads[:, i]), i] = clean[0]
    return received
