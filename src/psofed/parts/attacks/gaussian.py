"""The paper's attack: noise on what is uploaded."""

import math

from psofed.parts import Attack, option
from psofed.parts.affine import Affine
from psofed.parts.contexts import Upload


class Gaussian(Attack):
    """The paper's attack: a Byzantine participant adds N(0, σ_B² I) to what it uploads, with probability p_a.

    w'_{k,n+1} = w_{k,n+1} + β_k τ_{k,n} δ_{k,n+1}; its own local model stays clean (eq:attack_model).

    References
    ----------
    Lari, Arablouei, Gogineni, Werner, "Resilience in Online Federated Learning: Mitigating Model-Poisoning
    Attacks via Partial Sharing", IEEE TSIPN.

    Examples
    --------
    >>> attack = Gaussian(num_byzantine=15, variance=0.25)
    >>> attack.corrupt(Upload(value=1.0, entry=0, client=0, iteration=0, normal=2.0, common_normal=0.0))
    2.0
    """

    variance: float = option(
        default=0.5, low=0.0, text="variance of the noise added to each uploaded value", strength=True
    )

    def corrupt(self, upload: Upload) -> float:
        """Add δ."""
        return upload.value + math.sqrt(self.variance) * upload.normal

    def affine(self) -> Affine:
        """State noise of variance σ_B² (the diagonal of the paper's Ω_δ is p_a σ_B²)."""
        return Affine(variance=self.variance)
