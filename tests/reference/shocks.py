"""All random numbers of one trial's attack, drawn at the engine's addresses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray
from psofed.engine.attacks import common_normal, first_word
from psofed.engine.compiling import compiled
from psofed.engine.draws import draw_byzantine
from psofed.engine.normals import normal_at, uniform_at
from psofed.engine.streams import Stream, WordArray
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
        byzantine[:] = is_byzantine
        if attack.byzantine_set == "redrawn":
            byzantine[:] = False
            sets = draw_byzantine(attack, stream, 0, iterations, clients)[:, 0]
            np.put_along_axis(byzantine, sets.astype(np.int64), True, axis=1)
        _fill_shocks(np.array(stream), attack.probability, byzantine, attacking, normals, common)
    return Shocks(byzantine, attacking, normals, common)


@compiled
def _fill_shocks(
    stream: WordArray,
    probability: float,
    byzantine: BoolArray,
    attacking: BoolArray,
    normals: FloatArray,
    common: FloatArray,
) -> None:
    iterations, clients, dimension = normals.shape
    for n in range(iterations):
        for i in range(dimension):
            common[n, i] = common_normal(stream, 0, n, dimension, i)
        for k in range(clients):
            word = first_word(n, clients, k, dimension)
            attacking[n, k] = byzantine[n, k] and uniform_at(stream, 0, word) < probability
            for i in range(dimension):
                normals[n, k, i] = normal_at(stream, 0, word + 1, i)
