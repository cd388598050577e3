"""Random masks: in each iteration a fresh uniform choice of M of the D entries.

S_{k,n} is independent over n, and over k unless coordinated.
"""

import numpy as np
from numpy.typing import NDArray

from psofed.engine.compiling import compiled
from psofed.engine.normals import bounded, mix_word


@compiled
def draw_entries(key, gamma, first, clients, num_clients, dimension, coordinated, out):
    """Fill ``out[t, p, m, lane]`` with the entries shared in iteration ``first + t``.

    Each mask is a partial Fisher–Yates shuffle; its swaps are undone, so the next starts from the identity.
    """
    iterations, participants, shared, lanes = out.shape
    entries = np.arange(dimension)
    swapped = np.empty(shared, np.int64)
    for t in range(iterations):
        for p in range(1 if coordinated else participants):
            for lane in range(lanes):
                mask = first + t if coordinated else (first + t) * num_clients + clients[t, p, lane]
                for m in range(shared):
                    word = mix_word(key[lane] + np.uint64(mask * shared + m) * gamma[lane])
                    other = m + bounded(word, dimension - m)
                    swapped[m] = other
                    entries[m], entries[other] = entries[other], entries[m]
                    out[t, p, m, lane] = entries[m]
                for m in range(shared - 1, -1, -1):
                    entries[m], entries[swapped[m]] = entries[swapped[m]], entries[m]
        if coordinated:
            for p in range(1, participants):
                out[t, p] = out[t, 0]


def mask_moments(dimension: int, num_shared: int) -> tuple[float, NDArray[np.float64]]:
    """Return E[S(i)] and the matrix E[S(i) S(j)] of one mask, shape (D, D) (Appendix A).

    E[S(i)] = p_e = M/D; E[S(i) S(j)] = p_e on the diagonal and p_e (M − 1)/(D − 1) off it.

    Examples
    --------
    >>> first, second = mask_moments(3, 2)
    >>> second.round(3)
    array([[0.667, 0.333, 0.333],
           [0.333, 0.667, 0.333],
           [0.333, 0.333, 0.667]])
    """
    p = num_shared / dimension
    off = p * (num_shared - 1) / (dimension - 1) if dimension > 1 else 0.0
    return p, np.full((dimension, dimension), off) + (p - off) * np.eye(dimension)
