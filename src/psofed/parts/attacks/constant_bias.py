"""A Byzantine participant adds the same constant b to every number it uploads, with probability p_a.

w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} b·1. It does not average out over clients, entries or time.
"""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import ATTACK
from psofed.engine.streams import WordArray
from psofed.parts.attacks._moments import PerturbationMoments
from psofed.parts.attacks._shared import OWN, count_byzantine, draw_attacking, draw_shocks, pack_options
from psofed.scenario import Attack, Scenario

OPTIONS = {"bias": {"default": 0.5, "text": "b: what is added to every number"}}


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a, the set and b."""
    return pack_options(attack, attack.bias)


@hook(ATTACK)
def attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    """Add b to every number that a Byzantine client sends while it attacks (so its error falls by b)."""
    participants, shared, lanes = sent.shape
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, target.size)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if attacking[p, lane]:
                    sent[p, m, lane] -= options[OWN]


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
    >>> attack, nothing = Attack(num_byzantine=1, kind="constant-bias", bias=2), np.zeros((2, 2))
    >>> corrupt(attack, uploads, attacking, nothing[0], nothing, nothing[0])
    array([[ 3., nan],
           [ 2.,  3.]])
    """
    return np.asarray(uploads + attacking[:, None] * attack.bias)


def draw_perturbations(key: WordArray, gamma: WordArray, scenario: Scenario) -> FloatArray:
    """Return β_k τ_{k,n} b of one trial, shape (iterations, K, D), as the hook would add them."""
    bias = 0.0 if scenario.attack is None else scenario.attack.bias
    attacking = draw_shocks(key, gamma, scenario).attacking
    return np.repeat(attacking[:, :, None] * bias, scenario.dimension, axis=2)


def perturbation_moments(attack: Attack, num_clients: int) -> PerturbationMoments:
    """Return the moments of τ_k b: mean p_a b, second moment p_a b², E[τ_k b τ_l b] = p_a² b².

    Examples
    --------
    >>> moments = perturbation_moments(Attack(num_byzantine=1, kind="constant-bias", probability=0.5, bias=2.0), 2)
    >>> moments.mean, moments.second
    (array([1., 0.]), array([2., 0.]))
    """
    byzantine, pair = count_byzantine(attack, num_clients)
    mean = byzantine * (attack.probability * attack.bias)
    return PerturbationMoments(mean, byzantine * (attack.probability * attack.bias**2), pair**0.5 * mean)
