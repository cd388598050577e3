"""Min-Max."""

import math

from psofed.common.types import FloatArray
from psofed.parts import Attack
from psofed.parts.attacks._hiding import Hiding, send_alike, take_aim
from psofed.parts.contexts import Conspiracy
from psofed.parts.vectors import inner, squared_distance


class MinMax(Hiding, Attack):
    """Min-Max: all attackers deviate as far as the largest distance between two honest updates allows.

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

    def craft(self, conspiracy: Conspiracy, out: FloatArray) -> None:
        """Go as far as the farthest honest pair allows."""
        honest = conspiracy.honest
        count = honest.shape[0]
        if count == 0:
            return
        mean, direction = take_aim(honest, self.direction, conspiracy.scratch)
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
        send_alike(mean, self.scale * farthest, direction, out)
