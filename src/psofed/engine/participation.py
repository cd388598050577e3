"""Participants: in each iteration |S_n| of the K clients, drawn uniformly without replacement."""

import numpy as np

from psofed.common.types import BoolArray, IndexArray, IntArray
from psofed.engine.choice import choose, make_choice_scratch
from psofed.engine.compiling import compiled
from psofed.engine.normals import bounded, mix_word
from psofed.engine.streams import WordArray


@compiled
def draw_participants(
    key: WordArray, gamma: WordArray, first: int, num_clients: int, out: IndexArray
) -> None:
    """Fill ``out[t, :, lane]`` with the participants of iteration ``first + t``, all different."""
    iterations, participants, lanes = out.shape
    scratch = make_choice_scratch(num_clients, participants, lanes)
    rows = out.reshape((iterations * participants, lanes))
    for t in range(iterations):
        for lane in range(lanes):
            scratch.first[lane] = np.uint64((first + t) * participants)
        choose(key, gamma, participants, scratch, rows, t * participants)


@compiled
def draw_from_available(
    key: WordArray, gamma: WordArray, first: int, available: BoolArray, counts: IntArray, out: IndexArray
) -> None:
    """Draw participants from the clients in ``available`` (T, K, lanes), all of them if there are too few.

    ``counts`` (T, lanes) receives their number; the places beyond it in ``out`` hold client 0.
    """
    iterations, participants, lanes = out.shape
    clients = available.shape[1]
    numbers, there = np.empty((clients + 1, lanes), np.int32), np.empty(lanes, np.int64)
    for t in range(iterations):
        for lane in range(lanes):
            there[lane] = 0
        # Over lanes inside, so that one trial need not wait for another.
        for k in range(clients):
            for lane in range(lanes):
                numbers[there[lane], lane] = k
                there[lane] += available[t, k, lane]
        for lane in range(lanes):
            count = min(participants, there[lane])
            counts[t, lane] = count
            word = key[lane] + np.uint64((first + t) * participants) * gamma[lane]
            for c in range(count):
                place = c + bounded(mix_word(word), there[lane] - c)
                word += gamma[lane]
                out[t, c, lane] = numbers[place, lane]
                numbers[place, lane] = numbers[c, lane]
            for c in range(count, participants):
                out[t, c, lane] = 0


@compiled
def find_reached(available: BoolArray, clients: IndexArray, out: BoolArray) -> None:
    """Fill ``out`` (T, P, lanes): whether each of the ``clients`` is in ``available`` (T, K, lanes)."""
    for t in range(out.shape[0]):
        for p in range(out.shape[1]):
            for lane in range(out.shape[2]):
                out[t, p, lane] = available[t, clients[t, p, lane], lane]
