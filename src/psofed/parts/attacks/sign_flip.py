"""A Byzantine participant turns its update round: away from where its data points, with probability p_a.

With w_n the server's model before the upload and u = w_{k,n+1} − w_n on the shared entries,

    of = "update":  w'_{k,n+1} = w_n − scale · u            of = "model":  w'_{k,n+1} = −scale · w_{k,n+1}

In papers where clients send gradients the first is meant. Near the steady state u is small and of mean zero, so
the first is weak here; the second pushes towards −w all the time.

References
----------
Li, Xu, Chen, Giannakis, Ling, "RSA: Byzantine-robust stochastic aggregation methods", AAAI 2019.
"""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import ATTACK
from psofed.parts.attacks._shared import OWN, draw_attacking, pack_options
from psofed.scenario import Attack, Scenario

OPTIONS = {
    "scale": {"default": 1.0, "low": 0.0, "text": "how far the turned update or model reaches"},
    "of": {"default": "update", "choices": ("update", "model"), "text": "what is turned round"},
}


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a, the set, the scale, and 1 if the model is turned, else 0."""
    return pack_options(attack, attack.scale, attack.of == "model")


@hook(ATTACK)
def attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    """Turn round every number that a Byzantine client sends while it attacks."""
    participants, shared, lanes = sent.shape
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, target.size)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if attacking[p, lane]:
                    i = entries[p, m, lane]
                    # A model's entry is its target less the error; where the update is turned, from w_n on.
                    origin = target[i] if options[OWN + 1] else server[i, lane]
                    sent[p, m, lane] = origin - options[OWN] * (sent[p, m, lane] - origin)


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
    >>> attack, nothing = Attack(num_byzantine=1, kind="sign-flip", scale=2), np.zeros((2, 2))
    >>> corrupt(attack, uploads, attacking, np.array([0.5, 0.5]), nothing, nothing[0])
    array([[-0.5,  nan],
           [ 2. ,  3. ]])
    """
    origin = np.zeros_like(server) if attack.of == "model" else server
    return np.where(attacking[:, None], origin - attack.scale * (uploads - origin), uploads)
