"""Min-Sum."""

import math

from psofed.common.types import FloatArray
from psofed.parts import Attack
from psofed.parts.attacks._hiding import Hiding, send_alike, take_aim
from psofed.parts.contexts import Conspiracy
from psofed.parts.vectors import inner, squared_distance


class MinSum(Hiding, Attack):
    """Min-Sum: all attackers deviate as far as the largest sum of an honest update's squared distances allows.

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

    def craft(self, conspiracy: Conspiracy, out: FloatArray) -> None:
        """Go as far as the largest honest sum of distances allows."""
        honest = conspiracy.honest
        count = honest.shape[0]
        if count == 0:
            return
        mean, direction = take_aim(honest, self.direction, conspiracy.scratch)
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
        send_alike(mean, self.scale * farthest, direction, out)
