"""Krum's score, for Krum and multi-Krum."""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.parts.vectors import length, squared_distance, sum_of_lowest


def krum_order(changes: FloatArray, tolerated: int, selected: int) -> "NDArray[np.int64]":
    """Return the numbers of the `selected` participants with the lowest scores, of equal ones by length.

    A score is the sum of squared distances to the max(1, P' − f − 2) nearest others.

    Examples
    --------
    >>> krum_order(np.array([[1.0, 1.0], [1.0, 2.0], [9.0, 9.0], [1.0, 1.5]]), tolerated=0, selected=2)
    array([3, 0])
    """
    count = changes.shape[0]
    distances = np.zeros((count, count))
    for p in range(count):
        for other in range(p):
            distances[p, other] = squared_distance(changes[p], changes[other])
            distances[other, p] = distances[p, other]
    neighbours = min(max(1, count - tolerated - 2), count - 1)
    order = np.empty(min(selected, count), np.int64)
    scores, lengths = np.empty(count), np.empty(count)
    for p in range(count):
        # Its distance 0 to itself is among the lowest.
        scores[p] = sum_of_lowest(distances[p], neighbours + 1)
        lengths[p] = length(changes[p])
    for place in range(order.size):
        best = -1
        for p in range(count):
            if scores[p] >= 0.0 and (
                best < 0
                or scores[p] < scores[best]
                or (scores[p] == scores[best] and lengths[p] < lengths[best])
            ):
                best = p
        order[place] = best
        scores[best] = -1.0  # taken
    return order
