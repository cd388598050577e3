"""Participants: in each iteration |S_n| of the K clients, drawn uniformly without replacement."""

import numpy as np

from psofed.common.types import BoolArray, IndexArray, IntArray
from psofed.engine.choice import ChoiceScratch, choose, make_choice_scratch
from psofed.engine.compiling import compiled
from psofed.engine.normals import bounded, mix_word
from psofed.engine.streams import WordArray


def draw_participants(
    key: WordArray, gamma: WordArray, first: int, num_clients: int, out: IndexArray
) -> None:
    """Fill ``out[t, :, lane]`` with the participants of iteration ``first + t``, all different."""
    iterations, participants, lanes = out.shape
    scratch = make_choice_scratch(num_clients, participants, lanes)
    rows = out.reshape((iterations * participants, lanes))
    fill_participants(key, gamma, first, participants, scratch, rows)


@compiled(allocates=False)
def fill_participants(
    key: WordArray, gamma: WordArray, first: int, participants: int, scratch: ChoiceScratch, rows: IndexArray
) -> None:
    """Fill the rows of successive iterations with participants."""
    lanes = rows.shape[1]
    for t in range(rows.shape[0] // participants):
        for lane in range(lanes):
            scratch.first[lane] = np.uint64((first + t) * participants)
        choose(key, gamma, participants, scratch, rows, t * participants)


@compiled
def draw_from_available(
    key: WordArray,
    gamma: WordArray,
    first: int,
    available: BoolArray,
    counts: IntArray,
    reached: BoolArray,
    out: IndexArray,
) -> None:
    """Draw participants from the clients in ``available`` (T, K, lanes), all of them if there are too few.

    ``counts`` (T, lanes) receives their number. The places beyond it in ``out`` (T, P, lanes) hold client 0, and are
    false in ``reached``.
    """
    iterations, participants, lanes = out.shape
    clients = available.shape[1]
    numbers = np.empty(clients + 1, np.int32)
    for t in range(iterations):
        for lane in range(lanes):
            there = 0
            for k in range(clients):
                numbers[there] = k
                there += available[t, k, lane]
            count = min(participants, there)
            counts[t, lane] = count
            word = key[lane] + np.uint64((first + t) * participants) * gamma[lane]
            for c in range(count):
                place = c + bounded(mix_word(word), there - c)
                word += gamma[lane]
                out[t, c, lane] = numbers[place]
                numbers[place] = numbers[c]
            for c in range(count, participants):
                out[t, c, lane] = 0
            for c in range(participants):
                reached[t, c, lane] = c < count


@compiled
def fill_places(available: BoolArray, counts: IntArray, out: IndexArray) -> None:
    """Put different clients that are not in ``available`` (T, K, lanes) into places of ``out`` beyond ``counts``."""
    iterations, participants, lanes = out.shape
    for t in range(iterations):
        for lane in range(lanes):
            place = counts[t, lane]
            for k in range(available.shape[1]):
                if place < participants and not available[t, k, lane]:
                    out[t, place, lane] = k
                    place += 1


@compiled
def find_reached(available: BoolArray, clients: IndexArray, out: BoolArray) -> None:
    """Fill ``out`` (T, P, lanes): whether each of the ``clients`` is in ``available`` (T, K, lanes)."""
    for t in range(out.shape[0]):
        for p in range(out.shape[1]):
            for lane in range(out.shape[2]):
                out[t, p, lane] = available[t, clients[t, p, lane], lane]
