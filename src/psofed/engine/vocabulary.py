"""Teaches Numba the words of :mod:`psofed.parts.vectors`: loops that sum in order and need no memory of their own."""

import math

import numpy as np
from numba.extending import overload

from psofed.parts import vectors

# Up to so many values, counting how many are lower beats sorting.
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
            return np.median(values)
        low = high = values[0]
        for j in range(size):
            below = equal = 0
            for i in range(size):
                below += values[i] < values[j]
                equal += values[i] == values[j]
            # Ranks below … below + equal − 1 hold this value.
            if below <= (size - 1) // 2 < below + equal:
                low = values[j]
            if below <= size // 2 < below + equal:
                high = values[j]
        return 0.5 * (low + high)

    return body


@overload(vectors.middle_of_each)
def _middle_of_each(changes, out):
    def body(changes, out):
        column = np.empty(changes.shape[0])
        for i in range(out.size):
            for p in range(column.size):
                column[p] = changes[p, i]
            out[i] = vectors.middle(column)

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
        if values.size > _FEW:
            return np.sum(np.sort(values)[:count])
        total = 0.0
        for j in range(values.size):
            rank = 0
            for i in range(values.size):
                rank += values[i] < values[j] or (values[i] == values[j] and i < j)
            if rank < count:
                total += values[j]
        return total

    return body


@overload(vectors.mean_of_inner)
def _mean_of_inner(values, cut):
    def body(values, cut):
        if values.size > _FEW:
            return np.mean(np.sort(values)[cut : values.size - cut])
        total = 0.0
        for j in range(values.size):
            rank = 0
            for i in range(values.size):
                rank += values[i] < values[j] or (values[i] == values[j] and i < j)
            if cut <= rank < values.size - cut:
                total += values[j]
        return total / (values.size - 2 * cut)

    return body
