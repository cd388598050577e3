"""The paper's attack: a Byzantine participant adds N(0, σ_B² I) to what it uploads, with probability p_a.

w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} δ_{k,n+1}; its own local model stays clean (eq:attack_model).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.compiled import compiled
from psofed.gaussian import mix_word, normal_pair, split_word, unit_uniform
from psofed.scenario import Attack
from psofed.streams import WordArray


def draw_perturbation(
    key: WordArray,
    gamma: WordArray,
    first: int,
    clients: NDArray[np.int32],
    entries: NDArray[np.int32],
    num_clients: int,
    dimension: int,
    attack: Attack,
    out: NDArray[np.float64],
) -> None:
    """Fill ``out[t, p, m, lane]`` with β_k τ_{k,n} δ_{k,n+1} at the uploaded entries."""
    options: tuple[Any, ...] = (attack.num_byzantine, attack.probability, attack.variance**0.5)
    _draw(key, gamma, first, clients, entries, num_clients, dimension, *options, out)


@compiled
def _draw(key, gamma, first, clients, entries, num_clients, dimension, byzantine, probability, deviation, out):  # type: ignore[no-untyped-def]
    # Of each client and iteration: one word for τ, then one for every two entries of δ.
    words = 1 + (dimension + 1) // 2
    iterations, participants, shared, lanes = out.shape
    for t in range(iterations):
        for p in range(participants):
            for lane in range(lanes):
                client = clients[t, p, lane]
                base = ((first + t) * num_clients + client) * words
                attacks = client < byzantine and (
                    unit_uniform(mix_word(key[lane] + np.uint64(base) * gamma[lane])) < probability
                )
                for m in range(shared):
                    value = 0.0
                    if attacks:
                        entry = entries[t, p, m, lane]
                        word = mix_word(key[lane] + np.uint64(base + 1 + entry // 2) * gamma[lane])
                        high, low = split_word(word)
                        x, y = normal_pair(high, low)
                        value = deviation * (y if entry % 2 else x)
                    out[t, p, m, lane] = value
