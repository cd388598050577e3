"""Round-robin masks: a window of M entries that moves on by M in each iteration.

S_{k,n} = {(o_k + nM + j) mod D, j = 0 … M − 1}; the offset o_k is uniform, drawn once per trial, for each
client or, coordinated, for all.
"""

import numpy as np

from psofed.compiled import compiled
from psofed.gaussian import bounded, mix_word


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
