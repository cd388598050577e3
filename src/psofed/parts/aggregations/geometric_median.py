"""Geometric median."""

import math

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.contexts import Updates
from psofed.parts.vectors import add_scaled, clear, distance, middle, middle_of_each, part_of

# Far more than is ever needed; a bound, so that no input can keep the server busy.
_MOST_STEPS = 1000


class GeometricMedian(Aggregation):
    """Geometric median: the server moves towards the point whose distances to the updates sum up least.

    Smoothed Weiszfeld iteration on the updates u_k of those who answered, from the median of each entry,

        z ← Σ_k β_k u_k / Σ_k β_k,    β_k = 1 / max(smoothing, ‖u_k − z‖)

    until a step is shorter than `tolerance` times the updates' median distance from z. The server moves by
    P'/|S_n| · z. A smoothing far above all distances gives the mean.

    References
    ----------
    Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", IEEE TSP 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[1.0, 1.0], [1.0, 1.0], [9.0, -9.0]])
    >>> combine_uploads(GeometricMedian(), changes, np.zeros(2)).round(3)
    array([1., 1.])
    """

    over = "vectors"

    smoothing: float = option(
        default=1e-3, low=0.0, open_low=True, text="smallest distance used; shorter ones are raised to it"
    )
    tolerance: float = option(
        default=1e-3, low=1e-12, text="stop when a step is shorter than this many median distances"
    )

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Iterate until it stands still."""
        changes, scratch = updates.changes, updates.scratch
        count, size = changes.shape
        distances, following = part_of(scratch, 0, (count,)), part_of(scratch, count, (size,))
        middle_of_each(changes, distances, out)
        for _ in range(_MOST_STEPS):
            clear(following)
            total = 0.0
            for p in range(count):
                distances[p] = distance(changes[p], out)
                weight = 1.0 / max(self.smoothing, distances[p])
                total += weight
                add_scaled(weight, changes[p], following)
            step = 0.0
            for i in range(size):
                step += (following[i] / total - out[i]) ** 2
            clear(out)
            add_scaled(1.0 / total, following, out)
            if math.sqrt(step) <= self.tolerance * max(middle(distances), self.smoothing):
                break
