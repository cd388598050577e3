"""Who participates: in each iteration a fresh uniform choice of |S_n| of the K clients."""

import numpy as np

from psofed.engine.compiling import compiled
from psofed.engine.normals import bounded, mix_word


@compiled
def draw_participants(key, gamma, first, num_clients, out):
    """Fill ``out[t, :, lane]`` with the participants of iteration ``first + t``, all different.

    A partial Fisher–Yates shuffle whose swaps are undone, so that each iteration starts from the identity
    and depends on its own words alone.
    """
    iterations, participants, lanes = out.shape
    clients = np.arange(num_clients)
    swapped = np.empty(participants, np.int64)
    for t in range(iterations):
        for lane in range(lanes):
            for p in range(participants):
                word = mix_word(key[lane] + np.uint64((first + t) * participants + p) * gamma[lane])
                other = p + bounded(word, num_clients - p)
                swapped[p] = other
                clients[p], clients[other] = clients[other], clients[p]
                out[t, p, lane] = clients[p]
            for p in range(participants - 1, -1, -1):
                clients[p], clients[swapped[p]] = clients[swapped[p]], clients[p]
