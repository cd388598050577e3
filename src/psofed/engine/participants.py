"""Participants: in each iteration |S_n| clients, drawn uniformly without replacement from all or from those available.

A partial Fisher–Yates shuffle, addressed by words: draw number c swaps place c with a place from c on, and the value
that arrives in place c is chosen. Each choice starts from the identity, so it depends on its own words alone.
"""

import numpy as np

from psofed.common.types import BoolArray, IndexArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.hooks import borrow
from psofed.engine.normals import bounded, mix_word
from psofed.engine.streams import WordArray

NO_PRESENCE: BoolArray = np.zeros((0, 0, 0), np.bool_)


def draw_participants(stream: WordArray, first: int, num_clients: int, out: IndexArray) -> None:
    """Fill ``out[t, l]`` (P,) with the participants of iteration ``first + t``, all different."""
    trials, participants = out.shape[1:]
    fill_participants(
        first, stream, NO_PRESENCE, 0, 0, np.arange(num_clients, dtype=np.int32), np.empty(participants, np.int64),
        np.empty((0, trials), np.int64), np.zeros((0, 0, 0), np.bool_), out,
    )  # fmt: skip


@kernel_part
def _choose(
    word: np.uint64, gamma: np.uint64, size: int, numbers: IndexArray, swapped: IntArray, out: IndexArray
) -> None:
    """Fill ``out`` with distinct members of the first `size` of ``numbers``, which are swapped and swapped back."""
    count = out.size
    for c in range(count):
        place = c + bounded(mix_word(word), max(size - c, 1))
        word += gamma
        swapped[c] = place
        numbers[c], numbers[place] = numbers[place], numbers[c]
        out[c] = numbers[c]
    for c in range(count - 1, -1, -1):
        numbers[c], numbers[swapped[c]] = numbers[swapped[c]], numbers[c]


@compiled
def fill_participants(
    first: int,
    stream: WordArray,
    present: BoolArray,
    shift: int,
    mask: int,
    numbers: IndexArray,
    swapped: IntArray,
    asked: IntArray,
    reached: BoolArray,
    out: IndexArray,
) -> None:
    """Draw participants of T iterations and L trials.

    Parameters
    ----------
    stream : array (2, L)
        Their randomness.
    present : bool array (T, V, 16), or empty
        Who is available; participants are then drawn from those, all of them if there are too few.
    shift, mask : int
        Where columns stand (:class:`psofed.engine.step.Layout`).
    numbers, swapped : int arrays (K,) and (P,)
        Scratch: 0 … K − 1, which stays so unless clients are drawn from those available.
    asked, reached, out : arrays (T, L), (T, L, P) and (T, L, P)
        How many there are, whether there is one in each place, and the participants; empty places hold client 0.
    """
    stream, present, numbers, swapped, asked, reached, out = borrow(
        (stream, present, numbers, swapped, asked, reached, out)
    )
    iterations, trials, participants = out.shape
    for t in range(iterations):
        for trial in range(trials):
            gamma = stream[1, trial]
            word = stream[0, trial] + np.uint64((first + t) * participants) * gamma
            size = numbers.size
            if present.size:
                size = 0
                for k in range(numbers.size):  # without a branch, which nobody could foresee
                    numbers[size] = k
                    size += int(present[t, k >> shift, trial + (k & mask)])
                asked[t, trial] = min(participants, size)
            _choose(word, gamma, size, numbers, swapped, out[t, trial])
            if present.size:
                for p in range(participants):
                    reached[t, trial, p] = p < size
                    if p >= size:
                        out[t, trial, p] = 0


@compiled
def fill_places(
    present: BoolArray, shift: int, mask: int, num_clients: int, counts: IntArray, out: IndexArray
) -> None:
    """Put different clients that are not ``present`` (T, V, 16) into places of ``out`` (T, L, P) beyond ``counts``."""
    iterations, trials, participants = out.shape
    for t in range(iterations):
        for trial in range(trials):
            place = counts[t, trial]
            for k in range(num_clients):
                if place < participants and not present[t, k >> shift, trial + (k & mask)]:
                    out[t, trial, place] = k
                    place += 1


@compiled
def find_reached(present: BoolArray, shift: int, mask: int, clients: IndexArray, out: BoolArray) -> None:
    """Fill ``out`` (T, L, P): whether each of the ``clients`` is in ``present`` (T, V, 16)."""
    for t in range(out.shape[0]):
        for trial in range(out.shape[1]):
            for p in range(out.shape[2]):
                k = np.int64(clients[t, trial, p])
                out[t, trial, p] = present[t, k >> shift, trial + (k & mask)]
