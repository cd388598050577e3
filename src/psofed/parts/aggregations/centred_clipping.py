"""Centred clipping."""

import math

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts.base import Aggregation
from psofed.parts.contexts import Updates
from psofed.parts.options import option
from psofed.parts.vectors import add_scaled, squared_distance


class CentredClipping(Aggregation):
    """Centred clipping: a mean of updates, none of which counts for more than a radius around the running estimate.

    From the server's own model, v = 0, on the updates u_k of the P' participants who answered:

        v ← v + 1/P' Σ_k (u_k − v) · min(1, radius / ‖u_k − v‖)          `iterations` times

    The server moves by P'/|S_n| · v. An infinite radius would give the mean.

    References
    ----------
    Karimireddy, He, Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021.

    Examples
    --------
    >>> changes = np.array([[0.5, 0.0], [0.0, 40.0]])
    >>> CentredClipping(radius=1.0, iterations=1).combine(Updates(changes, changes != 0, np.zeros(2), np.zeros(2)))
    array([0.25, 0.5 ])
    """

    over = "vectors"

    radius: float = option(
        default=0.1, low=0.0, open_low=True, text="how far an update may reach from the centre"
    )
    iterations: int = option(default=3, low=1, text="how often the centre is moved")

    def combine(self, updates: Updates) -> FloatArray:
        """Move the centre by the mean of the clipped differences to it."""
        changes = updates.changes
        count = changes.shape[0]
        centre, moved = np.zeros(changes.shape[1]), np.zeros(changes.shape[1])
        for _ in range(self.iterations):
            for p in range(count):
                distance = math.sqrt(squared_distance(changes[p], centre))
                factor = self.radius / max(self.radius, distance) / count
                add_scaled(factor, changes[p], moved)
                add_scaled(-factor, centre, moved)
            centre[:] = moved
        return centre
