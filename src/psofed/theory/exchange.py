"""What upload and download do to second moments, for masks common to all clients and for independent ones.

An exchange takes the moments of server and clients before the upload (z_k, after the LMS step) to those after the
next download (v_k). Upload and download share the mask S_{k,n+1}, so both are taken in one go and nothing is
averaged in between. Who uploads is b: those who downloaded before the LMS step (``uplink = "same"``; the moments
are already given participation), or a fresh draw (``"redrawn"``; the moments are mixed first). Who downloads is
a, always drawn afresh. Derivation: ``docs/exact_theory.md``.

Here an exchange is *separable*: the moments of the pair (k, l) become

    both_kl = c₁ Y_kl + c₂ (A_k B_kl + A_l B_lkᵀ) + (c₃ Z_kl + c₄ Z_klᵀ) E[A_k A_l] + Σ_j x_kj y_lj,
    one_kl  = c₅ Y_kl + c₆ A_k B_kl + Σ_j x'_kj y'_lj,
    none_kl = Y_kl,

with Y = E[z_k z_lᵀ], B = E[b_k z_k z_lᵀ], Z = E[z_k z_lᵀ | b_k = b_l = 1], the same constants c for all pairs, A_k the
factor of z_k in client k's upload, and products x, y made of the other moments and of two sums over clients. That
is what lets the steady state be found without storing a pair (see :mod:`psofed.theory.reduced`).
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.first import FirstMoments
from psofed.theory.moments import ClientMoments, Entries, PairMoments, Participation, UploadSums
from psofed.theory.uploads import UploadLaw, Uploads

_ONE = np.ones((1, 1))


@dataclass(frozen=True, eq=False)
class MaskMoments:
    """First and second moments of the masks on the tracked entries (i, j).

    Attributes
    ----------
    row, column : array (E,)
        E[S(i)] and E[S(j)].
    pair : array (E,)
        E[S(i) S(j)] of one mask.
    """

    row: FloatArray
    column: FloatArray
    pair: FloatArray


@dataclass(frozen=True, eq=False)
class PairConstants:
    """The constants c₁ … c₆ of a separable exchange, each of shape (E,)."""

    average_both: FloatArray
    weighted_both: FloatArray
    both_both: FloatArray
    both_flipped: FloatArray
    average_one: FloatArray
    weighted_one: FloatArray


Products = list[tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class Exchanged:
    """What a separable exchange makes of everything but the pairs' own constants.

    Attributes
    ----------
    clients : ClientMoments
        Server and single clients after the next download.
    both, one : list of (left, right)
        Σ_j left_k right_l is what the pair (k, l) gains where both, or only k, participate. Arrays (K, E), or (1, E),
        (K, 1) where they are the same for all clients or entries.
    """

    clients: ClientMoments
    both: Products
    one: Products


class SeparableExchange(Protocol):
    """Upload and next download with masks that treat all pairs of clients alike."""

    @property
    def drawn(self) -> Participation:
        """Who participates."""

    @property
    def entries(self) -> Entries:
        """Which entries of the blocks are tracked."""

    @property
    def constants(self) -> PairConstants:
        """The constants c₁ … c₆."""

    def clients(
        self,
        law: UploadLaw,
        z: ClientMoments,
        sums: UploadSums,
        first: FirstMoments | None = None,
        attack: float = 1.0,
    ) -> Exchanged:
        """Exchange server and clients; `attack` scales the variance that attackers add, `first` None drops c."""

    def first(self, law: UploadLaw, z: FirstMoments) -> FirstMoments:
        """Exchange first moments."""


def exchange_pairs(
    exchange: SeparableExchange, law: UploadLaw, z: PairMoments, result: Exchanged
) -> PairMoments:
    """Exchange the pairs of different clients by the formula in the module's docstring."""
    drawn, entries, c = exchange.drawn, exchange.entries, exchange.constants
    average = z.average(drawn, entries)
    own = law.corruption.own
    weighted = own[:, None, None] * (drawn.pair * z.both + drawn.only_first * z.one)
    both, one = c.average_both * average, c.average_one * average + c.weighted_one * weighted
    if np.any(c.weighted_both) or np.any(c.both_both):
        both += c.weighted_both * (weighted + entries.flip_pairs(weighted))
        factor = law.corruption.own_pair(own[:, None], own[None, :])[:, :, None]
        both += factor * (c.both_both * z.both + c.both_flipped * entries.flip(z.both))
    for pairs, products in ((both, result.both), (one, result.one)):
        for left, right in products:
            pairs += left[:, None] * right[None, :]
    return PairMoments(law.without_same(both), law.without_same(one), average)


@dataclass(frozen=True, eq=False)
class CommonMask:
    """One mask σ for all clients: g' = (1 − σ) g + σ h, and who downloads gets h where σ = 1.

    Covers random masks, and round-robin ones, whose moments are 0 or 1.

    Parameters
    ----------
    drawn : Participation
    entries : Entries
    mask : MaskMoments
    remembered : bool
        True: the download uses the mask of the upload before it, as the algorithm does (exact). False: an
        independent one, as the paper's analysis does (𝓠_𝓐 and 𝓠_𝓑 averaged apart).
    """

    drawn: Participation
    entries: Entries
    mask: MaskMoments
    remembered: bool = True

    @property
    def constants(self) -> PairConstants:
        """The constants c₁ … c₆."""
        mask, zero = self.mask, np.zeros(self.entries.size)
        return PairConstants(1 - mask.row - mask.column + mask.pair, zero, zero, zero, 1 - mask.row, zero)

    def clients(
        self,
        law: UploadLaw,
        z: ClientMoments,
        sums: UploadSums,
        first: FirstMoments | None = None,
        attack: float = 1.0,
    ) -> Exchanged:
        """Exchange server and clients."""
        flip = self.entries.flip
        sent = law.uploads(z, sums, first, attack)
        q = self.mask.pair
        only_i, only_j = self.mask.row - q, self.mask.column - q
        neither = 1 - self.mask.row - self.mask.column + q
        server = (
            neither * z.server
            + only_j * sent.server_mean
            + only_i * flip(sent.server_mean)
            + q * sent.mean_mean
        )
        cross0 = (1 - self.mask.row) * sent.cross + self.mask.row * sent.mean_client
        if self.remembered:
            # Where the mask is 1 the server holds h, so what a client downloads is h.
            got_client, got_got = sent.mean_client, sent.mean_mean
            cross1 = neither * sent.cross + only_j * sent.server_mean + only_i * got_client + q * got_got
        else:
            got_client, got_got = cross0, server
            cross1 = (1 - self.mask.column) * cross0 + self.mask.column * server
        own1 = neither * sent.own + only_i * got_client + only_j * flip(got_client) + q * got_got
        clients = ClientMoments(server, cross1, cross0, own1, sent.own)
        each = only_i * got_client
        both = [(_ONE, each), (flip(each), _ONE), (_ONE, (q * got_got)[None])]
        return Exchanged(clients, both, [(_ONE, self.mask.row * got_client)])

    def first(self, law: UploadLaw, z: FirstMoments) -> FirstMoments:
        """Exchange first moments."""
        p = self.entries.first_mask(self.mask.row)
        got = law.total(law.means(z)) / self.drawn.participants
        kept = z.average(self.drawn)
        return FirstMoments((1 - p) * z.server + p * got, (1 - p) * kept + p * got, kept)


@dataclass(frozen=True, eq=False)
class IndependentMasks:
    """A random mask for each client, independent of all others and of the past.

    Parameters
    ----------
    drawn : Participation
    entries : Entries
    mask : MaskMoments
        Of each client's mask; ``row`` and ``column`` hold p_e.
    remembered : bool
        True: a client downloads with the mask it uploaded with (exact). False: with an independent one, as the
        paper's analysis has it.
    """

    drawn: Participation
    entries: Entries
    mask: MaskMoments
    remembered: bool = True

    @property
    def constants(self) -> PairConstants:
        """The constants c₁ … c₆."""
        p, s, pair = self.mask.row, self.drawn.participants, self.drawn.pair
        variance, covariance = p - p**2, self.mask.pair - p**2
        if not self.remembered:
            zero = np.zeros(self.entries.size)
            return PairConstants((1 - p) ** 2, zero, zero, zero, 1 - p, zero)
        return PairConstants(
            average_both=(1 - p) ** 2,
            weighted_both=(1 - p) * variance / s,
            both_both=pair * variance**2 / s**2,
            both_flipped=pair * covariance**2 / s**2,
            average_one=1 - p,
            weighted_one=variance / s,
        )

    def clients(
        self,
        law: UploadLaw,
        z: ClientMoments,
        sums: UploadSums,
        first: FirstMoments | None = None,
        attack: float = 1.0,
    ) -> Exchanged:
        """Exchange server and clients."""
        drawn, flip = self.drawn, self.entries.flip
        p, q, s = self.mask.row, self.mask.pair, drawn.participants
        sent = law.uploads(z, sums, first, attack)
        # With e = g + p (h − g) the server is e + (1/s) Σ b_m (S_m − p) d_m.
        blend = (1 - p) ** 2 * z.server + p**2 * sent.mean_mean
        blend = blend + p * (1 - p) * (sent.server_mean + flip(sent.server_mean))
        turned = flip(sent.upload_server)
        pulls = sent.upload_upload - sent.upload_server - turned + drawn.single * z.server  # E[b_m d_m d_mᵀ]
        server = blend + (q - p**2) / s**2 * law.total(pulls)
        client = (1 - p) * sent.cross + p * sent.mean_client  # E[g' z_lᵀ]
        if not self.remembered:
            own1 = (1 - 2 * p + q) * sent.own + (p - q) * (client + flip(client)) + q * server
            clients = ClientMoments(server, (1 - p) * client + p * server, client, own1, sent.own)
            each = p * (1 - p) * client
            both = [(_ONE, each), (flip(each), _ONE), (_ONE, (p**2 * server)[None])]
            return Exchanged(clients, both, [(_ONE, p * client)])
        clients, lean, pull_own = self._remembered(law, z, sent, blend, pulls, server, client)
        return Exchanged(clients, *self._pairs(law, z, first, attack, server, client, lean, pull_own))

    def first(self, law: UploadLaw, z: FirstMoments) -> FirstMoments:
        """Exchange first moments."""
        p, drawn = self.entries.first_mask(self.mask.row), self.drawn
        sent, kept = law.means(z), z.average(drawn)
        server = (1 - p) * z.server + p * law.total(sent) / drawn.participants
        own = (p - p**2) / drawn.participants * (sent - drawn.single * z.server)
        return FirstMoments(server, (1 - p) * kept + p * server + own, kept)

    def _remembered(
        self,
        law: UploadLaw,
        z: ClientMoments,
        sent: Uploads,
        blend: FloatArray,
        pulls: FloatArray,
        server: FloatArray,
        client: FloatArray,
    ) -> tuple[ClientMoments, FloatArray, FloatArray]:
        """Moments after the download, E[(S_l(j) − p) g'(i) g'(j)] and E[b_l d_l z_lᵀ]."""
        drawn, flip = self.drawn, self.entries.flip
        p, q, s = self.mask.row, self.mask.pair, drawn.participants
        variance, covariance = p - p**2, q - p**2
        # E[b_l d_l eᵀ] and E[b_l d_l z_lᵀ]
        pull_blend = (1 - p) * (sent.upload_server - drawn.single * z.server)
        pull_blend = pull_blend + p * (sent.upload_mean - sent.server_mean_given)
        pull_own = sent.upload_own - drawn.single * z.cross1
        # E[(S_l(j) − p) g'(i) g'(j)]: how the server leans on client l's own mask
        lean = (covariance * pull_blend + variance * flip(pull_blend)) / s
        lean += (1 - 2 * p) * covariance / s**2 * pulls
        own_server = q * (
            blend
            + (1 - p) / s * (pull_blend + flip(pull_blend))
            + (1 - p) ** 2 / s**2 * pulls
            + covariance / s**2 * (law.total(pulls) - pulls)
        )
        own_client = (p - q) * client + (variance - q * (1 - p)) / s * pull_own
        moments = ClientMoments(
            server=server,
            cross1=(1 - p) * client - covariance / s * pull_own + p * server + lean,
            cross0=client,
            own1=(1 - 2 * p + q) * sent.own + own_client + flip(own_client) + own_server,
            own0=sent.own,
        )
        return moments, lean, pull_own

    def _pairs(
        self,
        law: UploadLaw,
        z: ClientMoments,
        first: FirstMoments | None,
        attack: float,
        server: FloatArray,
        client: FloatArray,
        lean: FloatArray,
        pull_own: FloatArray,
    ) -> tuple[Products, Products]:
        drawn, flip, outer = self.drawn, self.entries.flip, self.entries.outer
        p, q, s = self.mask.row, self.mask.pair, drawn.participants
        variance, covariance = p - p**2, q - p**2
        # E[b_k d_k z_lᵀ] without the pair's own moment: −(1 − G_k) E[b_k g z_lᵀ] + t_k c E[b_k z_l]ᵀ
        other = drawn.pair * z.cross1 + drawn.only_first * z.cross0
        pulled = [((law.corruption.server - 1.0)[:, None], other)]
        chance = law.corruption.attackers.chance[:, None]
        if first is not None and law.corruption.constant is not None:
            mean = drawn.pair * first.taking + drawn.only_first * first.idle
            pulled.append((chance, outer(law.corruption.constant, mean)))
        one = [(_ONE, p * client)] + [(left, variance / s * right) for left, right in pulled]
        each = (1 - p) * p * client - p * covariance / s * pull_own + p * lean
        both = [(_ONE, each), (flip(each), _ONE), (_ONE, (p**2 * server)[None])]
        for left, right in pulled:
            part = (1 - p) * variance / s * right
            both += [(left, part), (flip(part), left)]
        pair = drawn.pair / s**2
        for left, right, weight in law.pull_products(z, first):
            both.append((left, weight * pair * variance**2 * right))
            both.append((flip_or_keep(flip, left), weight * pair * covariance**2 * flip_or_keep(flip, right)))
        noise = attack * pair * (variance**2 + covariance**2) * law.common_noise
        if np.any(noise):
            both.append((chance, chance * noise))
        return both, one


def flip_or_keep(flip: Callable[[FloatArray], FloatArray], values: FloatArray) -> FloatArray:
    """Transpose blocks; numbers that are the same for all entries stay as they are."""
    return values if values.shape[-1] == 1 else flip(values)


def constants_are_zero(constants: PairConstants) -> bool:
    """Whether only the average Y_kl enters, so that one number per pair suffices."""
    remembered = ("weighted_both", "both_both", "both_flipped", "weighted_one")
    return not any(np.any(getattr(constants, f.name)) for f in fields(constants) if f.name in remembered)
