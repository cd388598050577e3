"""Masks that are known, one for each client: round-robin windows, given the clients' offsets.

Nothing is averaged over masks: g' = g + (1/s) Σ_k b_k S_k d_k and v_k = z_k + a_k S_k (g' − z_k). With S_k(i) and
S_k(j) in ``row`` and ``column``, A_l = E[g' z_lᵀ] and T = E[g' g'ᵀ],

    A_l   = C_l + (1/s) Σ_m S_m(i) E[b_m d_m z_lᵀ]
    T     = G + (1/s) Σ_m (S_m(i) E[b_m d_m gᵀ] + S_m(j) E[b_m g d_mᵀ]) + (1/s²) Σ_km S_k(i) S_m(j) E[b_k b_m d_k d_mᵀ]
    P¹¹'  = (1 − S_k(i)) ((1 − S_l(j)) Y_kl + S_l(j) A_kᵀ) + S_k(i) ((1 − S_l(j)) A_l + S_l(j) T)
    P¹⁰'  = (1 − S_k(i)) Y_kl + S_k(i) A_l.

The constants of a pair depend on both clients' masks, so this law is not separable. Over white inputs its compiled form
is :mod:`psofed.theory.maps.windows`.
"""

from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.second import ClientMoments, MomentState, PairMoments, UploadSums
from psofed.theory.steps.exchange import MaskLaw
from psofed.theory.steps.uploads import UploadLaw, UploadMoments


@dataclass(frozen=True, eq=False)
class FixedMasks(MaskLaw):
    """Known masks, one for each client.

    Parameters
    ----------
    row, column : array (K, E)
        S_k(i) and S_k(j) on the tracked entries.
    """

    row: FloatArray
    column: FloatArray

    def exchange(
        self,
        law: UploadLaw,
        z: ClientMoments,
        pairs: PairMoments,
        first: FirstMoments | None = None,
        attack: float = 1.0,
    ) -> MomentState:
        """Exchange all moments."""
        drawn, flip, s = self.drawn, self.entries.flip, self.drawn.participants
        row, column = self.row, self.column
        nothing = np.zeros_like(z.own1)
        sent = law.uploads(z, UploadSums(nothing, nothing), first, attack)
        pulls, pull_pairs = law.weighted(z, pairs, first)
        diagonal = np.arange(drawn.clients)
        pulls[diagonal, diagonal] = sent.upload_own - drawn.single * z.cross1
        client = sent.cross + np.einsum("me,mle->le", row, pulls) / s
        server = self._server(law, z, sent, pull_pairs, attack)
        cross1 = (1 - column) * client + column * server
        own_client = row * (1 - column) * client
        own1 = (1 - row) * (1 - column) * sent.own + own_client + flip(own_client) + row * column * server
        average = pairs.average(drawn, self.entries)
        keep_row, keep_column = (1 - row)[:, None], (1 - column)[None, :]
        row_, column_ = row[:, None], column[None, :]
        both = keep_row * (keep_column * average + column_ * flip(client)[:, None])
        both += row_ * (keep_column * client[None, :] + column_ * server)
        one = keep_row * average + row_ * client[None, :]
        return MomentState(
            ClientMoments(server, cross1, client, own1, sent.own),
            PairMoments(law.without_same(both), law.without_same(one), average),
        )

    def first(self, law: UploadLaw, z: FirstMoments) -> FirstMoments:
        """Exchange first moments."""
        mask = self.entries.first_mask(self.row)
        pulled = mask * (law.means(z) - self.drawn.single * z.server)
        server = z.server + pulled.sum(axis=0) / self.drawn.participants
        kept = z.average(self.drawn)
        return FirstMoments(server, (1 - mask) * kept + mask * server, kept)

    def _server(
        self, law: UploadLaw, z: ClientMoments, sent: UploadMoments, pull_pairs: FloatArray, attack: float
    ) -> FloatArray:
        """T = E[g' g'ᵀ]."""
        drawn, flip, s = self.drawn, self.entries.flip, self.drawn.participants
        row, column = self.row, self.column
        toward = (row * (sent.upload_server - drawn.single * z.server)).sum(axis=0) / s
        turned = flip(sent.upload_server)
        diagonal = np.arange(drawn.clients)
        pull_pairs[diagonal, diagonal] = (
            sent.upload_upload - sent.upload_server - turned + drawn.single * z.server
        )
        second = np.einsum("ke,kle,le->e", row, pull_pairs, column)
        # Noise that all attackers share: of two different ones, so the square of the sum less the sum of squares
        chance = law.corruption.attackers.chance[:, None]
        rows, columns = row * chance, column * chance
        together = rows.sum(axis=0) * columns.sum(axis=0) - (rows * columns).sum(axis=0)
        second += attack * drawn.pair * together * law.common_noise
        return np.asarray(z.server + toward + flip(toward) + second / s**2)
