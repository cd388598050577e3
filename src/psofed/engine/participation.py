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
    numbers = np.empty(available.shape[1], np.int64)
    for t in range(iterations):
        for lane in range(lanes):
            there = 0
            for k in range(numbers.size):
                numbers[there] = k
                there += available[t, k, lane]
            count = min(participants, there)
            counts[t, lane] = count
            for c in range(count):
                word = np.uint64((first + t) * participants + c)
                place = c + bounded(mix_word(key[lane] + word * gamma[lane]), there - c)
                numbers[c], numbers[place] = numbers[place], numbers[c]
                out[t, c, lane] = numbers[c]
            for c in range(count, participants):
                out[t, c, lane] = 0
