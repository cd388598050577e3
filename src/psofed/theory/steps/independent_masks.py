"""A random mask for each client, independent of all others and of the past.

Split S'_m = p + ξ_m. With e = g + p (h − g) and d_m = u_m − g the server is g' = e + (1/s) Σ b_m ξ_m d_m. The ξ of
different clients are independent, so an expectation survives only where each ξ_m meets itself: E[ξ(i)²] = κ₀ = p −
p², E[ξ(i) ξ(j)] = κ = q − p², E[ξ(i) ξ(j)²] = (1 − 2p) κ. p = ``mask.row`` is p_e, q = ``mask.pair``, s =
``drawn.participants``. With

    A_l = E[g' z_lᵀ] = (1 − p) C_l + p U_l,   B_kl = E[b_k d_k z_lᵀ],   Δ_l = E[b_l d_l d_lᵀ],   Γ_l = E[b_l d_l eᵀ],
    T   = E[g' g'ᵀ] = E[e eᵀ] + (κ/s²) Σ_m Δ_m,
    Ξ_l = E[ξ_l(j) g'(i) g'(j)] = (κ Γ_l + κ₀ Γ_lᵀ)/s + (1 − 2p) κ Δ_l/s²,    Z_kl = E[b_k b_l d_k d_lᵀ],

the moments after the download are

    G'    = T,    C⁰_l' = A_l,    C¹_l' = (1 − p) A_l − (κ/s) B_ll + p T + Ξ_l
    P¹⁰'  = (1 − p) Y_kl + p A_l + (κ₀/s) B_kl,    P⁰⁰' = Y_kl
    P¹¹'  = (1 − p)² Y_kl + X_kl + X_lkᵀ + p² T + p (Ξ_l + Ξ_kᵀ) + (κ₀² Z_kl + κ² Z_lk)/s²
    X_kl  = (1 − p)(p A_l + (κ₀/s) B_kl) − p (κ/s) B_ll
    D¹_l' = (1 − 2p + q) Y_ll + N + Nᵀ
          + q (E[e eᵀ] + (1 − p)(Γ_l + Γ_lᵀ)/s + (1 − p)² Δ_l/s² + (κ/s²) Σ_{m≠l} Δ_m)
    N     = (p − q) A_l + (κ₀ − q (1 − p)) B_ll/s.

The capital letters are the names in the code.
"""

from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.second import ClientMoments, UploadSums
from psofed.theory.steps.exchange import ONE, BeforeUpload, Exchanged, PairConstants, Products, SeparableMasks
from psofed.theory.steps.uploads import UploadLaw


class _Gains(NamedTuple):
    """T, A_l, Ξ_l and B_ll of the module's docstring: what pairs gain is made of these."""

    T: FloatArray
    A: FloatArray
    Xi: FloatArray
    B: FloatArray


class IndependentMasks(SeparableMasks):
    """A random mask for each client, independent of all others and of the past."""

    @property
    def _variances(self) -> tuple[FloatArray, FloatArray]:
        """κ₀ and κ."""
        p = self.mask.row
        return p - p**2, self.mask.pair - p**2

    @property
    def constants(self) -> PairConstants:
        """The constants c₁ … c₆."""
        p, s, pair = self.mask.row, self.drawn.participants, self.drawn.pair
        variance, covariance = self._variances
        if not self.remembered:
            return PairConstants.of_average((1 - p) ** 2, 1 - p)
        return PairConstants(
            average_both=(1 - p) ** 2,
            weighted_both=(1 - p) * variance / s,
            both_both=pair * variance**2 / s**2,
            both_flipped=pair * covariance**2 / s**2,
            average_one=1 - p,
            weighted_one=variance / s,
        )

    def clients(self, before: BeforeUpload, sums: UploadSums) -> Exchanged:
        """Exchange server and clients."""
        law, z, first, attack = before
        single, flip = self.drawn.single, self.entries.flip
        p, q, s = self.mask.row, self.mask.pair, self.drawn.participants
        variance, covariance = self._variances
        sent = law.uploads(z, sums, first, attack)
        ee = (1 - p) ** 2 * z.server + p**2 * sent.mean_mean
        ee = ee + p * (1 - p) * (sent.server_mean + flip(sent.server_mean))
        Delta = sent.upload_upload - sent.upload_server - flip(sent.upload_server) + single * z.server
        all_pulls = law.total(Delta)
        T = ee + covariance / s**2 * all_pulls
        A = (1 - p) * sent.cross + p * sent.mean_client
        if not self.remembered:
            own1 = (1 - 2 * p + q) * sent.own + (p - q) * (A + flip(A)) + q * T
            each = p * (1 - p) * A
            return Exchanged(
                ClientMoments(T, (1 - p) * A + p * T, A, own1, sent.own),
                both=[(ONE, each), (flip(each), ONE), (ONE, (p**2 * T)[None])],
                one=[(ONE, p * A)],
            )
        B = sent.upload_own - single * z.cross1
        Gamma = (1 - p) * (sent.upload_server - single * z.server)
        Gamma = Gamma + p * (sent.upload_mean - sent.server_mean_given)
        Xi = (covariance * Gamma + variance * flip(Gamma)) / s + (1 - 2 * p) * covariance / s**2 * Delta
        N = (p - q) * A + (variance - q * (1 - p)) / s * B
        own_server = ee + (1 - p) / s * (Gamma + flip(Gamma))
        own_server = own_server + (1 - p) ** 2 / s**2 * Delta + covariance / s**2 * (all_pulls - Delta)
        clients = ClientMoments(
            server=T,
            cross1=(1 - p) * A - covariance / s * B + p * T + Xi,
            cross0=A,
            own1=(1 - 2 * p + q) * sent.own + N + flip(N) + q * own_server,
            own0=sent.own,
        )
        return Exchanged(clients, *self._pairs(before, _Gains(T, A, Xi, B)))

    def first(self, law: UploadLaw, z: FirstMoments) -> FirstMoments:
        """Exchange first moments."""
        p, drawn = self.entries.first_mask(self.mask.row), self.drawn
        sent, kept = law.means(z), z.average(drawn)
        server = (1 - p) * z.server + p * law.total(sent) / drawn.participants
        own = (p - p**2) / drawn.participants * (sent - drawn.single * z.server)
        return FirstMoments(server, (1 - p) * kept + p * server + own, kept)

    def _pairs(self, before: BeforeUpload, gains: _Gains) -> tuple[Products, Products]:
        """Products that pairs gain where both, and where only the first, participate."""
        law, z, first, attack = before
        drawn, flip, outer, corruption = self.drawn, self.entries.flip, self.entries.outer, law.corruption
        p, s = self.mask.row, drawn.participants
        variance, covariance = self._variances
        # B_kl without the pair's own moment: −(1 − G_k) E[b_k g z_lᵀ] + t_k c E[b_k z_l]ᵀ
        other = drawn.pair * z.cross1 + drawn.only_first * z.cross0
        pulled = [((corruption.server - 1.0)[:, None], other)]
        chance = corruption.attackers.chance[:, None]
        if first is not None and corruption.constant is not None:
            mean = drawn.pair * first.taking + drawn.only_first * first.idle
            pulled.append((chance, outer(corruption.constant, mean)))
        one = [(ONE, p * gains.A)] + [(left, variance / s * right) for left, right in pulled]
        each = (1 - p) * p * gains.A - p * covariance / s * gains.B + p * gains.Xi
        both = [(ONE, each), (flip(each), ONE), (ONE, (p**2 * gains.T)[None])]
        for left, right in pulled:
            part = (1 - p) * variance / s * right
            both += [(left, part), (flip(part), left)]
        pair = drawn.pair / s**2
        for left, right, weight in law.pull_products(z, first):
            both.append((left, weight * pair * variance**2 * right))
            both.append((self._flip(left), weight * pair * covariance**2 * self._flip(right)))
        noise = attack * pair * (variance**2 + covariance**2) * law.common_noise
        if np.any(noise):
            both.append((chance, chance * noise))
        return both, one

    def _flip(self, values: FloatArray) -> FloatArray:
        """Transpose blocks; numbers that are the same for all entries (K, 1) stay as they are."""
        return values if values.shape[-1] == 1 else self.entries.flip(values)
