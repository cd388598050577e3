"""The paper's attack: a Byzantine participant adds N(0, σ_B² I) to what it uploads, with probability p_a.

w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} δ_{k,n+1}; its own local model stays clean (eq:attack_model).

References
----------
Lari, Arablouei, Gogineni, Werner, "Resilience in Online Federated Learning: Mitigating Model-Poisoning
Attacks via Partial Sharing", IEEE TSIPN.
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
    count_byzantine,
    draw_attacking,
    draw_shocks,
    first_word,
    own_normal,
    pack_options,
)
from psofed.scenario import Attack, Scenario

OPTIONS = {"variance": {"default": 0.5, "low": 0.0, "text": "σ_B²: variance of the perturbation δ"}}


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a, the set and σ_B."""
    return pack_options(attack, attack.variance**0.5)


@hook(ATTACK)
def attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    """Add δ to every number that a Byzantine client sends while it attacks (so its error falls by δ)."""
    participants, shared, lanes = sent.shape
    clients, dimension = is_byzantine.shape[0], target.size
    attacking = draw_attacking(n, key, gamma, uploaders, is_byzantine, options, dimension)
    for p in range(participants):
        for lane in range(lanes):
            if attacking[p, lane]:
                word = first_word(n, clients, uploaders[p, lane], dimension)
                for m in range(shared):
                    delta = own_normal(key[lane], gamma[lane], word, entries[p, m, lane])
                    sent[p, m, lane] -= options[OWN] * delta


def corrupt(
    attack: Attack,
    uploads: FloatArray,
    attacking: NDArray[np.bool_],
    server: FloatArray,
    own: FloatArray,
    common: FloatArray,
) -> FloatArray:
    """Return the uploads as the server receives them.

    Parameters
    ----------
    attack : Attack
        Its options.
    uploads : array (P, D)
        Models of the participants, in the order of their numbers; NaN where an entry is not shared.
    attacking : bool array (P,)
        Who of them attacks.
    server : array (D,)
        w_n.
    own, common : arrays (P, D) and (D,)
        Standard normals of each participant, and of all.

    Examples
    --------
    >>> uploads, attacking = np.array([[1.0, np.nan], [2.0, 3.0]]), np.array([True, False])
    >>> own = np.full((2, 2), 2.0)
    >>> corrupt(Attack(num_byzantine=1, variance=0.25), uploads, attacking, np.zeros(2), own, np.zeros(2))
    array([[ 2., nan],
           [ 2.,  3.]])
    """
    return np.asarray(uploads + attacking[:, None] * attack.variance**0.5 * own)


def draw_perturbations(key: WordArray, gamma: WordArray, scenario: Scenario) -> FloatArray:
    """Return β_k τ_{k,n} δ_{k,n+1} of one trial, shape (iterations, K, D), as the hook would add them.

    Parameters
    ----------
    key, gamma : array (1,)
        The trial's attack stream.
    """
    shocks = draw_shocks(key, gamma, scenario)
    deviation = 0.0 if scenario.attack is None else scenario.attack.variance**0.5
    return np.asarray(shocks.attacking[:, :, None] * deviation * shocks.own)


def perturbation_moments(attack: Attack, num_clients: int) -> PerturbationMoments:
    """Return the moments of the perturbations τ_k δ_k of one uploaded entry.

    Byzantine clients have E[(τδ)²] = p_a σ_B² (the diagonal of the paper's Ω_δ), with mean zero and independent
    between clients.

    Examples
    --------
    >>> perturbation_moments(Attack(num_byzantine=1, probability=0.5, variance=2.0), 2).second
    array([1., 0.])
    """
    byzantine, _ = count_byzantine(attack, num_clients)
    nothing = np.zeros(num_clients)
    return PerturbationMoments(nothing, byzantine * (attack.probability * attack.variance), nothing)
