"""A Byzantine client learns from wrong labels: y' = −scale · y, with probability p_a in each iteration.

Its local model is poisoned too, participant or not; what it uploads is honestly what it has learned. Metrics are
measured on the clean samples.

References
----------
Tolpegin, Truex, Gursoy, Liu, "Data poisoning attacks against federated learning systems", ESORICS 2020, whose
flipped classes become a flipped sign in regression.
"""

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import POISON
from psofed.parts.attacks._shared import OWN, attacks_now, first_word, pack_options
from psofed.scenario import Attack, Scenario

OPTIONS = {"scale": {"default": 1.0, "low": 0.0, "text": "how large the flipped label is"}}


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a, the set and the scale."""
    return pack_options(attack, attack.scale)


@hook(POISON)
def poison(n, k, key, gamma, is_byzantine, options, target, inputs, noise):
    """Change ν = y − wᵀx into y' − wᵀx, where client k is Byzantine and attacks."""
    dimension, lanes = inputs.shape
    word = first_word(n, is_byzantine.shape[0], k, dimension)
    for lane in range(lanes):
        if is_byzantine[k, lane] and attacks_now(key[lane], gamma[lane], word, options[0]):
            clean = 0.0
            for i in range(dimension):
                clean += target[i] * inputs[i, lane]
            noise[lane] = -options[OWN] * (clean + noise[lane]) - clean


def poison_sample(attack: Attack, x: FloatArray, y: float, own: FloatArray) -> tuple[FloatArray, float]:
    """Return the sample that an attacking client learns from.

    Parameters
    ----------
    attack : Attack
        Its options.
    x, y : array (D,) and float
        The clean sample.
    own : array (D,)
        Standard normals of this client and iteration.

    Examples
    --------
    >>> import numpy as np
    >>> attack = Attack(num_byzantine=1, kind="label-poisoning", scale=2)
    >>> poison_sample(attack, np.ones(2), 3.0, np.zeros(2))
    (array([1., 1.]), -6.0)
    """
    return x, -attack.scale * y
