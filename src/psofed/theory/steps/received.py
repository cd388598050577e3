"""Uploads as the server receives them from clients that differ in attack, weight and channel.

Client k's upload u_k is made while the server holds Γ_0, and is applied to the server's model Γ_d; without a delay both
are g. It pulls by d_k = u_k − Γ_d, in errors

    d_k = A_k z_k + G_k Γ_0 − Γ_d + t_k (c_k − δ_k) + ε_k

(:mod:`psofed.theory.steps.corruption`), where every group of attackers has its own α (``own``), γ (``server``), c
(``constant``) and variances, and ε_k is the uplink's noise. With the weights ω_k of
:mod:`psofed.theory.steps.presence` the server's exchange needs

    B_kl = E[ω_k d_k z_lᵀ],    D_ak = E[ω_k d_k Γ_aᵀ],    Z_kl = E[ω_k ω_l d_k d_lᵀ]

for all the N models Γ_0, …, Γ_d = Γ_{N−1} of the server that are tracked (:mod:`psofed.theory.maps.opened`). Weights,
attacks and noise are independent of each other, and the moments of z given the states c of
:class:`~psofed.theory.steps.presence.PresenceMoments` are in :class:`StateMoments`.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments.layout import Entries
from psofed.theory.steps.presence import PresenceMoments


class StateMoments(NamedTuple):
    """Moments before the upload, given the clients' states.

    Attributes
    ----------
    server : array (N, N, E)
        E[Γ_a Γ_bᵀ].
    cross : list of arrays (N, K, E)
        E[Γ_a z_kᵀ | c_k = c], for every state c.
    own : list of arrays (K, E)
        E[z_k z_kᵀ | c_k = c].
    pairs : list of lists of arrays (K, K, E)
        E[z_k z_lᵀ | c_k = c, c_l = c'].
    """

    server: FloatArray
    cross: list[FloatArray]
    own: list[FloatArray]
    pairs: list[list[FloatArray]]


class StateMeans(NamedTuple):
    """E[Γ_a], (N, F), and E[z_k | c_k = c], a list of arrays (K, F)."""

    server: FloatArray
    clients: list[FloatArray]


class ReceivedMoments(NamedTuple):
    """B and Z, (K, K, E), D, (N, K, E); and of the models Y = E[z_k z_lᵀ], (K, K, E), and E[Γ_a z_kᵀ], (N, K, E)."""

    pulled: FloatArray
    products: FloatArray
    toward: FloatArray
    average: FloatArray
    cross: FloatArray

    def without_delay(self) -> "ReceivedMoments":
        """Return D and E[g z_kᵀ] of the one model that the server has, (K, E)."""
        return self._replace(toward=self.toward[0], cross=self.cross[0])


class CommonNoise(NamedTuple):
    """Noise that the attackers of one group share: its variance, E[t_k] (K,), and f in E[t_k t_l] = f E[t_k] E[t_l]."""

    variance: float
    chance: FloatArray
    pair_factor: float


@dataclass(frozen=True, eq=False)
class ReceivedLaw:
    """The law of what the server receives.

    Attributes
    ----------
    presence : PresenceMoments
    entries : Entries
    chance, own, server, variance : array (K,)
        E[t_k], and α, γ and the added variance of an attacked upload.
    constant : array (K, F)
        c_k.
    lost : array (K,)
        1 where attacked uploads do not arrive, so that the channel adds nothing to them.
    common : tuple of CommonNoise
    covariance : float
        Cov(t_k, t_l), where the Byzantine set is redrawn.
    channel_variance : float
        Variance that the uplink adds to every value.
    delay : int
        d: uploads are applied to the server's model Γ_d.
    """

    presence: PresenceMoments
    entries: Entries
    chance: FloatArray
    own: FloatArray
    server: FloatArray
    variance: FloatArray
    constant: FloatArray
    lost: FloatArray
    common: tuple[CommonNoise, ...] = ()
    covariance: float = 0.0
    channel_variance: float = 0.0
    delay: int = 0

    @property
    def has_constant(self) -> bool:
        """Whether some attack pulls to a side."""
        return bool(np.any(self.constant[self.chance > 0]))

    @cached_property
    def _own_factor(self) -> FloatArray:
        """E[A_k], (K,)."""
        return 1.0 + self.chance * (self.own - 1.0)

    def _server_factors(self, attacked: FloatArray) -> dict[int, FloatArray]:
        """Factors (K,) of the server's models in d_k, by their number; `attacked` is γ_k or E[G_k]."""
        if self.delay == 0:
            return {0: attacked - 1.0}
        factors = {self.delay: np.full(self.chance.size, -1.0)}
        return {0: attacked} | factors if np.any(self.server) else factors

    def moments(
        self, z: StateMoments, means: StateMeans | None, noise: float, attack: float
    ) -> ReceivedMoments:
        """Return the moments of the uploads; `noise` and `attack` scale the channel's and the attackers' variance."""
        here, entries, size = self.presence, self.entries, self.chance.size
        flip, outer, states = entries.flip, entries.outer, range(len(z.cross))
        rest = self._server_factors(self.chance * self.server)
        a, t, c = self._own_factor[:, None], self.chance[:, None], self.constant
        sums = [np.zeros((size, size, entries.size)) for _ in range(3)]
        for first in states:
            for second in states:
                tables = (here.pair, here.pair_weight, here.pair_product)
                for total, table in zip(sums, tables, strict=True):
                    total += table[first, second][:, :, None] * z.pairs[first][second]
        average, weighted, product = sums
        # E[ω_k Γ z_lᵀ] and E[ω_k ω_l Γ z_lᵀ], from the state of l alone
        to_server, to_both = (
            {m: sum(table.sum(axis=0)[s][:, :, None] * z.cross[s][m][None] for s in states) for m in rest}
            for table in (here.pair_weight, here.pair_product)
        )
        pulled = a[:, None] * weighted + sum(r[:, None, None] * to_server[m] for m, r in rest.items())
        own, own2 = (_given(table, z.own) for table in (here.weight, here.square))
        cross, cross2 = (_mixed(table, z.cross) for table in (here.weight, here.square))
        weight, weight2 = here.weight.sum(axis=0)[:, None], here.square.sum(axis=0)[:, None]
        self_pulled = a * own + sum(r[:, None] * cross[m] for m, r in rest.items())
        toward = a * flip(cross) + sum(r[:, None] * weight * z.server[m][:, None] for m, r in rest.items())
        # t² = t, so the second moments are those of clients that attack and of clients that do not.
        added = attack * t * self.variance[:, None]
        added = added + noise * self.channel_variance * (1.0 - t * self.lost[:, None])
        same = added * weight2 * entries.diagonal
        attacking = (t, self.own, self._server_factors(self.server))
        honest = (1.0 - t, np.ones(size), self._server_factors(np.zeros(size)))
        for chance, factor, servers in (attacking, honest):
            alpha = factor[:, None]
            square = alpha**2 * own2
            for m, r in servers.items():
                square = square + alpha * r[:, None] * (cross2[m] + flip(cross2[m]))
                for other, q in servers.items():
                    square = square + (r * q)[:, None] * weight2 * z.server[m, other]
            same = same + chance * square
        both = here.pair_product.sum(axis=(0, 1))[:, :, None]
        products = self._pair_products(product, to_both, both, z.server)
        for group in self.common:
            chance = group.chance[:, None]
            same = same + attack * group.variance * chance * weight2 * entries.diagonal
            shared = group.pair_factor * chance[:, None] * chance[None, :]
            products = products + attack * group.variance * shared * both * entries.diagonal
        if means is not None and self.has_constant:
            mean, mean2 = (_given(table, means.clients) for table in (here.weight, here.square))
            pulled = pulled + t[:, None] * outer(c[:, None], self._mean_given(here.pair_weight, means))
            self_pulled = self_pulled + t * outer(c, mean)
            toward = toward + t * weight * outer(c, means.server[:, None])
            half = self.own[:, None] * outer(mean2, c)
            for m, r in attacking[2].items():
                half = half + r[:, None] * weight2 * outer(means.server[m], c)
            same = same + t * (half + flip(half) + weight2 * outer(c, c))
            products = products + self._pair_constants(means, both)
        k = np.arange(size)
        pulled[k, k], products[k, k] = self_pulled, same
        average[k, k] = _given(here.single, z.own)
        return ReceivedMoments(pulled, products, toward, average, _mixed(here.single, z.cross))

    def means(self, means: StateMeans) -> tuple[FloatArray, FloatArray]:
        """E[ω_k d_k] and E[z_k], (K, F)."""
        shape, here = self.entries.per_client, self.presence
        weight = shape(here.weight.sum(axis=0))
        sent = shape(self._own_factor) * _given(here.weight, means.clients)
        for m, r in self._server_factors(self.chance * self.server).items():
            sent = sent + weight * shape(r) * means.server[m]
        return sent + weight * shape(self.chance) * self.constant, _given(here.single, means.clients)

    @property
    def _parts(self) -> list[tuple[FloatArray, dict[int, FloatArray], FloatArray, float]]:
        """A, factors of Γ, t and weights whose products make up pairs, as in :attr:`.Corruption.parts`."""
        rest = self._server_factors(self.chance * self.server)
        parts = [(self._own_factor, rest, self.chance, 1.0)]
        if self.covariance:
            swing = {0: self.server} if np.any(self.server) else {}
            parts.append((self.own - 1.0, swing, np.ones_like(self.chance), self.covariance))
        return parts

    def _pair_products(
        self, product: FloatArray, to_both: dict[int, FloatArray], both: FloatArray, server: FloatArray
    ) -> FloatArray:
        """Z of k ≠ l without constants and common noise."""
        total = np.zeros_like(product)
        for own, rest, _, weight in self._parts:
            a, b = own[:, None, None], own[None, :, None]
            total += weight * a * b * product
            for m, r in rest.items():
                mixed = weight * r[:, None, None] * b * to_both[m]
                total += mixed + self.entries.flip_pairs(mixed)
                for other, q in rest.items():
                    total += weight * r[:, None, None] * q[None, :, None] * both * server[m, other]
        return total

    def _pair_constants(self, means: StateMeans, both: FloatArray) -> FloatArray:
        """Return the terms of Z that contain constants, for k ≠ l."""
        outer, flip_pairs, c = self.entries.outer, self.entries.flip_pairs, self.constant
        from_left = outer(
            c[:, None], self._mean_given(self.presence.pair_product, means)
        )  # c_k E[ω_k ω_l z_l]ᵀ
        constants = both * outer(c[:, None], c[None, :])
        total = np.zeros_like(from_left)
        for own, rest, chance, weight in self._parts:
            t, s = chance[:, None, None], chance[None, :, None]
            half = own[None, :, None] * from_left
            for m, r in rest.items():
                half = half + r[None, :, None] * both * outer(c, means.server[m])[:, None]
            half = t * half
            total += weight * (half + flip_pairs(half) + t * s * constants)
        return total

    def _mean_given(self, table: FloatArray, means: StateMeans) -> FloatArray:
        """E[ω_k z_l] or E[ω_k ω_l z_l], (K, K, F)."""
        ones = (1,) * len(self.entries.first_shape)
        chances = table.sum(axis=0)
        parts = (
            chances[s].reshape(*chances[s].shape, *ones) * mean[None] for s, mean in enumerate(means.clients)
        )
        return np.asarray(sum(parts))


def _given(table: FloatArray, values: list[FloatArray]) -> FloatArray:
    """Σ_c table_c values_c of every client."""
    ones = (1,) * (values[0].ndim - 1)
    parts = (chance.reshape(-1, *ones) * value for chance, value in zip(table, values, strict=True))
    return np.asarray(sum(parts))


def _mixed(table: FloatArray, cross: list[FloatArray]) -> FloatArray:
    """Σ_c table_c cross_c of every server model and client, (N, K, E)."""
    return np.asarray(sum(chance[:, None] * value for chance, value in zip(table, cross, strict=True)))
