"""Min-Sum."""

import math

from psofed.common.types import FloatArray
from psofed.parts.attacks._hiding import write_direction, write_mean
from psofed.parts.base import Attack
from psofed.parts.contexts import Conspiracy
from psofed.parts.options import option
from psofed.parts.vectors import inner, part_of, squared_distance


class MinSum(Attack):
    """Min-Sum: all attackers go as far as they can without their distances summing up to more than an honest one's.

    All send the update  m + γ p,  with m the mean of the clean updates of this iteration, which the attackers see, and
    p one of −(their standard deviations), −m/‖m‖ and −sign(m). γ is the largest for which the sum of squared distances
    to all clean updates is no larger than the largest such sum from one of them; `scale` takes a part of it. Where
    nobody is honest, attackers send their own updates.

    Notes
    -----
    The paper finds γ by halving steps. With H honest ones the condition is Σ ‖m − u‖² + H γ² ‖p‖² ≤ the largest sum,
    and is solved here.

    References
    ----------
    Shejwalkar, Houmansadr, "Manipulating the Byzantine: optimizing model poisoning attacks and defenses for federated
    learning", NDSS 2021.

    Examples
    --------
    From the honest updates 1 and 3 the sum is 4; from 2 − γ√2 it is 2 + 4 γ².

    >>> import numpy as np
    >>> from psofed.parts.plain import corrupt_uploads
    >>> uploads, nothing = np.array([[0.0], [1.0], [3.0]]), np.zeros((3, 1))
    >>> corrupt_uploads(MinSum(num_byzantine=1), uploads, np.array([True, False, False]), server=nothing[0],
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
        """Go as far as the largest honest sum of distances allows."""
        honest, room = conspiracy.honest, conspiracy.room
        count, size = honest.shape
        if count == 0:
            return
        mean, direction = part_of(room, 0, (size,)), part_of(room, size, (size,))
        write_mean(honest, mean)
        write_direction(honest, mean, self.direction, direction)
        largest = spread = 0.0
        for h in range(count):
            total = 0.0
            for other in range(count):
                total += squared_distance(honest[h], honest[other])
            largest = max(largest, total)
            spread += squared_distance(mean, honest[h])
        steepness, farthest = count * inner(direction, direction), 0.0
        if steepness > 0.0:
            farthest = math.sqrt(max(0.0, largest - spread) / steepness)
        for a in range(out.shape[0]):
            for i in range(size):
                out[a, i] = mean[i] + self.scale * farthest * direction[i]
