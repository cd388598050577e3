"""The honest mean update, turned round."""

import numpy as np

from psofed.parts import Attack, option
from psofed.parts.contexts import Upload


class InnerProduct(Attack):
    """Inner-product manipulation: all attackers send the reversed mean of the honest updates.

    In each entry i an attacker sends  w'_i = w_{n,i} − scale · (m_i − w_{n,i}),  with w_n the server's model before the
    upload and m_i the mean of the clean uploads of that entry in this iteration, which the attackers see. The inner
    product of true and aggregated update becomes negative once scale · attackers > honest ones. Where no clean upload
    holds the entry, the attacker sends its own value.

    References
    ----------
    Xie, Koyejo, Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product manipulation", UAI 2020.
    """

    knows = "everyone"
    not_affine_because = "what an attacker sends depends on how many others attack in the same entry and iteration"

    scale: float = option(default=2.0, low=0.0, text="length of the reversed mean update (ε)", strength=True)

    def corrupt(self, upload: Upload) -> float:
        """Turn the clean mean round, seen from the server's model."""
        if upload.honest.size == 0:
            return upload.value
        return float(upload.server - self.scale * (np.mean(upload.honest) - upload.server))
