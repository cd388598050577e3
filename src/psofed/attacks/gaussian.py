"""The paper's attack: a Byzantine participant adds N(0, σ_B² I) to what it uploads, with probability p_a.

w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} δ_{k,n+1}; its own local model stays clean (eq:attack_model).
"""

import math

import numpy as np

from psofed.attacks._moments import PerturbationMoments
from psofed.compiled import compiled, hook
from psofed.data import FloatArray
from psofed.gaussian import mix_word, normal_pair, split_word, unit_uniform
from psofed.hooks import ATTACK
from psofed.scenario import Attack, Scenario
from psofed.streams import WordArray


def options(attack: Attack, scenario: Scenario) -> FloatArray:
    """Return p_a and σ_B."""
    return np.array([attack.probability, math.sqrt(attack.variance)])


@hook(ATTACK)
def attack(n, key, gamma, uploaders, entries, is_byzantine, options, target, server, sent):
    """Add δ to every number that a Byzantine client sends while it attacks (so its error falls by δ)."""
    participants, shared, lanes = sent.shape
    width = _words_per_client(target.size)
    for p in range(participants):
        for lane in range(lanes):
            client = uploaders[p, lane]
            if is_byzantine[client]:
                base = (n * is_byzantine.size + client) * width
                if _attacks(key[lane], gamma[lane], base, options[0]):
                    for m in range(shared):
                        delta = _standard_delta(key[lane], gamma[lane], base, entries[p, m, lane])
                        sent[p, m, lane] -= options[1] * delta


def draw_perturbations(key: WordArray, gamma: WordArray, scenario: Scenario) -> FloatArray:
    """Return β_k τ_{k,n} δ_{k,n+1} of one trial, shape (iterations, K, D), as the hook would add them.

    Parameters
    ----------
    key, gamma : array (1,)
        The trial's attack stream.
    """
    out = np.zeros((scenario.iterations, scenario.num_clients, scenario.dimension))
    if scenario.attack is not None:
        probability, deviation = options(scenario.attack, scenario)
        _fill(key[0], gamma[0], scenario.attack.num_byzantine, probability, deviation, out)
    return out


def perturbation_moments(attack: Attack, num_clients: int) -> PerturbationMoments:
    """Return the moments of the perturbations τ_k δ_k of one uploaded entry.

    The first `num_byzantine` clients have E[(τδ)²] = p_a σ_B² (the diagonal of the paper's Ω_δ), with mean zero and
    independent between clients.

    Examples
    --------
    >>> perturbation_moments(Attack(num_byzantine=1, probability=0.5, variance=2.0), 2).second
    array([1., 0.])
    """
    byzantine = np.arange(num_clients) < attack.num_byzantine
    nothing = np.zeros(num_clients)
    second = np.where(byzantine, attack.probability * attack.variance, 0.0)
    return PerturbationMoments(nothing, second, nothing)


@compiled(inline=True)
def _words_per_client(size):
    # In each iteration: one word for τ, then one for every two entries of δ.
    return 1 + (size + 1) // 2


@compiled(inline=True)
def _attacks(key, gamma, base, probability):
    return unit_uniform(mix_word(key + np.uint64(base) * gamma)) < probability


@compiled(inline=True)
def _standard_delta(key, gamma, base, entry):
    high, low = split_word(mix_word(key + np.uint64(base + 1 + entry // 2) * gamma))
    x, y = normal_pair(high, low)
    return np.float64(y) if entry % 2 else np.float64(x)


@compiled
def _fill(key, gamma, num_byzantine, probability, deviation, out):
    iterations, clients, dimension = out.shape
    width = _words_per_client(dimension)
    for n in range(iterations):
        for k in range(num_byzantine):
            base = (n * clients + k) * width
            if _attacks(key, gamma, base, probability):
                for i in range(dimension):
                    out[n, k, i] = deviation * _standard_delta(key, gamma, base, i)
