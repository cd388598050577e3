"""Uploads as the server receives them from clients that differ in attack, weight and channel.

Client k's upload pulls at the server's model g by d_k = u_k − g, in errors

    d_k = A_k z_k + (G_k − 1) g + t_k (c_k − δ_k) + ε_k

(:mod:`psofed.theory.steps.corruption`), where every group of attackers has its own α (``own``), γ (``server``), c
(``constant``) and variances, and ε_k is the uplink's noise. With the weights ω_k of
:mod:`psofed.theory.steps.presence` the server's exchange needs

    B_kl = E[ω_k d_k z_lᵀ],    D_k = E[ω_k d_k gᵀ],    Z_kl = E[ω_k ω_l d_k d_lᵀ].

Weights, attacks and noise are independent of each other, and the moments of z given the states c of
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
    server : array (E,)
        E[g gᵀ].
    cross, own : list of arrays (K, E)
        E[g z_kᵀ | c_k = c] and E[z_k z_kᵀ | c_k = c], for every state c.
    pairs : list of lists of arrays (K, K, E)
        E[z_k z_lᵀ | c_k = c, c_l = c'].
    """

    server: FloatArray
    cross: list[FloatArray]
    own: list[FloatArray]
    pairs: list[list[FloatArray]]


class StateMeans(NamedTuple):
    """E[g], (F), and E[z_k | c_k = c], a list of arrays (K, F)."""

    server: FloatArray
    clients: list[FloatArray]


class ReceivedMoments(NamedTuple):
    """B and Z, (K, K, E), D, (K, E); and of the models Y = E[z_k z_lᵀ], (K, K, E), and E[g z_kᵀ], (K, E)."""

    pulled: FloatArray
    products: FloatArray
    toward: FloatArray
    average: FloatArray
    cross: FloatArray


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

    @property
    def has_constant(self) -> bool:
        """Whether some attack pulls to a side."""
        return bool(np.any(self.constant[self.chance > 0]))

    @cached_property
    def _factors(self) -> tuple[FloatArray, FloatArray]:
        """E[A_k] and E[G_k − 1], (K,)."""
        return 1.0 + self.chance * (self.own - 1.0), self.chance * self.server - 1.0

    def moments(
        self, z: StateMoments, means: StateMeans | None, noise: float, attack: float
    ) -> ReceivedMoments:
        """Return the moments of the uploads; `noise` and `attack` scale the channel's and the attackers' variance."""
        here, entries, size = self.presence, self.entries, self.chance.size
        flip, outer, states = entries.flip, entries.outer, range(len(z.cross))
        a, rest = (x[:, None] for x in self._factors)
        t, g, c = self.chance[:, None], z.server, self.constant
        sums = [np.zeros((size, size, entries.size)) for _ in range(3)]
        for first in states:
            for second in states:
                tables = (here.pair, here.pair_weight, here.pair_product)
                for total, table in zip(sums, tables, strict=True):
                    total += table[first, second][:, :, None] * z.pairs[first][second]
        average, weighted, product = sums
        # E[ω_k g z_lᵀ] and E[ω_k ω_l g z_lᵀ], from the state of l alone
        to_server, to_both = (
            sum(table.sum(axis=0)[s][:, :, None] * z.cross[s][None] for s in states)
            for table in (here.pair_weight, here.pair_product)
        )
        pulled = a[:, None] * weighted + rest[:, None] * to_server
        own, own2 = (_given(table, z.own) for table in (here.weight, here.square))
        cross, cross2 = (_given(table, z.cross) for table in (here.weight, here.square))
        weight, weight2 = here.weight.sum(axis=0)[:, None], here.square.sum(axis=0)[:, None]
        self_pulled = a * own + rest * cross
        toward = a * flip(cross) + rest * weight * g
        # t² = t, so the second moments of A and G are those of a client that attacks, times E[t].
        alpha, less = self.own[:, None], self.server[:, None] - 1.0
        square, mixed = 1.0 - t + t * alpha**2, t * alpha * less - (1.0 - t)
        added = attack * t * self.variance[:, None]
        added = added + noise * self.channel_variance * (1.0 - t * self.lost[:, None])
        same = square * own2 + mixed * (cross2 + flip(cross2)) + (1.0 - t + t * less**2) * weight2 * g
        same = same + added * weight2 * entries.diagonal
        both = here.pair_product.sum(axis=(0, 1))[:, :, None]
        products = self._pair_products(product, to_both, both * g)
        for group in self.common:
            chance = group.chance[:, None]
            same = same + attack * group.variance * chance * weight2 * entries.diagonal
            shared = group.pair_factor * chance[:, None] * chance[None, :]
            products = products + attack * group.variance * shared * both * entries.diagonal
        if means is not None and self.has_constant:
            mean, mean2 = (_given(table, means.clients) for table in (here.weight, here.square))
            pulled = pulled + t[:, None] * outer(c[:, None], self._mean_given(here.pair_weight, means))
            self_pulled = self_pulled + t * outer(c, mean)
            toward = toward + t * weight * outer(c, means.server)
            one, two = outer(mean2, c), outer(means.server, c)
            same = same + t * (
                alpha * (one + flip(one)) + less * weight2 * (two + flip(two)) + weight2 * outer(c, c)
            )
            products = products + self._pair_constants(means, both)
        k = np.arange(size)
        pulled[k, k], products[k, k] = self_pulled, same
        average[k, k] = _given(here.single, z.own)
        return ReceivedMoments(pulled, products, toward, average, _given(here.single, z.cross))

    def means(self, means: StateMeans) -> tuple[FloatArray, FloatArray]:
        """E[ω_k d_k] and E[z_k], (K, F)."""
        shape, here = self.entries.per_client, self.presence
        a, rest = self._factors
        weight = shape(here.weight.sum(axis=0))
        sent = shape(a) * _given(here.weight, means.clients) + weight * shape(rest) * means.server
        return sent + weight * shape(self.chance) * self.constant, _given(here.single, means.clients)

    @property
    def _parts(self) -> list[tuple[FloatArray, FloatArray, FloatArray, float]]:
        """A, G − 1, t and weights whose products make up pairs, as in :attr:`.Corruption.parts`."""
        parts = [(*self._factors, self.chance, 1.0)]
        if self.covariance:
            parts.append((self.own - 1.0, self.server, np.ones_like(self.chance), self.covariance))
        return parts

    def _pair_products(self, product: FloatArray, to_both: FloatArray, server: FloatArray) -> FloatArray:
        """Z of k ≠ l without constants and common noise."""
        turned = self.entries.flip_pairs(to_both)  # E[ω_k ω_l z_k gᵀ]
        total = np.zeros_like(product)
        for own, rest, _, weight in self._parts:
            a, r = own[:, None, None], rest[:, None, None]
            b, q = own[None, :, None], rest[None, :, None]
            total += weight * (a * b * product + a * q * turned + r * b * to_both + r * q * server)
        return total

    def _pair_constants(self, means: StateMeans, both: FloatArray) -> FloatArray:
        """Return the terms of Z that contain constants, for k ≠ l."""
        outer, flip_pairs, c = self.entries.outer, self.entries.flip_pairs, self.constant
        from_left = outer(
            c[:, None], self._mean_given(self.presence.pair_product, means)
        )  # c_k E[ω_k ω_l z_l]ᵀ
        server = both * outer(c, means.server)[:, None]  # c_k E[g]ᵀ
        constants = both * outer(c[:, None], c[None, :])
        total = np.zeros_like(from_left)
        for own, rest, chance, weight in self._parts:
            t, s = chance[:, None, None], chance[None, :, None]
            half = t * (own[None, :, None] * from_left + rest[None, :, None] * server)
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
