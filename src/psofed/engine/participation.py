"""Participants: in each iteration |S_n| of the K clients, drawn uniformly without replacement."""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, IndexArray, IntArray
from psofed.engine.choice import FEW, ChoiceScratch, choose, choose_few, make_choice_scratch
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.lanes import WIDTH, load, pick_if_equal, spread, store
from psofed.engine.streams import WordArray


def draw_participants(
    key: WordArray, gamma: WordArray, first: int, num_clients: int, out: IndexArray
) -> None:
    """Fill ``out[t, :, lane]`` with the participants of iteration ``first + t``, all different."""
    iterations, participants, lanes = out.shape
    scratch = make_choice_scratch(key, gamma, num_clients, participants)
    fill_participants(first, participants, scratch, out.reshape((iterations * participants, lanes)))


@compiled(allocates=False)
def fill_participants(first: int, participants: int, scratch: ChoiceScratch, rows: IndexArray) -> None:
    """Fill the rows of successive iterations with participants."""
    for t in range(rows.shape[0] // participants):
        for lane in range(rows.shape[1]):
            scratch.first[lane] = np.uint64((first + t) * participants)
        choose(participants, scratch, rows, t * participants)


def draw_from_available(
    key: WordArray,
    gamma: WordArray,
    first: int,
    available: NDArray[np.uint8],
    counts: IntArray,
    reached: BoolArray,
    out: IndexArray,
) -> None:
    """Draw participants from the clients in ``available`` (T, K, lanes), all of them if there are too few.

    ``counts`` (T, lanes) receives their number. The places beyond it in ``out`` (T, P, lanes) hold client 0, and are
    false in ``reached``. ``available`` has one more vector of values behind it.
    """
    iterations, participants, lanes = out.shape
    clients = available.shape[1]
    scratch = make_choice_scratch(key, gamma, clients, participants)
    padded = scratch.key.size
    # Whose turn each client is among those available, −1 for the others; and their number.
    ranks, there = np.empty((clients, padded), np.int32), np.empty(padded, np.int32)
    rows = out.reshape((iterations * participants, lanes))
    numbers = np.empty(clients, np.int32)
    _fill_from_available(first, available, scratch, ranks, there, numbers, counts, reached, rows, out)


@compiled(allocates=False)
def _fill_from_available(
    first: int,
    available: NDArray[np.uint8],
    scratch: ChoiceScratch,
    ranks: IndexArray,
    there: IndexArray,
    numbers: IndexArray,
    counts: IntArray,
    reached: BoolArray,
    rows: IndexArray,
    out: IndexArray,
) -> None:
    iterations, participants, lanes = out.shape
    clients = available.shape[1]
    for t in range(iterations):
        _rank_available(available, t, ranks, there)
        for lane in range(lanes):
            scratch.first[lane] = np.uint64((first + t) * participants)
            scratch.sizes[lane] = np.uint64(there[lane])
            counts[t, lane] = min(participants, there[lane])
        if participants <= FEW:
            choose_few(participants, scratch)
            _find_clients(ranks, scratch.chosen)
            for p in range(participants):
                for lane in range(lanes):
                    out[t, p, lane] = scratch.chosen[p, lane] if p < counts[t, lane] else 0
                    reached[t, p, lane] = p < counts[t, lane]
            continue
        choose(participants, scratch, rows, t * participants)
        for lane in range(lanes):
            for k in range(clients):
                if ranks[k, lane] >= 0:
                    numbers[ranks[k, lane]] = k
            for p in range(participants):
                reached[t, p, lane] = p < counts[t, lane]
                out[t, p, lane] = numbers[out[t, p, lane]] if p < counts[t, lane] else 0


@kernel_part(inline=True)
def _rank_available(available: NDArray[np.uint8], t: int, ranks: IndexArray, there: IndexArray) -> None:
    """Rank the available clients of iteration `t` in every lane, and count them."""
    clients, padded = ranks.shape
    lanes = available.shape[2]
    for lane in range(0, padded, WIDTH):
        count = spread(np.int32(0))
        for k in range(clients):
            here = load(available, (t * clients + k) * lanes + lane)
            rank = pick_if_equal(here, spread(np.uint8(1)), count, spread(np.int32(-1)))
            store(ranks, k * padded + lane, rank)
            count = pick_if_equal(here, spread(np.uint8(1)), count + np.int32(1), count)
        store(there, lane, count)


@kernel_part(inline=True)
def _find_clients(ranks: IndexArray, chosen: IndexArray) -> None:
    """Replace ranks among the available clients (P, lanes) by the clients' numbers."""
    clients, padded = ranks.shape
    for lane in range(0, padded, WIDTH):
        for p in range(chosen.shape[0]):
            wanted, number = load(chosen, p * padded + lane), spread(np.int32(0))
            for k in range(clients):
                number = pick_if_equal(load(ranks, k * padded + lane), wanted, spread(np.int32(k)), number)
            store(chosen, p * padded + lane, number)


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
