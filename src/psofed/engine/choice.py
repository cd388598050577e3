"""Uniform choice without replacement in every lane: a partial Fisher–Yates shuffle, addressed by words.

Draw number c swaps place c with a place from c on; the value that arrives in place c is chosen. Each choice starts from
the identity, so it depends on its own words alone. It is made in one of two ways, which choose the same.
"""

from typing import Any, NamedTuple

import numpy as np

from psofed.common.types import IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.lanes import WIDTH, halves, load, pick_if_equal, spread, store
from psofed.engine.normals import bounded, mix_word
from psofed.engine.streams import WordArray

# Up to this count, each draw is compared with all earlier ones, in all lanes at once.
FEW = 24

_32 = np.uint64(32)


class ChoiceScratch(NamedTuple):
    """Scratch of :func:`choose`, with lanes padded to whole vectors.

    Attributes
    ----------
    key, gamma : arrays (lanes,)
        The stream.
    first, sizes : arrays (lanes,)
        For the caller to fill in: address of each lane's first word, and number of things to choose from.
    places, displaced, chosen : array (any, lanes)
        For a choice of few.
    numbers, swapped : arrays (largest size,) and (count,)
        For a choice of many; else empty.
    """

    key: WordArray
    gamma: WordArray
    first: WordArray
    sizes: WordArray
    places: IndexArray
    displaced: IndexArray
    chosen: IndexArray
    numbers: IntArray
    swapped: IntArray


def make_choice_scratch(key: WordArray, gamma: WordArray, size: int, count: int) -> ChoiceScratch:
    """Return scratch for drawing `count` of `size` numbers."""
    few, many = (count, 0) if count <= FEW else (0, count)
    lanes = (key.size + WIDTH - 1) // WIDTH * WIDTH
    words, places = np.zeros((4, lanes), np.uint64), np.empty((3, few, lanes), np.int32)
    words[:2, : key.size], words[3, : key.size] = (key, gamma), size
    return ChoiceScratch(
        words[0], words[1], words[2], words[3], places[0], places[1], places[2],
        np.arange(size if many else 0), np.empty(many, np.int64),
    )  # fmt: skip


@kernel_part
def choose(count: int, scratch: ChoiceScratch, out: IndexArray, row: int | np.int64) -> None:
    """Fill `count` rows of ``out`` (rows, lanes), starting at `row`, with distinct numbers in every lane.

    Where there are fewer than `count` things to choose from, later rows hold any numbers.
    """
    lanes = out.shape[1]
    if count <= FEW:
        choose_few(count, scratch)
        for c in range(count):
            for lane in range(lanes):
                out[row + c, lane] = scratch.chosen[c, lane]
    else:
        for lane in range(lanes):
            _choose_many(count, scratch, out, row, lane)


@kernel_part
def choose_few(count: int, scratch: ChoiceScratch) -> None:
    """Fill ``scratch.chosen`` without swapping: ``displaced[c]`` is the value in place c before draw c.

    What stands in a place is what the last draw that went there displaced, else the place's own number.
    """
    lanes = scratch.key.size
    for lane in range(0, lanes, WIDTH):
        step, size = load(scratch.gamma, lane), load(scratch.sizes, lane)
        word = load(scratch.key, lane) + load(scratch.first, lane) * step
        for c in range(count):
            _, place = halves(((mix_word(word) >> _32) * (size - np.uint64(c))) >> _32)
            word = word + step
            place = place + np.int32(c)
            chosen, mine = place, spread(np.int32(c))
            for earlier in range(c):
                other, moved = (
                    load(scratch.places, earlier * lanes + lane),
                    load(scratch.displaced, earlier * lanes + lane),
                )
                chosen = pick_if_equal(other, place, moved, chosen)
                mine = pick_if_equal(other, spread(np.int32(c)), moved, mine)
            store(scratch.places, c * lanes + lane, place)
            store(scratch.displaced, c * lanes + lane, mine)
            store(scratch.chosen, c * lanes + lane, chosen)


@kernel_part(inline=True)
def _choose_many(count: int, scratch: ChoiceScratch, out: IndexArray, row: int | np.int64, lane: int) -> None:
    """Choose by swapping ``numbers``, the identity, and swapping them back."""
    numbers, swapped = scratch.numbers, scratch.swapped
    word = scratch.key[lane] + scratch.first[lane] * scratch.gamma[lane]
    size: Any = np.int64(scratch.sizes[lane])
    for c in range(count):
        place = c + bounded(mix_word(word), max(size - c, 1))
        word += scratch.gamma[lane]
        swapped[c] = place
        numbers[c], numbers[place] = numbers[place], numbers[c]
        out[row + c, lane] = numbers[c]
    for c in range(count - 1, -1, -1):
        numbers[c], numbers[swapped[c]] = numbers[swapped[c]], numbers[c]
