"""Compiled forms of :mod:`psofed.parts.vectors`: loops that sum in order and allocate nothing.

Random numbers cannot be foreseen, so what looks for low ones does so without branching on them.
"""

import math
from typing import Any

from numba import carray, types  # type: ignore[attr-defined]
from numba.extending import overload, register_jitable
from numpy.typing import NDArray

from psofed.engine.compiling import instruction
from psofed.parts import vectors

# Up to this size, moving the lowest values to the front one by one beats sorting.
_FEW = 24


def _word(meaning):
    """Register what follows as the compiled form of a word."""

    def register(body):
        overload(meaning, jit_options={"forceinline": True}, strict=False)(lambda *arguments: body)
        return body

    return register


@instruction
def _pointer_at(typing_context, array, start):
    """Return the address of an entry of a contiguous array."""

    def emit(context, builder, sig, args):
        return builder.gep(context.make_array(array)(context, builder, args[0]).data, [args[1]], inbounds=True)

    return types.CPointer(array.dtype)(array, types.intp), emit


@_word(vectors.part_of)
def _part_of(numbers, start, shape):
    # A slice would count a reference, which takes longer than what is done with it.
    return carray(_pointer_at(numbers, start), shape)


@_word(vectors.squared_distance)
def _squared_distance(first, second):
    total = 0.0
    for i in range(first.size):
        difference = first[i] - second[i]
        total += difference * difference
    return total


@_word(vectors.distance)
def _distance(first, second):
    return math.sqrt(vectors.squared_distance(first, second))


@_word(vectors.length)
def _length(vector):
    return math.sqrt(vectors.inner(vector, vector))


@_word(vectors.inner)
def _inner(first, second):
    total = 0.0
    for i in range(first.size):
        total += first[i] * second[i]
    return total


@_word(vectors.add_scaled)
def _add_scaled(factor, vector, out):
    for i in range(out.size):
        out[i] += factor * vector[i]


@_word(vectors.scale)
def _scale(factor, out):
    for i in range(out.size):
        out[i] *= factor


@_word(vectors.clear)
def _clear(out):
    for i in range(out.size):
        out[i] = 0.0


@_word(vectors.keep_where)
def _keep_where(vector, mask, out):
    for i in range(out.size):
        out[i] = vector[i] if mask[i] else 0.0


@_word(vectors.middle)
def _middle(values):
    half = values.size // 2
    if values.size > _FEW:
        _split_at(values, half)
    else:
        _bring_one_by_one(values, half + 1)
    return values[half] if values.size % 2 else 0.5 * (values[half - 1] + values[half])


@_word(vectors.middle_of_each)
def _middle_of_each(changes, scratch, out):
    count = changes.shape[0]
    for i in range(out.size):
        for p in range(count):
            scratch[p] = changes[p, i]
        out[i] = vectors.middle(scratch)


@_word(vectors.sum_of_lowest)
def _sum_of_lowest(values, count):
    _bring_lowest(values, count)
    total = 0.0
    for j in range(count):
        total += values[j]
    return total


@_word(vectors.mean_of_inner)
def _mean_of_inner(values, cut):
    _bring_lowest(values, values.size - cut)
    total = 0.0
    for j in range(cut, values.size - cut):
        total += values[j]
    return total / (values.size - 2 * cut)


@_word(vectors.mean_near)
def _mean_near(values, centre, count):
    _bring_lowest(values, values.size)
    first, end = 0, values.size
    while end - first > count:
        least = 1e-12 * (values[end - 1] - values[first])
        if (centre - values[first]) - (values[end - 1] - centre) > least:
            first += 1
        else:
            end -= 1
    total = 0.0
    for j in range(first, end):
        total += values[j]
    return total / count


@_word(vectors.ranks)
def _ranks(first, second, out):
    size, total = out.size, 0.0
    for p in range(size):
        rank = 0.0
        for other in range(size):
            rank += 1.0 if first[other] < first[p] else 0.0
        out[p] = rank
        total += rank
    if total != 0.5 * size * (size - 1):
        # Some are equal, which is rare.
        for p in range(size):
            for other in range(size):
                if first[other] == first[p] and (
                    second[other] < second[p] or (second[other] == second[p] and other < p)
                ):
                    out[p] += 1.0


@register_jitable
def _bring_lowest(out, count):
    """Move the `count` lowest values to the front, in order."""
    if out.size > _FEW:
        sort(out)
    else:
        _bring_one_by_one(out, count)


@register_jitable
def _bring_one_by_one(out, count):
    for j in range(count):
        low = out[j]
        for i in range(j + 1, out.size):
            value = out[i]
            out[i] = max(low, value)
            low = min(low, value)
        out[j] = low


@register_jitable
def _split_at(out, place):
    """Bring the value of rank `place` there, lower ones before it with the highest of them last, others behind it."""
    first, last = 0, out.size - 1
    while first < last:
        # The middle one of three is seldom far out; at such places neither in values that rise, fall, or do both.
        span = last - first
        one, two, three = out[first + span // 7], out[first + 3 * span // 8], out[first + 3 * span // 4]
        pivot = max(min(one, two), min(max(one, two), three))
        below = _gather(out, first, last, pivot, False)
        if place < below:
            last = below - 1
            continue
        above = _gather(out, below, last, pivot, True)
        if place < above or above == first:  # found; or NaN, which has no order
            break
        first = above
    high = place - 1
    for i in range(place - 1):
        low_value, high_value = min(out[i], out[high]), max(out[i], out[high])
        out[i], out[high] = low_value, high_value


@register_jitable
def _gather(out, first, last, pivot, equal):
    """Bring values below the pivot, or equal to it too, to the front of a part; return where the others begin."""
    end = first
    for i in range(first, last + 1):
        value = out[i]
        out[i] = out[end]
        out[end] = value
        end += 1 if value < pivot or (equal and value == pivot) else 0
    return end


@register_jitable
def sort(out: NDArray[Any]) -> None:
    """Sort in place (Shell's method: short to compile, no memory)."""
    gap = 1
    while gap < out.size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, out.size):
            value, j = out[i], i
            while j >= gap and out[j - gap] > value:
                out[j] = out[j - gap]
                j -= gap
            out[j] = value
        gap //= 3
