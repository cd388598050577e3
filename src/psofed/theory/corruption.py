"""What reaches the server from client k: u_k = A_k z_k + G_k g + t_k (c − δ_k), in errors, with t_k = 1 if it attacks.

An attacked number own · u + server · w + offset + noise (:class:`psofed.parts.affine.Affine`), written in errors
w̃ = w* − w, is own · z + server · g + c − δ with c = (1 − own − server) w* − offset. So A = 1 + t (own − 1) and
G = t · server. Whether client k attacks, t_k, is drawn afresh in every iteration, independent of all models.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts.affine import Affine


@dataclass(frozen=True, eq=False)
class Attackers:
    """Who attacks in an iteration.

    Attributes
    ----------
    chance : array (K,)
        E[t_k] = β_k p_a: probability that client k is Byzantine, times that of attacking.
    pair_factor : float
        f with E[t_k t_l] = f E[t_k] E[t_l], k ≠ l: 1 for a fixed set of Byzantine clients. Where it is not 1 (a set
        redrawn in every iteration) all chances are equal.
    """

    chance: FloatArray
    pair_factor: float = 1.0

    @property
    def covariance(self) -> float:
        """Cov(t_k, t_l), k ≠ l, the same for all pairs."""
        return (self.pair_factor - 1.0) * float(self.chance[0]) ** 2 if self.chance.size else 0.0


@dataclass(frozen=True, eq=False)
class Corruption:
    """The moments of A_k, G_k and t_k, and what is added.

    Attributes
    ----------
    attackers : Attackers
    affine : Affine
    constant : array (F) or None
        c on the tracked entries; None if it is zero.
    """

    attackers: Attackers
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
    def is_linear_part_honest(self) -> bool:
        """Whether what is uploaded is z_k plus something: no factor of a model is changed."""
        changed = self.affine.own != 1.0 or self.affine.server != 0.0
        return not (changed and np.any(self.attackers.chance))

    def own_pair(self, k: FloatArray, m: FloatArray) -> FloatArray:
        """E[A_k A_m] of two different clients, from E[A_k] and E[A_m]."""
        return np.asarray(k * m + self.attackers.covariance * (self.affine.own - 1.0) ** 2)

    @property
    def parts(self) -> tuple[tuple[FloatArray, FloatArray, FloatArray, float], ...]:
        """Vectors (A, G, t) and weights w whose products make up pairs: E[X_k Y_l] = Σ w X_k Y_l for k ≠ l.

        The means with weight 1 and, if Cov(t_k, t_l) is not zero, (own − 1, server, 1) with that weight.
        """
        chance = self.attackers.chance
        means = (self.own, self.server, chance, 1.0)
        if self.attackers.covariance == 0.0:
            return (means,)
        one = np.ones_like(chance)
        swing = ((self.affine.own - 1.0) * one, self.affine.server * one, one, self.attackers.covariance)
        return means, swing
