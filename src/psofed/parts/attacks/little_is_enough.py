"""Attackers that hide among the honest."""

import math

import numpy as np

from psofed.parts import Attack, option
from psofed.parts.attacks._quantile import normal_quantile
from psofed.parts.contexts import Upload


class LittleIsEnough(Attack):
    """A little is enough (ALIE): all attackers deviate slightly from the mean, to the same side.

    In each entry an attacker sends  m + z s,  with m and s the mean and (sample) standard deviation of what the
    attackers of this iteration would honestly send for it. They need see nobody else's: honest clients are much alike.
    z follows from how many numbers n are sent for the entry, and how many of them, a, by attackers:

        z = Φ⁻¹((n − a − s') / (n − a)),    s' = ⌊n/2 + 1⌋ − a,

    so that s' honest ones, with the attackers a majority, stand farther out than they do (probabilities nearer to 0
    or 1 than 1/(2 (n − a)) count as that). One attacker alone has no deviation to go by and sends its own number, as
    all do where nobody is honest.

    Stronger forms: ``deviations`` fixes z. With ``statistics = "honest"`` attackers are omniscient: m and s are of the
    clean uploads of all others (s is 0 where there is but one).

    References
    ----------
    Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for distributed learning", NeurIPS 2019.
    """

    knows = "everyone"
    not_affine_because = "a standard deviation is not affine in the models"

    deviations: float = option(
        default=0.0, text="distance from the mean in standard deviations (z); 0: derived from n and a", strength=True
    )
    statistics: str = option(
        default="accomplices", choices=("accomplices", "honest"), text="whose uploads define the mean and the deviation"
    )

    def corrupt(self, upload: Upload) -> float:
        """Stand z deviations beside the mean."""
        honest, attackers = upload.honest.size, upload.accomplices.size
        values = upload.honest if self.statistics == "honest" else upload.accomplices
        if honest == 0:
            return upload.value
        mean, z = np.mean(values), self.deviations
        if values.size == 1:
            return float(mean)
        if z == 0.0:
            needed = (honest + attackers) // 2 + 1 - attackers
            edge = 0.5 / honest
            z = normal_quantile(min(max((honest - needed) / honest, edge), 1.0 - edge))
        return float(mean + z * math.sqrt(np.sum((values - mean) ** 2) / (values.size - 1)))
