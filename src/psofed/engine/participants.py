"""Participants: in each iteration |S_n| clients, drawn uniformly without replacement from all or from those available.

A partial Fisher–Yates shuffle, addressed by words: draw number c swaps place c with a place from c on, and the value
that arrives in place c is chosen. Each choice starts from the identity, so it depends on its own words alone.
"""

from typing import Any, NamedTuple

import numpy as np

from psofed.common.types import BoolArray, IndexArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.lanes import WIDTH, empty_lanes, load, pick, spread, store
from psofed.engine.normals import bounded, mix_word
from psofed.engine.state import Layout
from psofed.engine.streams import Stream, WordArray
from psofed.engine.tables import KernelTable

# Up to this many participants are drawn for sixteen trials at once.
_FEW = 12

_32 = np.uint64(32)

NO_PRESENCE: BoolArray = np.zeros((0, 0, 0), np.bool_)


class Choice(NamedTuple):
    """Participants of T iterations and L trials.

    Attributes
    ----------
    stream : array (2, L)
        Their randomness.
    present : bool array (T, V, 16), or empty
        Who is available.
    only_present : bool
        Whether participants are drawn from those available, all of them if there are too few.
    layout : Layout
        Where columns stand.
    numbers, swapped : int arrays (K,) and (P,)
        Scratch.
    lanes, scratch : arrays (2, 16) and (3, P, 16)
        The streams as lanes, and scratch to draw few participants of many trials.
    participants : int array (T, L, P)
        The participants; places that stay empty hold client 0.
    reached : bool array (T, L, P), or empty
        Whether there is an available client in each place; empty if all clients are available.
    asked : int array (T, L)
        How many participants are asked to upload.
    """

    stream: WordArray
    present: BoolArray
    only_present: bool
    layout: Layout
    numbers: IndexArray
    swapped: IntArray
    lanes: WordArray
    scratch: WordArray
    participants: IndexArray
    reached: BoolArray
    asked: IntArray


def draw_choice(
    stream: WordArray, first: int, count: int, present: BoolArray, only_present: bool, layout: Layout, most: int
) -> Choice:
    """Draw up to `most` participants in each of `count` iterations from number `first` on."""
    shape, lanes = (count, stream.shape[1], most), empty_lanes(2, WIDTH, dtype=np.uint64)
    lanes[:] = 0
    lanes[:, : stream.shape[1]] = stream[:, :WIDTH]
    choice = Choice(
        stream, present, only_present and present.size > 0, layout,
        np.arange(layout.clients, dtype=np.int32), np.empty(most, np.int64), lanes,
        empty_lanes(3, most if most <= _FEW else 0, WIDTH, dtype=np.uint64),
        np.empty(shape, np.int32), np.empty(shape if present.size else (0, 0, 0), np.bool_), np.full(shape[:2], most),
    )  # fmt: skip
    table: Any = KernelTable(choice)
    _fill(first, table)
    return choice


def draw_participants(stream: Stream, first: int, count: int, clients: int, most: int) -> IndexArray:
    """Draw `most` different clients in each of `count` iterations from number `first` on, shape (T, L, most)."""
    return draw_choice(np.array(stream), first, count, NO_PRESENCE, False, Layout(clients, 0, 0), most).participants


@compiled
def _fill(first: int, choice: Choice) -> None:
    stream, present, numbers, swapped = choice.stream, choice.present, choice.numbers, choice.swapped
    out, reached, asked, only_present = choice.participants, choice.reached, choice.asked, choice.only_present
    shift, mask = choice.layout.shift, choice.layout.mask
    iterations, trials, participants = out.shape
    in_lanes = participants <= _FEW and 1 < trials <= WIDTH and not only_present
    for t in range(iterations):
        if in_lanes:
            _choose_in_lanes(first + t, choice.lanes, choice.scratch, numbers.size, out[t])
        for trial in range(trials):
            gamma = stream[1, trial]
            word = stream[0, trial] + np.uint64((first + t) * participants) * gamma
            size = numbers.size
            if only_present:
                size = 0
                for k in range(numbers.size):  # without a branch, which nobody could foresee
                    numbers[size] = k
                    size += int(present[t, k >> shift, trial + (k & mask)])
                asked[t, trial] = min(participants, size)
            if not in_lanes:
                _choose(word, gamma, size, numbers, swapped, out[t, trial])
            for p in range(participants if present.size else 0):
                if only_present:
                    reached[t, trial, p] = p < size
                    if p >= size:
                        out[t, trial, p] = 0
                else:
                    client: Any = np.int64(out[t, trial, p])
                    reached[t, trial, p] = present[t, client >> shift, trial + (client & mask)]


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


@kernel_part
def _choose_in_lanes(n: int, lanes: WordArray, scratch: WordArray, size: int, out: IndexArray) -> None:
    """Do the same for sixteen trials at once, whose streams are ``lanes`` (2, 16), without an array to swap in.

    What stands in a place is followed through the swaps before: ``scratch`` (3, P, 16) has the place that each of them
    swapped with, what it put there, and what was chosen.
    """
    trials, count = out.shape
    gamma, last = load(lanes, WIDTH), count * WIDTH
    word = load(lanes, 0) + np.uint64(n * count) * gamma
    for c in range(count):
        place = np.uint64(c) + (((mix_word(word) >> _32) * np.uint64(size - c)) >> _32)
        chosen, displaced = place, spread(np.uint64(c))
        word = word + gamma
        for earlier in range(c):
            swapped, moved = load(scratch, earlier * WIDTH), load(scratch, last + earlier * WIDTH)
            chosen = pick(swapped ^ place, chosen, moved)
            displaced = pick(swapped ^ spread(np.uint64(c)), displaced, moved)
        store(scratch, c * WIDTH, place)
        store(scratch, last + c * WIDTH, displaced)
        store(scratch, 2 * last + c * WIDTH, chosen)
    for trial in range(trials):
        for c in range(count):
            out[trial, c] = scratch[2, c, trial]


@compiled
def fill_places(present: BoolArray, shift: int, mask: int, num_clients: int, counts: IntArray, out: IndexArray) -> None:
    """Put different clients that are not ``present`` (T, V, 16) into places of ``out`` (T, L, P) beyond ``counts``."""
    iterations, trials, participants = out.shape
    for t in range(iterations):
        for trial in range(trials):
            place = counts[t, trial]
            for k in range(num_clients):
                if place < participants and not present[t, k >> shift, trial + (k & mask)]:
                    out[t, trial, place] = k
                    place += 1
