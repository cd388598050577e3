"""The iteration of centred clipping, for rules that clip updates and for those that clip memories."""

from psofed.common.types import FloatArray
from psofed.parts.vectors import TINY, add_scaled, distance, middle, part_of, scale


def move_centre(
    vectors: FloatArray, radius: float, factor: float, iterations: int, scratch: FloatArray, out: FloatArray
) -> None:
    """Move the centre ``out`` (E,) by the mean of the clipped differences of `vectors` (count, E) to it.

    The radius is `factor` times the median distance from the centre, or `radius` if `factor` is 0. ``scratch`` holds
    at least 2 · count numbers.

    Examples
    --------
    >>> import numpy as np
    >>> centre = np.zeros(1)
    >>> move_centre(np.array([[1.0], [2.0], [30.0]]), 0.0, 1.0, 1, np.empty(6), centre)
    >>> centre.round(3)
    array([1.667])
    """
    count = vectors.shape[0]
    # What a median is taken of may be reordered.
    weights, ordered = part_of(scratch, 0, (count,)), part_of(scratch, count, (count,))
    for _ in range(iterations):
        for p in range(count):
            weights[p] = ordered[p] = distance(vectors[p], out)
        if factor > 0.0:
            radius = factor * middle(ordered)
        total = 0.0
        for p in range(count):
            weights[p] = radius / count / max(radius, weights[p], TINY)
            total += weights[p]
        scale(1.0 - total, out)
        for p in range(count):
            add_scaled(weights[p], vectors[p], out)
