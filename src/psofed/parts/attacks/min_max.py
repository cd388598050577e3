"""Min-Max."""

import math

from psofed.common.types import FloatArray
from psofed.parts.attacks._hiding import write_direction, write_mean
from psofed.parts.base import Attack
from psofed.parts.contexts import Conspiracy
from psofed.parts.options import option
from psofed.parts.vectors import inner, part_of, squared_distance


class MinMax(Attack):
    """Min-Max: all attackers go as far as they can without being farther from anybody than the honest are.

    All send the update  m + γ p,  with m the mean of the clean updates of this iteration, which the attackers see, and
    p one of −(their standard deviations), −m/‖m‖ and −sign(m). γ is the largest for which the largest distance to a
    clean update is no larger than the largest distance between two of them; `scale` takes a part of it. Where nobody
    is honest, attackers send their own updates.

    Notes
    -----
    The paper finds γ by halving steps. The condition is quadratic in γ for each clean update, so it is solved here.

    References
    ----------
    Shejwalkar, Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and defenses for federated
    learning", NDSS 2021.

    Examples
    --------
    Between the honest updates 1 and 3 lie 2; from 2, down to 1, the farther one of them is 2 away.

    >>> import numpy as np
    >>> from psofed.parts.plain import corrupt_uploads
    >>> uploads, nothing = np.array([[0.0], [1.0], [3.0]]), np.zeros((3, 1))
    >>> corrupt_uploads(MinMax(num_byzantine=1), uploads, np.array([True, False, False]), server=nothing[0],
    ...                 clients=np.arange(3), iteration=0, normals=nothing, common_normals=nothing[0]).ravel()
    array([1., 1., 3.])
    """

    knows = "everyone"
    not_affine_because = "distances between uploads are not affine in the models"

    scale: float = option(
        default=1.0, low=0.0, text="what is gone of the largest possible way", strength=True
    )
    direction: str = option(
        default="deviation", choices=("deviation", "unit", "sign"), text="p: away in what direction"
    )

    def craft(self, conspiracy: Conspiracy, out: FloatArray) -> None:
        """Go as far as the farthest honest pair allows."""
        honest, room = conspiracy.honest, conspiracy.room
        count, size = honest.shape
        if count == 0:
            return
        mean, direction = part_of(room, 0, (size,)), part_of(room, size, (size,))
        write_mean(honest, mean)
        write_direction(honest, mean, self.direction, direction)
        widest = 0.0
        for h in range(count):
            for other in range(h):
                widest = max(widest, squared_distance(honest[h], honest[other]))
        steepness, farthest = inner(direction, direction), math.inf
        for h in range(count):
            # ‖m + γp − u‖² ≤ widest, quadratic in γ.
            slope = inner(direction, mean) - inner(direction, honest[h])
            left = max(0.0, widest - squared_distance(mean, honest[h]))
            if steepness > 0.0:
                farthest = min(farthest, (math.sqrt(slope * slope + steepness * left) - slope) / steepness)
        if steepness == 0.0:
            farthest = 0.0
        for a in range(out.shape[0]):
            for i in range(size):
                out[a, i] = mean[i] + self.scale * farthest * direction[i]
