"""Krum's scores, for Krum and multi-Krum."""

import numpy as np  # noqa: F401 (for the example)

from psofed.common.types import FloatArray
from psofed.parts.vectors import length, squared_distance, sum_of_lowest


def write_krum_scores(changes: FloatArray, tolerated: int, out: FloatArray) -> None:
    """Write each participant's sum of squared distances to the max(1, P' − f − 2) nearest others into ``out``.

    ``out`` has room for P' scores and, behind them, P'² distances.

    Examples
    --------
    >>> out = np.empty(20)
    >>> write_krum_scores(np.array([[1.0], [2.0], [9.0], [1.5]]), 0, out)
    >>> out[:4]
    array([  1.25,   1.25, 105.25,   0.5 ])
    """
    count = changes.shape[0]
    scores, distances = out[:count], out[count : count + count * count].reshape((count, count))
    for p in range(count):
        distances[p, p] = 0.0
        for other in range(p):
            distances[p, other] = squared_distance(changes[p], changes[other])
            distances[other, p] = distances[p, other]
    neighbours = min(max(1, count - tolerated - 2), count - 1)
    for p in range(count):
        # Its distance 0 to itself is among the lowest.
        scores[p] = sum_of_lowest(distances[p], neighbours + 1)


def comes_before(scores: FloatArray, changes: FloatArray, p: int, other: int) -> bool:
    """Whether participant p is preferred to another: by score, of equal ones by length, of equal ones by place."""
    if scores[p] != scores[other]:
        return bool(scores[p] < scores[other])
    own, its = length(changes[p]), length(changes[other])
    return own < its or (own == its and p < other)
