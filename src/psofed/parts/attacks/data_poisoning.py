"""A Byzantine client learns from corrupted inputs: x' = x + ξ, ξ ~ N(0, variance · I), with probability p_a.

The label stays y. Noise in the inputs makes least squares shrink towards zero, so its local model is poisoned too,
participant or not; what it uploads is honestly what it has learned. Metrics are measured on the clean samples.

References
----------
Steinhardt, Koh, Liang, "Certified defenses for data poisoning attacks", NeurIPS 2017.
"""

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import POISON
from psofed.parts.attacks._shared import OWN, attacks_now, first_word, own_normal, pack_options
from psofed.scenario import Attack, Scenario

OPTIONS = {"variance": {"default": 0.5, "low": 0.0, "text": "variance of the noise in the inputs"}}


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a, the set and the deviation of ξ."""
    return pack_options(attack, attack.variance**0.5)


@hook(POISON)
def poison(n, k, key, gamma, is_byzantine, options, target, inputs, noise):
    """Change x into x + ξ and ν into y − wᵀx' = ν − wᵀξ, where client k is Byzantine and attacks."""
    dimension, lanes = inputs.shape
    word = first_word(n, is_byzantine.shape[0], k, dimension)
    for lane in range(lanes):
        if is_byzantine[k, lane] and attacks_now(key[lane], gamma[lane], word, options[0]):
            for i in range(dimension):
                shift = options[OWN] * own_normal(key[lane], gamma[lane], word, i)
                inputs[i, lane] += shift
                noise[lane] -= target[i] * shift


def poison_sample(attack: Attack, x: FloatArray, y: float, own: FloatArray) -> tuple[FloatArray, float]:
    """Return the sample that an attacking client learns from (see :mod:`psofed.parts.attacks.label_poisoning`).

    Examples
    --------
    >>> import numpy as np
    >>> attack = Attack(num_byzantine=1, kind="data-poisoning", variance=0.25)
    >>> poison_sample(attack, np.ones(2), 3.0, np.array([2.0, -2.0]))
    (array([2., 0.]), 3.0)
    """
    return x + attack.variance**0.5 * own, y
