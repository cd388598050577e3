"""Exchange where uploads arrive at once or one iteration late: what becomes of the server and of uploads on their way.

Notation is that of :mod:`psofed.theory.maps.random_delay`. Given m and c', each of the P uploaders is as likely as any
other to be in 𝓐 or 𝓑', so that with the weights ω_k = b_k/P

    E[1(k∈𝓐) ·] = m E[ω_k ·],    E[1(k, l∈𝓐) ·] = m (m − 1) P/(P − 1) E[ω_k ω_l ·],

and likewise with c' m in place of m (m − 1) if l is in 𝓑'. Server and clients are therefore exchanged as without a
delay, with g + β J in place of g and λ 1(k∈𝓐) in place of ω_k (:meth:`PendingMoments.arriving`). J' remains. Averages
over uploaders are D_y = E[d yᵀ], B_l = E[d z_lᵀ], s = E[d_k d_kᵀ] and t = E[d_k d_lᵀ], k ≠ l.

**One mask for all** (:meth:`PendingMoments.common`): J' = S h with h = Σ_{k∈𝓑'} d_k − c' (y₁ − g) and y₁ = g + β J +
λ Σ_{k∈𝓐} d_k, and where S = 1 the server and those who download hold y₁.

**A mask each** (:meth:`PendingMoments.independent`): 𝓐 and 𝓑' have no client in common, so that their masks are
independent. With p, q, κ₀ and κ of :mod:`psofed.theory.steps.independent_masks`, n₂ = q c' + p² c' (c' − 1) and
e = β D_J + λ m p t,

    E[J' g'ᵀ]  = p c' (D_g + e − E[δ gᵀ] − E[δ δᵀ])
    E[J' J'ᵀ]  = q c' s + p² c' (c' − 1) t − n₂ (e + eᵀ − E[δ δᵀ])
    E[J' z_lᵀ] = p c' (B_l − β E[J z_lᵀ] − λ m p B_l)
    E[J' v_lᵀ] = (1 − p) E[J' z_lᵀ] + p E[J' g'ᵀ] + E[ξ_l(j) J'(i) (g' − z_l)(j)].

The last term is what the client's own mask S_l = p + ξ_l does to J': it is κ where S_l(i) stands in J', if l∈𝓑' or l∈𝓐,
and κ₀ where S_l(j) stands in g', if l∈𝓐.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments.layout import Entries
from psofed.theory.steps.arrivals import ArrivalCounts
from psofed.theory.steps.exchange import MaskMoments
from psofed.theory.steps.received import ReceivedMoments

_G, _J = 0, 1  # the server's models


class Pulls(NamedTuple):
    """Moments before the upload given c, the first axis (C,); Γ_0 = g and Γ_1 = J.

    Attributes
    ----------
    models : array (C, 2, 2, E)
        E[Γ_a Γ_bᵀ].
    toward, cross : array (C, 2, K, E)
        E[ω_k d_k Γ_aᵀ] and E[Γ_a z_lᵀ].
    pulled, products, average : array (C, K, K, E)
        E[ω_k d_k z_lᵀ], E[ω_k ω_l d_k d_lᵀ] and E[z_k z_lᵀ].
    joined : array (C, K, E)
        Σ_{k≠l} E[ω_k ω_l d_k z_lᵀ].
    uploading : array (C, 2, K, E)
        E[ω_l Γ_a z_lᵀ].
    """

    models: FloatArray
    toward: FloatArray
    cross: FloatArray
    pulled: FloatArray
    products: FloatArray
    average: FloatArray
    joined: FloatArray
    uploading: FloatArray


class NextPull(NamedTuple):
    """E[g' J'ᵀ] and E[J' J'ᵀ], (C, E); E[J' v_lᵀ] of those who do not download and of those who do, (C, K, E)."""

    server: FloatArray
    square: FloatArray
    idle: FloatArray
    taking: FloatArray


@dataclass(frozen=True, eq=False)
class PendingMoments:
    """One exchange, given c' as the first axis of every result.

    Parameters
    ----------
    counts : ArrivalCounts
        The law of m, c and c'.
    entries : Entries
    uploads : int
        P.
    given : Pulls
        The moments before it.
    """

    counts: ArrivalCounts
    entries: Entries
    uploads: int
    given: Pulls

    def arriving(self) -> list[tuple[FloatArray, ReceivedMoments]]:
        """E[y₀ y₀ᵀ] of y₀ = g + β J and the uploads that arrive at once, for each c'."""
        mean, given = self._mean, self.given
        k = np.arange(given.pulled.shape[1])
        products = self._pairs * mean(given.products, 2, 0, 2)
        products[:, k, k] = self.uploads * mean(given.products[:, k, k], 2, 0, 1)
        toward = mean(given.toward[:, _G], 1, 0, 1) + mean(given.toward[:, _J], 1, 1, 1)
        parts = (mean(given.pulled, 1, 0, 1), products, toward, mean(given.average), self._before_z)
        late = mean(given.models[:, _G, _J], late=1)
        server = mean(given.models[:, _G, _G]) + late + self.entries.flip(late)
        server = server + mean(given.models[:, _J, _J], late=2)
        return [(g, ReceivedMoments(*r)) for g, *r in zip(server, *parts, strict=True)]

    def common(self, mask: MaskMoments) -> NextPull:
        """Moments of J' with one mask for all."""
        number, q = self._number, mask.pair
        h_g = self._toward(_G) - self._change(_G)
        h_j = self._toward(_J, late=1) - self._change(_J, late=1)
        square = self._change_square(1.0, 1.0)
        with_change = self._late_change(1.0) - square  # E[(d − δ) δᵀ]
        h_y0 = number * (h_g + h_j)
        h_y1 = number * (h_g + with_change)
        late = self._late_change(1.0)
        each, other = self._squares
        h_h = number * each + number * (number - 1) * other
        h_h = h_h + number**2 * (square - late - self.entries.flip(late))
        h_z = self._many * (self._pulled() - self._change_z(1.0))
        flip = self.entries.flip
        return NextPull(
            (mask.column - q) * flip(h_y0) + q * flip(h_y1),
            q * h_h,
            mask.row * h_z,
            (mask.row - q) * h_z + (q * h_y1)[:, None],
        )

    def independent(self, mask: MaskMoments) -> NextPull:
        """Moments of J' with a mask each."""
        mean, given, flip, number, many = self._mean, self.given, self.entries.flip, self._number, self._many
        p, q = mask.row, mask.pair
        variance, covariance = p - p**2, q - p**2
        square, late = self._change_square(p, q), self._late_change(p)
        to_server = p * number * (self._toward(_G) + late - self._change(_G, p=p) - square)
        each, other = self._squares
        two = q * number + p**2 * number * (number - 1)
        j_j = q * number * each + p**2 * number * (number - 1) * other - two * (late + flip(late) - square)
        idle = p * many * (self._pulled() - self._change_z(p))
        # What client l's own mask does: where it is on its way (l∈𝓑') …
        k, clients = np.arange(given.pulled.shape[1]), given.pulled.shape[1]
        own, pairs = given.pulled[:, k, k], self._pairs
        rows = given.products.sum(axis=2) - given.products[:, k, k]  # Σ_{k≠l} Z_lk
        columns = given.products.sum(axis=1) - given.products[:, k, k]
        model = mean(own) - mean(given.uploading[:, _J], late=1) - p * pairs * mean(given.joined, 1, 0, 1)
        sent = mean(given.toward[:, _G]) + mean(given.toward[:, _J], late=1) + p * pairs * mean(rows, 1, 0, 1)
        rest = given.toward.sum(axis=2)[:, :, None] - given.toward
        change = (mean(given.models[:, _J, _G], late=1) + mean(given.models[:, _J, _J], late=2)) / clients
        with_j = p / max(clients - 1, 1) * mean(rest[:, _J], 1, 1, 1)
        moved = change[:, None] + p / max(clients - 1, 1) * mean(rest[:, _G], 1, 0, 1) + with_j + flip(with_j)
        single = given.products[:, k, k]
        apart = single.sum(axis=1)[:, None] - single
        moved = moved + q * self.uploads / max(clients - 1, 1) * mean(apart, 2, 0, 1)
        others = rows.sum(axis=1)[:, None] - rows - columns
        moved = moved + p**2 * pairs / max(clients - 2, 1) * mean(others, 2, 0, 2)
        taking = covariance * many * (sent - moved - model)
        # … and where it has arrived (l∈𝓐).
        toward = mean(given.toward[:, _G], 1, 0, 1)
        whole = toward + mean(given.toward[:, _J], 1, 1, 1)
        Delta = self.uploads * mean(single, 2, 0, 1)
        Gamma = whole + p * (Delta + pairs * mean(rows, 2, 0, 2))
        Xi = covariance * Gamma + variance * flip(Gamma) + (1 - 2 * p) * covariance * Delta
        arrived = variance * pairs * mean(columns, 1, 0, 1) - Xi + variance * flip(toward)
        taking = taking + p * many * (arrived + covariance * mean(own, 1, 0, 1))
        return NextPull(flip(to_server), j_j, idle, (1 - p) * idle + (p * to_server)[:, None] + taking)

    @property
    def _number(self) -> FloatArray:
        """c', (C, 1)."""
        return self.counts.number[:, None]

    @property
    def _many(self) -> FloatArray:
        """c', (C, 1, 1)."""
        return self.counts.number[:, None, None]

    @property
    def _pairs(self) -> float:
        """P/(P − 1)."""
        return self.uploads / max(self.uploads - 1, 1)

    @property
    def _before_z(self) -> FloatArray:
        """E[y₀ z_lᵀ]."""
        return self._mean(self.given.cross[:, _G]) + self._mean(self.given.cross[:, _J], late=1)

    @cached_property
    def _means(self) -> tuple[FloatArray, FloatArray]:
        """Return s and t given c, (C, E)."""
        products, k = self.given.products, np.arange(self.given.products.shape[1])
        single = products[:, k, k].sum(axis=1)
        return self.uploads * single, self._pairs * (products.sum(axis=(1, 2)) - single)

    @property
    def _squares(self) -> tuple[FloatArray, FloatArray]:
        """Return s and t given c'."""
        single, pair = self._means
        return self._mean(single), self._mean(pair)

    def _mean(self, x: FloatArray, pull: int = 0, late: int = 0, m: int = 0) -> FloatArray:
        """Σ_c π_c E[λ^pull β^late · | c'] x_c, (C, …), with 1, m or m (m − 1) in the place of the dot."""
        return np.asarray(np.tensordot(self.counts.average(pull, late, m), x, axes=1))

    def _toward(self, model: int, **powers: int) -> FloatArray:
        """D_y of one of the server's models."""
        return self._mean(self.given.toward[:, model].sum(axis=1), **powers)

    def _pulled(self, **powers: int) -> FloatArray:
        """B_l."""
        return self._mean(self.given.pulled.sum(axis=1), **powers)

    def _change(self, model: int, p: FloatArray | float = 1.0, late: int = 0) -> FloatArray:
        """E[δ Γᵀ], times β^late."""
        own = self._mean(self.given.models[:, _J, model], late=late + 1)
        return own + p * self._toward(model, pull=1, late=late, m=1)

    def _change_z(self, p: FloatArray | float) -> FloatArray:
        """E[δ z_lᵀ]."""
        return self._mean(self.given.cross[:, _J], late=1) + p * self._pulled(pull=1, m=1)

    def _change_square(self, p: FloatArray | float, q: FloatArray | float) -> FloatArray:
        """E[δ δᵀ]."""
        single, pair = self._means
        mixed = p * self._toward(_J, pull=1, late=1, m=1)
        total = self._mean(self.given.models[:, _J, _J], late=2) + mixed + self.entries.flip(mixed)
        return total + q * self._mean(single, 2, 0, 1) + p**2 * self._mean(pair, 2, 0, 2)

    def _late_change(self, p: FloatArray | float) -> FloatArray:
        """E[d δᵀ] of an upload on its way."""
        return self._toward(_J, late=1) + p * self._mean(self._means[1], 1, 0, 1)
