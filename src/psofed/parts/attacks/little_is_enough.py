"""Attackers that hide among the honest."""

import math

import numpy as np

from psofed.parts.base import Attack
from psofed.parts.contexts import UploadAndEveryone
from psofed.parts.options import option


class LittleIsEnough(Attack):
    """A little is enough (ALIE): all attackers hide just outside the honest spread, on the same side.

    In each entry i an attacker sends  w'_i = m_i + z s_i,  with m_i and s_i the mean and (sample) standard deviation
    of the clean uploads of that entry in this iteration, which the attackers see. Near enough to pass as honest, they
    shift what the server learns. Where fewer than two clean uploads hold the entry, s_i is 0; where none does, the
    attacker has nothing to hide among and sends its own value.

    References
    ----------
    Baruch, Baruch, Goldberg, "A little is enough: circumventing defenses for distributed learning", NeurIPS 2019.
    """

    knows = "everyone"
    not_affine_because = "a standard deviation is not affine in the models"

    deviations: float = option(
        default=1.5, text="z: how many standard deviations from the honest mean", strength=True
    )

    def corrupt(self, upload: UploadAndEveryone) -> float:
        """Stand z deviations beside the clean mean."""
        honest = upload.honest
        if honest.size == 0:
            return upload.value
        mean = np.mean(honest)
        if honest.size == 1:
            return float(mean)
        return float(mean + self.deviations * math.sqrt(np.sum((honest - mean) ** 2) / (honest.size - 1)))
