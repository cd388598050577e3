"""One mask σ for all clients: g' = (1 − σ) g + σ h, and a client that downloads gets h where σ = 1.

With p_i = E[σ(i)], p_j = E[σ(j)], q = E[σ(i) σ(j)] (``mask.row``, ``mask.column``, ``mask.pair``), c̄ = E[g hᵀ], V =
E[h hᵀ], C_l = E[g z_lᵀ], U_l = E[h z_lᵀ] and Y = E[z_k z_lᵀ],

    G'    = (1 − p_i − p_j + q) G + (p_j − q) c̄ + (p_i − q) c̄ᵀ + q V
    C⁰_l' = (1 − p_i) C_l + p_i U_l
    C¹_l' = (1 − p_i − p_j + q) C_l + (p_j − q) c̄ + (p_i − q) U_l + q V
    P¹¹'  = (1 − p_i − p_j + q) Y + (p_i − q) U_l + (p_j − q) U_kᵀ + q V,    P¹⁰' = (1 − p_i) Y + p_i U_l,    P⁰⁰' = Y,

and D¹_l' is P¹¹' with k = l. Round-robin with one offset is the same with masks that are certain, p_i, p_j ∈ {0, 1}.
"""

from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.second import ClientMoments, UploadSums
from psofed.theory.steps.exchange import ONE, BeforeUpload, Exchanged, PairConstants, SeparableMasks
from psofed.theory.steps.uploads import UploadLaw


class CommonMask(SeparableMasks):
    """One mask for all clients: random, or the moving window of round-robin, whose moments are 0 or 1."""

    @property
    def constants(self) -> PairConstants:
        """The constants c₁ … c₆."""
        mask = self.mask
        return PairConstants.of_average(1 - mask.row - mask.column + mask.pair, 1 - mask.row)

    def clients(self, before: BeforeUpload, sums: UploadSums) -> Exchanged:
        """Exchange server and clients."""
        law, z, first, attack = before
        flip, mask = self.entries.flip, self.mask
        sent = law.uploads(z, sums, first, attack)
        q, only_i, only_j = mask.pair, mask.row - mask.pair, mask.column - mask.pair
        neither = 1 - mask.row - only_j
        mean = sent.server_mean
        server = neither * z.server + only_j * mean + only_i * flip(mean) + q * sent.mean_mean
        cross0 = (1 - mask.row) * sent.cross + mask.row * sent.mean_client
        if self.remembered:
            # Where the mask is 1 the server holds h, so what a client downloads is h.
            got_client, got_got = sent.mean_client, sent.mean_mean
            cross1 = neither * sent.cross + only_j * mean + only_i * got_client + q * got_got
        else:
            got_client, got_got = cross0, server
            cross1 = (1 - mask.column) * cross0 + mask.column * server
        own1 = neither * sent.own + only_i * got_client + only_j * flip(got_client) + q * got_got
        each = only_i * got_client
        return Exchanged(
            ClientMoments(server, cross1, cross0, own1, sent.own),
            both=[(ONE, each), (flip(each), ONE), (ONE, (q * got_got)[None])],
            one=[(ONE, mask.row * got_client)],
        )

    def first(self, law: UploadLaw, z: FirstMoments) -> FirstMoments:
        """Exchange first moments."""
        p = self.entries.first_mask(self.mask.row)
        got = law.total(law.means(z)) / self.drawn.participants
        kept = z.average(self.drawn)
        return FirstMoments((1 - p) * z.server + p * got, (1 - p) * kept + p * got, kept)
