"""Centred clipping."""

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.aggregations._clipping import move_centre
from psofed.parts.contexts import Updates


class CentredClipping(Aggregation):
    """Centred clipping: a mean of updates, each clipped to a radius around the running estimate.

    From the server's own model, v = 0, on the updates u_k of the P' participants who answered:

        v ← v + 1/P' Σ_k (u_k − v) · min(1, radius / ‖u_k − v‖)          `iterations` times

    The server moves by P'/|S_n| · v. An infinite radius would give the mean.

    The radius is fixed, as in the paper, and must fit the lengths of honest updates: far above them it clips a
    Byzantine client to something that still outweighs everybody. With a `factor` the radius follows the updates
    instead: in each iteration it is that many times their median distance from v, as in Huber's location estimate with
    an estimated scale.

    References
    ----------
    Karimireddy, He, Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021. On radii that follow
    from the distances: He, Karimireddy, Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022 (there
    for each client); Huber, "Robust statistics", 1981, ch. 6.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[0.5, 0.0], [0.0, 40.0]])
    >>> combine_uploads(CentredClipping(radius=1.0, iterations=1), changes, np.zeros(2))
    array([0.25, 0.5 ])
    >>> changes = np.array([[0.5], [0.5], [0.5], [0.5], [-40.0]])
    >>> combine_uploads(CentredClipping(factor=1.0), changes, np.zeros(1)).round(2)
    array([0.47])
    """

    over = "vectors"

    radius: float = option(default=0.1, low=0.0, open_low=True, text="largest distance of an update from the centre")
    iterations: int = option(default=3, low=1, text="number of times the centre is moved")
    factor: float = option(
        default=0.0, low=0.0, text="radius as a multiple of the median distance from the centre; 0: use radius"
    )

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Move the centre by the mean of the clipped differences to it."""
        move_centre(updates.changes, self.radius, self.factor, self.iterations, updates.scratch, out)
