"""Orders of preference: Krum's, for Krum and multi-Krum, and by length."""

from psofed.common.types import FloatArray
from psofed.parts.vectors import length, part_of, ranks, squared_distance, sum_of_lowest


def length_key(vector: FloatArray) -> float:
    """Return ‖vector‖ to about seven digits; of equally long vectors the one with the lower sum comes first.

    Clipping makes vectors equally long but for rounding. Which of them is preferred must not hang on that, nor on the
    order of the participants.

    Examples
    --------
    >>> import numpy as np
    >>> length_key(np.array([3.0, -4.0])) < length_key(np.array([-3.0, 4.0])) < length_key(np.array([0.0, 5.01]))
    True
    """
    size = length(vector)
    spread = 536870913.0 * size  # 2²⁹ + 1: leaves 24 of the 53 bits
    total = 0.0
    for i in range(vector.size):
        total += vector[i]
    return float(spread - (spread - size) + 1e-7 * total)


def write_krum_ranks(changes: FloatArray, tolerated: int, scratch: FloatArray) -> None:
    """Write each participant's rank, from 0: by score, of equal scores by the update's length.

    A score is the sum of squared distances to the max(1, P' − f − 2) nearest others. Ranks are written to the front of
    ``scratch``, which is that of :class:`psofed.parts.contexts.Updates`.

    Examples
    --------
    Scores are 1.25, 1.25, 105.25 and 0.5.

    >>> import numpy as np
    >>> scratch = np.empty(26)
    >>> write_krum_ranks(np.array([[1.0], [2.0], [9.0], [1.5]]), 0, scratch)
    >>> scratch[:4]
    array([1., 2., 3., 0.])
    """
    count = changes.shape[0]
    scores, lengths = part_of(scratch, count, (count,)), part_of(scratch, 2 * count, (count,))
    # From each participant to the others.
    distances = part_of(scratch, 3 * count, (count, count - 1))
    for p in range(count):
        for other in range(p):
            distances[p, other] = squared_distance(changes[p], changes[other])
            distances[other, p - 1] = distances[p, other]
    neighbours = min(max(1, count - tolerated - 2), count - 1)
    for p in range(count):
        scores[p] = sum_of_lowest(distances[p], neighbours)
        lengths[p] = length_key(changes[p])
    ranks(scores, lengths, part_of(scratch, 0, (count,)))
