"""Round-robin masks: a window of M entries that moves on by M in each iteration.

S_{k,n} = {(o_k + nM + j) mod D, j = 0 … M − 1}; the offset o_k is uniform, drawn once per trial, for each
client or, coordinated, for all.
"""

import math

import numpy as np
from numpy.typing import NDArray

from psofed.engine.compiling import compiled
from psofed.engine.normals import bounded, mix_word


@compiled
def draw_entries(key, gamma, first, clients, num_clients, dimension, coordinated, out):
    """Fill ``out[t, p, m, lane]`` with the entries shared in iteration ``first + t``."""
    iterations, participants, shared, lanes = out.shape
    for t in range(iterations):
        for p in range(participants):
            for lane in range(lanes):
                client = 0 if coordinated else clients[t, p, lane]
                offset = bounded(mix_word(key[lane] + np.uint64(client) * gamma[lane]), dimension)
                start = (offset + (first + t) * shared) % dimension
                for m in range(shared):
                    out[t, p, m, lane] = (start + m) % dimension


def mask_period(dimension: int, num_shared: int) -> int:
    """Return after how many iterations the window is back where it began: D / gcd(D, M).

    Examples
    --------
    >>> mask_period(6, 4)
    3
    """
    return dimension // math.gcd(dimension, num_shared)


def mask_given_offset(
    dimension: int, num_shared: int, offset: NDArray[np.int64], n: int = 0
) -> NDArray[np.float64]:
    """Return the mask of iteration `n` for each given offset; it is certain, so it is its own moment.

    Examples
    --------
    >>> mask_given_offset(5, 2, np.array([0, 4]), n=1)
    array([[0., 0., 1., 1., 0.],
           [0., 1., 1., 0., 0.]])
    """
    place = (np.arange(dimension) - np.asarray(offset)[..., None] - n * num_shared) % dimension
    return (place < num_shared).astype(np.float64)
