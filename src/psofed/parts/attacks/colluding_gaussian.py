"""All who attack in an iteration add the same δ_n ~ N(0, σ_B² I): noise that does not average out.

w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} δ_n. Each still attacks with probability p_a of its own. It breaks assumption
A2 of the paper, perturbations that are independent between clients. Two colluders who share different entries add
the entries of δ_n that they share.
"""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import ATTACK
from psofed.engine.streams import WordArray
from psofed.parts.attacks._moments import PerturbationMoments
from psofed.parts.attacks._shared import (
    OWN,
    common_normal,
    count_byzantine,
    draw_attacking,
    draw_shocks,
    pack_options,
)
from psofed.scenario import Attack, Scenario

OPTIONS = {"variance": {"default": 0.5, "low": 0.0, "text": "σ_B²: variance of the common perturbation δ"}}


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a, the set and σ_B."""
    return pack_options(attack, attack.variance**0.5)


@hook(ATTACK)
def attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    """Add δ_n to every number that a Byzantine client sends while it attacks (so its error falls by δ_n)."""
    participants, shared, lanes = sent.shape
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, target.size)
    for p in range(participants):
        for lane in range(lanes):
            if attacking[p, lane]:
                for m in range(shared):
                    delta = common_normal(key[lane], gamma[lane], n, target.size, entries[p, m, lane])
                    sent[p, m, lane] -= options[OWN] * delta


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
    >>> uploads, attacking = np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([True, True])
    >>> attack = Attack(num_byzantine=2, kind="colluding-gaussian", variance=0.25)
    >>> corrupt(attack, uploads, attacking, np.zeros(2), np.zeros((2, 2)), np.array([2.0, 4.0]))
    array([[ 2., nan],
           [ 3.,  5.]])
    """
    return np.asarray(uploads + attacking[:, None] * attack.variance**0.5 * common)


def draw_perturbations(key: WordArray, gamma: WordArray, scenario: Scenario) -> FloatArray:
    """Return β_k τ_{k,n} δ_n of one trial, shape (iterations, K, D), as the hook would add them."""
    shocks = draw_shocks(key, gamma, scenario)
    deviation = 0.0 if scenario.attack is None else scenario.attack.variance**0.5
    return np.asarray(shocks.attacking[:, :, None] * deviation * shocks.common[:, None])


def perturbation_moments(attack: Attack, num_clients: int) -> PerturbationMoments:
    """Return the moments of τ_k δ of one uploaded entry: E[(τ_k δ)²] = p_a σ_B², E[τ_k δ τ_l δ] = p_a² σ_B².

    Examples
    --------
    >>> moments = perturbation_moments(Attack(num_byzantine=2, kind="colluding-gaussian", probability=0.5,
    ...                                       variance=4.0), 2)
    >>> moments.second, moments.common
    (array([2., 2.]), array([1., 1.]))
    """
    byzantine, pair = count_byzantine(attack, num_clients)
    second = byzantine * (attack.probability * attack.variance)
    common = byzantine * (attack.probability * (pair * attack.variance) ** 0.5)
    return PerturbationMoments(np.zeros(num_clients), second, common)
