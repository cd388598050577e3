"""Moments of the uploads, jointly with the models before the upload.

Client k's upload is u_k = A_k z_k + G_k g + t_k (c − δ_k) (:mod:`psofed.theory.steps.corruption`), in errors, and b
says who uploads. With s = |S_n|,

    h = (1/s) Σ_k b_k u_k    is what the server holds where everybody shares,
    d_k = u_k − g            is how client k pulls at it.

Without an attack u_k = z_k and h = z̄. For instance, with Ā, Ḡ, t̄ the means of A, G and t,

    s E[h z_lᵀ] = p_c (Ā_l E[z_l z_lᵀ | b_l] + Ḡ_l E[g z_lᵀ | b_l] + t̄_l c E[z_l | b_l]ᵀ)
                + Σ_{k≠l} (Ā_k E[b_k z_k z_lᵀ] + Ḡ_k E[b_k g z_lᵀ] + t̄_k c E[b_k z_l]ᵀ).

z, g and their moments are ``z`` (:class:`~psofed.theory.moments.second.ClientMoments`), sums over pairs ``sums``, means
``first``. Derivation: ``docs/exact_theory.md``.
"""

from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.layout import Entries, Participation
from psofed.theory.moments.second import ClientMoments, PairMoments, UploadSums
from psofed.theory.steps.corruption import Corruption
from psofed.theory.steps.lms import CorrelatedLms


@dataclass(frozen=True, eq=False)
class UploadMoments:
    """Moments of z_l, g, the uploads u_l and h = (1/s) Σ b_m u_m; (K, E) each, or (E,) where no client is named."""

    own: FloatArray  # E[z_l z_lᵀ]
    cross: FloatArray  # E[g z_lᵀ]
    mean_client: FloatArray  # E[h z_lᵀ]
    upload_own: FloatArray  # E[b_l u_l z_lᵀ]
    upload_server: FloatArray  # E[b_l u_l gᵀ]
    upload_upload: FloatArray  # E[b_l u_l u_lᵀ]
    upload_mean: FloatArray  # E[b_l u_l hᵀ]
    server_mean_given: FloatArray  # E[b_l g hᵀ]
    mean_mean: FloatArray  # E[h hᵀ]
    server_mean: FloatArray  # E[g hᵀ]


@dataclass(frozen=True, eq=False)
class UploadLaw:
    """The law of the uploads given the models: turns moments before the upload into moments of the uploads.

    Attributes
    ----------
    drawn : Participation
    entries : Entries
    corruption : Corruption
    copies : array (rows,) or None
        How many clients each row stands for (:mod:`psofed.theory.maps.lumps`); None if each is one client. Then the
        pair (l, l) means two different clients of the same row.
    """

    drawn: Participation
    entries: Entries
    corruption: Corruption
    copies: FloatArray | None = None

    @property
    def rows(self) -> int:
        """Number of rows: K, unless clients are lumped together."""
        return int(self.corruption.own.size)

    def total(self, values: FloatArray) -> FloatArray:
        """Σ_k of an array (rows, …)."""
        return np.asarray(
            values.sum(axis=0) if self.copies is None else np.tensordot(self.copies, values, axes=1)
        )

    def without_same(self, pairs: FloatArray) -> FloatArray:
        """Set the pairs of a client with itself to zero, in place."""
        if self.copies is None:
            diagonal = np.arange(len(pairs))
            pairs[diagonal, diagonal] = 0.0
        return pairs

    def sums(self, pairs: PairMoments, lms: CorrelatedLms | None = None) -> UploadSums:
        """Sum the pairs' moments before the upload, each client weighted as the server receives it.

        Pairs that have their LMS step still before them take it within the sums if `lms` is given, which costs less.
        """
        own, drawn, law = self.corruption.own, self.drawn, self.corruption
        anyone = self._sum_others(own, drawn.pair * pairs.both + drawn.only_first * pairs.one, lms)
        uploader = own[:, None] * self.entries.flip(self._sum_others(own, pairs.both, lms))
        swing = law.attackers.covariance * (law.affine.own - 1.0) ** 2
        if swing:
            uploader += swing * self.entries.flip(self._sum_others(np.ones_like(own), pairs.both, lms))
        return UploadSums(anyone, drawn.pair * uploader)

    def _sum_others(self, weight: FloatArray, pairs: FloatArray, lms: CorrelatedLms | None) -> FloatArray:
        """Σ_{k≠l} weight_k pairs_kl, over clients."""
        counted = weight if self.copies is None else self.copies * weight
        total = np.tensordot(counted, pairs, axes=1) if lms is None else lms.sum_decayed(counted, pairs)
        if self.copies is not None:
            diagonal = np.arange(len(weight))
            same = pairs[diagonal, diagonal]
            total = total - weight[:, None] * (same if lms is None else lms.decay_same(same))
        return np.asarray(total)

    def uploads(
        self, z: ClientMoments, sums: UploadSums, first: FirstMoments | None, attack: float
    ) -> UploadMoments:
        """Moments of the uploads; `attack` scales the variance that attackers add, and `first` None drops c."""
        drawn, entries, law, total = self.drawn, self.entries, self.corruption, self.total
        flip, outer, p, s = entries.flip, entries.outer, drawn.single, drawn.participants
        own, server, chance = _column(law.own), _column(law.server), _column(law.attackers.chance)
        affine, c = law.affine, law.constant
        turned = flip(z.cross1)
        other = drawn.pair * z.cross1 + drawn.only_first * z.cross0  # E[b_k g z_lᵀ], k ≠ l
        upload_own = p * (own * z.own1 + server * z.cross1)
        anyone = sums.anyone + (total(server) - server) * other
        upload_server = p * (own * turned + server * z.server)
        # t² = t, so the second moments of one client's A, G and t are those of a client that attacks, times E[t].
        square = 1.0 + chance * (affine.own**2 - 1.0)
        mixed, server2 = chance * affine.own * affine.server, chance * affine.server**2
        noise = attack * (affine.variance + affine.common_variance) * chance * entries.diagonal
        upload_upload = p * (square * z.own1 + mixed * (z.cross1 + turned) + server2 * z.server + noise)
        given = drawn.pair * (own * z.cross1 + server * z.server)  # E[b_l b_m g u_mᵀ] of any m ≠ l
        if first is not None and c is not None:
            mean = drawn.pair * first.taking + drawn.only_first * first.idle
            upload_own += p * chance * outer(c, first.taking)
            anyone += (total(chance) - chance) * outer(c, mean)
            upload_server += p * chance * outer(c, first.server)
            one, two = outer(first.taking, c), outer(first.server, c)
            upload_upload += p * chance * (affine.own * (one + flip(one)) + affine.server * (two + flip(two)))
            upload_upload += p * chance * outer(c, c)
            given += drawn.pair * chance * two
        pairs = sums.uploader + drawn.pair * self._other_products(z, first)
        pairs += attack * drawn.pair * chance * (total(chance) - chance) * self.common_noise
        upload_mean = (upload_upload + pairs) / s
        return UploadMoments(
            own=drawn.mix(z.own1, z.own0),
            cross=drawn.mix(z.cross1, z.cross0),
            mean_client=(upload_own + anyone) / s,
            upload_own=upload_own,
            upload_server=upload_server,
            upload_upload=upload_upload,
            upload_mean=upload_mean,
            server_mean_given=(flip(upload_server) + total(given) - given) / s,
            mean_mean=total(upload_mean) / s,
            server_mean=flip(total(upload_server)) / s,
        )

    def means(self, first: FirstMoments) -> FloatArray:
        """E[b_k u_k], (K, F)."""
        law, per_client = self.corruption, self.entries.per_client
        mean = per_client(law.own) * first.taking + per_client(law.server) * first.server
        if law.constant is not None:
            mean = mean + per_client(law.attackers.chance) * law.constant
        return np.asarray(self.drawn.single * mean)

    def pull_products(self, z: ClientMoments, first: FirstMoments | None) -> "UploadProducts":
        """E[d_k d_lᵀ | b_k = b_l = 1] without the pair (k, l) itself: a sum of weight · left_k · right_l, k ≠ l."""
        return self._products(z, first, pulled=1.0)

    @property
    def common_noise(self) -> FloatArray:
        """E[t_k t_l δ δ] of two attackers on the tracked entries, to be multiplied by E[t_k] E[t_l] (E,)."""
        law = self.corruption
        return law.attackers.pair_factor * law.affine.common_variance * self.entries.diagonal

    def _other_products(self, z: ClientMoments, first: FirstMoments | None) -> FloatArray:
        """Σ_{m≠l} E[u_l u_mᵀ | b_l = b_m = 1] without the pairs' own moments, (K, E)."""
        total = np.zeros_like(z.own1)
        if self.corruption.is_linear_part_honest and (first is None or self.corruption.constant is None):
            return total
        for left, right, weight in self._products(z, first, pulled=0.0):
            total += weight * left * (self.total(right) - right)
        return total

    def _products(self, z: ClientMoments, first: FirstMoments | None, pulled: float) -> "UploadProducts":
        """Return the products in E[x_k x_lᵀ | b_k = b_l = 1], x = u − `pulled` · g, without that of z_k and z_l."""
        law, flip, outer = self.corruption, self.entries.flip, self.entries.outer
        terms: UploadProducts = []
        for index, (own, server, chance, weight) in enumerate(law.parts):
            a, t = _column(own), _column(chance)
            # Only the mean of x contains −g; what swings with t does not.
            g = _column(server - pulled if index == 0 else server)
            terms += [
                (a * flip(z.cross1), g, weight),
                (g, a * z.cross1 + g * z.server, weight),
            ]
            if first is not None and law.constant is not None:
                c = law.constant
                terms += [
                    (a * outer(first.taking, c), t, weight),
                    (g, t * outer(first.server, c), weight),
                    (t, a * outer(c, first.taking) + g * outer(c, first.server) + t * outer(c, c), weight),
                ]
        return terms


UploadProducts = list[tuple[FloatArray, FloatArray, float]]


def _column(values: FloatArray) -> FloatArray:
    return values[:, None]
