"""Noise that all attackers have in common."""

import math

from psofed.parts import Attack, option
from psofed.parts.affine import Affine
from psofed.parts.contexts import Upload


class ColludingGaussian(Attack):
    """All clients that attack in an iteration add the same δ_n ~ N(0, σ_B² I), which does not average out.

    w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} δ_n. Each client still decides independently, with probability p_a, whether to
    attack. It breaks assumption A2 of the paper, perturbations that are independent between clients. Two colluders who
    share different entries add the entries of δ_n that they share.

    Examples
    --------
    >>> attack = ColludingGaussian(num_byzantine=2, variance=0.25)
    >>> attack.corrupt(Upload(value=1.0, entry=0, client=0, iteration=0, normal=0.0, common_normal=4.0))
    3.0
    """

    variance: float = option(
        default=0.5, low=0.0, text="variance of the noise that all attackers add alike", strength=True
    )

    def corrupt(self, upload: Upload) -> float:
        """Add δ_n."""
        return upload.value + math.sqrt(self.variance) * upload.common_normal

    def affine(self) -> Affine:
        """State noise that the attackers have in common."""
        return Affine(common_variance=self.variance)
