"""Uniform choice without replacement in every lane: a partial Fisher–Yates shuffle, addressed by words.

Draw number c swaps place c with a place from c on; the value that arrives in place c is chosen. Each choice starts from
the identity, so it depends on its own words alone. It is made in one of two ways, which choose the same.
"""

from typing import NamedTuple

import numpy as np

from psofed.common.types import IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.lanes import WIDTH, halves, load, pick_if_equal, spread, store
from psofed.engine.normals import bounded, mix_word
from psofed.engine.streams import WordArray

# Up to this count, each draw is compared with all earlier ones, in all lanes at once.
_FEW = 24

_32 = np.uint64(32)


class ChoiceScratch(NamedTuple):
    """Scratch of :func:`choose`.

    Attributes
    ----------
    size : int
        Number of things to choose from.
    first : array (lanes,)
        Address of each lane's first word, for the caller to fill in.
    places, displaced : array (any, lanes)
        For a choice of few.
    numbers, swapped : arrays (size,) and (count,)
        For a choice of many; else empty.
    """

    size: int
    first: WordArray
    places: IndexArray
    displaced: IndexArray
    numbers: IntArray
    swapped: IntArray


def make_choice_scratch(size: int, count: int, lanes: int) -> ChoiceScratch:
    """Return scratch for drawing `count` of `size` numbers."""
    few, many = (count, 0) if count <= _FEW else (0, count)
    return ChoiceScratch(
        size, np.empty(lanes, np.uint64), np.empty((few, lanes), np.int32), np.empty((few, lanes), np.int32),
        np.arange(size if many else 0), np.empty(many, np.int64),
    )  # fmt: skip


@kernel_part
def choose(
    key: WordArray, gamma: WordArray, count: int, scratch: ChoiceScratch, out: IndexArray, row: int | np.int64
) -> None:
    """Fill `count` rows of ``out`` (rows, lanes), starting at `row`, with distinct numbers in every lane."""
    lanes = key.size
    if count <= _FEW and lanes % WIDTH == 0:
        for lane in range(0, lanes, WIDTH):
            _choose_few(key, gamma, count, scratch, out, row, lane)
    elif count <= _FEW:
        for lane in range(lanes):
            _choose_few_of_lane(key, gamma, count, scratch, out, row, lane)
    else:
        for lane in range(lanes):
            _choose_many(key, gamma, count, scratch, out, row, lane)


@kernel_part(inline=True)
def _choose_few(
    key: WordArray,
    gamma: WordArray,
    count: int,
    scratch: ChoiceScratch,
    out: IndexArray,
    row: int | np.int64,
    lane: int,
) -> None:
    """Choose without swapping: ``displaced[c]`` is the value in place c before draw c.

    What stands in a place is what the last draw that went there displaced, else the place's own number.
    """
    lanes, size = key.size, scratch.size
    step = load(gamma, lane)
    word = load(key, lane) + load(scratch.first, lane) * step
    for c in range(count):
        _, place = halves(((mix_word(word) >> _32) * np.uint64(size - c)) >> _32)
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
        store(out, (row + c) * lanes + lane, chosen)


@kernel_part(inline=True)
def _choose_few_of_lane(
    key: WordArray,
    gamma: WordArray,
    count: int,
    scratch: ChoiceScratch,
    out: IndexArray,
    row: int | np.int64,
    lane: int,
) -> None:
    """Choose as :func:`_choose_few` in one lane."""
    places, displaced = scratch.places, scratch.displaced
    for c in range(count):
        word = mix_word(key[lane] + (scratch.first[lane] + np.uint64(c)) * gamma[lane])
        place = c + bounded(word, scratch.size - c)
        chosen, mine = place, np.int64(c)
        for earlier in range(c):
            other, moved = places[earlier, lane], np.int64(displaced[earlier, lane])
            chosen = moved if other == place else chosen
            mine = moved if other == c else mine
        places[c, lane], displaced[c, lane], out[row + c, lane] = place, mine, chosen


@kernel_part(inline=True)
def _choose_many(
    key: WordArray,
    gamma: WordArray,
    count: int,
    scratch: ChoiceScratch,
    out: IndexArray,
    row: int | np.int64,
    lane: int,
) -> None:
    """Choose by swapping ``numbers``, the identity, and swapping them back."""
    numbers, swapped = scratch.numbers, scratch.swapped
    for c in range(count):
        word = mix_word(key[lane] + (scratch.first[lane] + np.uint64(c)) * gamma[lane])
        place = c + bounded(word, numbers.size - c)
        swapped[c] = place
        numbers[c], numbers[place] = numbers[place], numbers[c]
        out[row + c, lane] = numbers[c]
    for c in range(count - 1, -1, -1):
        numbers[c], numbers[swapped[c]] = numbers[swapped[c]], numbers[c]
