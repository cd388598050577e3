"""Teaches Numba the words of :mod:`psofed.parts.vectors`: loops that sum in order and need no memory of their own."""

import math

import numpy as np
from numba.extending import overload, register_jitable

from psofed.parts import vectors

# Up to so many values, looking for the next lowest again and again beats sorting.
_FEW = 24


@overload(vectors.squared_distance)
def _squared_distance(first, second):
    def body(first, second):
        total = 0.0
        for i in range(first.size):
            difference = first[i] - second[i]
            total += difference * difference
        return total

    return body


@overload(vectors.length)
def _length(vector):
    def body(vector):
        total = 0.0
        for i in range(vector.size):
            total += vector[i] * vector[i]
        return math.sqrt(total)

    return body


@overload(vectors.inner)
def _inner(first, second):
    def body(first, second):
        total = 0.0
        for i in range(first.size):
            total += first[i] * second[i]
        return total

    return body


@overload(vectors.add_scaled)
def _add_scaled(factor, vector, out):
    def body(factor, vector, out):
        for i in range(out.size):
            out[i] += factor * vector[i]

    return body


@overload(vectors.middle)
def _middle(values):
    def body(values):
        size = values.size
        if size > _FEW:
            _sort(values)
            return 0.5 * (values[(size - 1) // 2] + values[size // 2])
        place = _next_lowest(values, np.int64(-1))
        for _ in range((size - 1) // 2):
            place = _next_lowest(values, place)
        low = values[place]
        return low if size % 2 else 0.5 * (low + values[_next_lowest(values, place)])

    return body


@overload(vectors.middle_of_each)
def _middle_of_each(changes, room, out):
    def body(changes, room, out):
        for i in range(out.size):
            for p in range(changes.shape[0]):
                room[p] = changes[p, i]
            out[i] = vectors.middle(room[: changes.shape[0]])

    return body


@overload(vectors.scale)
def _scale(factor, out):
    def body(factor, out):
        for i in range(out.size):
            out[i] *= factor

    return body


@overload(vectors.clear)
def _clear(out):
    def body(out):
        for i in range(out.size):
            out[i] = 0.0

    return body


@overload(vectors.keep_where)
def _keep_where(vector, mask, out):
    def body(vector, mask, out):
        for i in range(out.size):
            out[i] = vector[i] if mask[i] else 0.0

    return body


@overload(vectors.sum_of_lowest)
def _sum_of_lowest(values, count):
    def body(values, count):
        total = 0.0
        if values.size > _FEW:
            _sort(values)
            for j in range(count):
                total += values[j]
            return total
        place = np.int64(-1)
        for _ in range(count):
            place = _next_lowest(values, place)
            total += values[place]
        return total

    return body


@overload(vectors.mean_of_inner)
def _mean_of_inner(values, cut):
    def body(values, cut):
        total = 0.0
        if values.size > _FEW:
            _sort(values)
            for j in range(cut, values.size - cut):
                total += values[j]
            return total / (values.size - 2 * cut)
        place = np.int64(-1)
        for rank in range(values.size - cut):
            place = _next_lowest(values, place)
            if rank >= cut:
                total += values[place]
        return total / (values.size - 2 * cut)

    return body


@register_jitable
def _next_lowest(values, place):
    """Return the place of the value that follows the one at `place` in ascending order, the lowest for −1."""
    best = -1
    for i in range(values.size):
        after = place < 0 or values[i] > values[place] or (values[i] == values[place] and i > place)
        if after and (best < 0 or values[i] < values[best]):
            best = i
    return best


@register_jitable
def _sort(out):
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
