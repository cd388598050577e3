"""All random numbers of one trial's attack, drawn at the engine's addresses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray
from psofed.engine.attackers import (
    attacks_now,
    common_normal,
    draw_byzantine,
    first_word,
    make_attackers,
    own_normal,
    set_byzantine,
)
from psofed.engine.compiling import compiled
from psofed.engine.hooks import AttackState
from psofed.engine.streams import Stream
from psofed.parts.base import Attack


@dataclass(frozen=True, eq=False)
class Shocks:
    """Random numbers of one trial's attack over N iterations, for any kind of attack.

    Attributes
    ----------
    byzantine, attacking : bool array (N, K)
        β_{k,n}, whether client k is Byzantine, and β_{k,n} τ_{k,n}, whether it attacks too.
    normals : array (N, K, D)
        Each client's standard normals.
    common_normals : array (N, D)
        Standard normals common to all clients.
    """

    byzantine: NDArray[np.bool_]
    attacking: NDArray[np.bool_]
    normals: FloatArray
    common_normals: FloatArray


def draw_shocks(
    attack: Attack | None, stream: Stream, is_byzantine: NDArray[np.bool_], iterations: int, dimension: int
) -> Shocks:
    """Draw all random numbers of one trial's attack; kernels draw the same numbers one at a time."""
    clients = len(is_byzantine)
    byzantine, attacking = np.zeros((2, iterations, clients), np.bool_)
    normals, common = np.zeros((iterations, clients, dimension)), np.zeros((iterations, dimension))
    if attack is not None:
        attackers = make_attackers(attack, is_byzantine, stream, np.zeros(0))
        sets = draw_byzantine(attack, stream, 0, iterations, clients)
        _fill_shocks(attackers, sets, byzantine, attacking, normals, common)
    return Shocks(byzantine, attacking, normals, common)


@compiled(by_content=True)
def _fill_shocks(
    attackers: AttackState,
    sets: IndexArray,
    byzantine: BoolArray,
    attacking: BoolArray,
    normals: FloatArray,
    common: FloatArray,
) -> None:
    iterations, clients, dimension = normals.shape
    key, gamma = attackers.stream.key[0], attackers.stream.gamma[0]
    for n in range(iterations):
        if sets.size:
            set_byzantine(sets[n], attackers)
        for i in range(dimension):
            common[n, i] = common_normal(key, gamma, n, dimension, i)
        for k in range(clients):
            word = first_word(n, clients, k, dimension)
            byzantine[n, k] = attackers.is_byzantine[k, 0]
            attacking[n, k] = attackers.is_byzantine[k, 0] and attacks_now(
                key, gamma, word, attackers.probability
            )
            for i in range(dimension):
                normals[n, k, i] = own_normal(key, gamma, word, i)
