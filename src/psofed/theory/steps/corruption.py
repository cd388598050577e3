"""The upload of client k as the server receives it, in errors: u_k = A_k z_k + G_k g + t_k (c − δ_k).

An attacked number is own · u + server · w + offset + noise (:class:`psofed.parts.affine.Affine`). Written in errors
w̃ = w* − w it is own · z + server · g + c − δ, so that with t_k = 1 if client k attacks

    A_k = 1 + t_k (own − 1),    G_k = t_k · server,    c = (1 − own − server) w* − offset.

t_k is drawn independently in every iteration, whatever the models are. ``AttackChances`` holds E[t_k] = ``chance`` and
the factor f = ``pair_factor`` of E[t_k t_l] = f E[t_k] E[t_l]; ``Corruption`` holds own, server and δ (``affine``)
and c (``constant``).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts.affine import Affine


@dataclass(frozen=True, eq=False)
class AttackChances:
    """How likely each client, and each pair of clients, is to attack in an iteration.

    Attributes
    ----------
    chance : array (K,)
        E[t_k] = β_k p_a: probability that client k is Byzantine, times that of attacking.
    pair_factor : float
        f: 1 for a fixed set of Byzantine clients. Where it is not 1 (a set redrawn in every iteration) all chances are
        equal.
    """

    chance: FloatArray
    pair_factor: float = 1.0

    @property
    def covariance(self) -> float:
        """Cov(t_k, t_l), k ≠ l, the same for all pairs."""
        return (self.pair_factor - 1.0) * float(self.chance[0]) ** 2 if self.chance.size else 0.0


@dataclass(frozen=True, eq=False)
class Corruption:
    """Moments of A_k, G_k and t_k, and what attackers add.

    Attributes
    ----------
    attackers : AttackChances
    affine : Affine
    constant : array (F) or None
        c on the tracked entries; None if it is zero.
    """

    attackers: AttackChances
    affine: Affine
    constant: FloatArray | None = None

    @cached_property
    def own(self) -> FloatArray:
        """E[A_k], (K,)."""
        return np.asarray(1.0 + self.attackers.chance * (self.affine.own - 1.0))

    @cached_property
    def server(self) -> FloatArray:
        """E[G_k], (K,)."""
        return np.asarray(self.attackers.chance * self.affine.server)

    @property
    def has_no_negative_factor(self) -> bool:
        """Whether A_k and G_k are never negative, so that moments without a sign stay without one."""
        return self.is_linear_part_honest or min(self.affine.own, self.affine.server) >= 0.0

    @property
    def is_linear_part_honest(self) -> bool:
        """Whether A_k = 1 and G_k = 0 always: uploads are honest models, plus what attackers may add."""
        changed = self.affine.own != 1.0 or self.affine.server != 0.0
        return not (changed and np.any(self.attackers.chance))

    def own_pair(self, k: FloatArray, m: FloatArray) -> FloatArray:
        """E[A_k A_m] of two different clients, from E[A_k] and E[A_m]."""
        return np.asarray(k * m + self.attackers.covariance * (self.affine.own - 1.0) ** 2)

    @property
    def parts(self) -> tuple[tuple[FloatArray, FloatArray, FloatArray, float], ...]:
        """Vectors (A, G, t) and weights w whose products make up pairs: E[X_k Y_l] = Σ w X_k Y_l for k ≠ l.

        E[X_k Y_l] = E[X_k] E[Y_l] + Cov(t_k, t_l) x y, since A, G and t are all affine in t with slopes
        x, y = own − 1, server, 1. So the means come with weight 1, and the slopes with weight Cov(t_k, t_l).
        """
        chance = self.attackers.chance
        means = (self.own, self.server, chance, 1.0)
        if self.attackers.covariance == 0.0:
            return (means,)
        one = np.ones_like(chance)
        swing = ((self.affine.own - 1.0) * one, self.affine.server * one, one, self.attackers.covariance)
        return means, swing
