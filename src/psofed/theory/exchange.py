"""What upload and download do to second moments, for masks common to all clients and for independent ones.

An exchange takes the moments of server and clients before the upload (z_k, after the LMS step) to those after the
next download (v_k). Upload and download share the mask S_{k,n+1}, so both are taken in one go and nothing is
averaged in between. Who uploads is b: those who downloaded before the LMS step (``uplink = "same"``; the moments
are already given participation), or a fresh draw (``"redrawn"``; the moments are mixed first). Who downloads is
a, always drawn afresh. Derivation: ``docs/exact_theory.md``.

Here an exchange is *separable*: the moments of the pair (k, l) become

    both_kl = c₁ Y_kl + c₂ (B_kl + B_lkᵀ) + c₃ Z_kl + c₄ Z_klᵀ + x_l + x_kᵀ + s,
    one_kl  = c₅ Y_kl + c₆ B_kl + t_l,
    none_kl = Y_kl,

with Y = E[z_k z_lᵀ], B = E[b_k z_k z_lᵀ], Z = E[z_k z_lᵀ | b_k = b_l = 1], the same constants c for all pairs,
and x, s, t made of the other moments and of two sums over clients. That is what lets the steady state be found without
storing a pair (see :mod:`psofed.theory.reduced`).
"""

from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments import ClientMoments, Entries, PairMoments, Participation, UploadSums


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


@dataclass(frozen=True, eq=False)
class Exchanged:
    """What a separable exchange makes of everything but the pairs' own constants.

    Attributes
    ----------
    clients : ClientMoments
        Server and single clients after the next download.
    each : array (K, E)
        x_l.
    everyone : array (E,)
        s.
    other : array (K, E)
        t_l.
    """

    clients: ClientMoments
    each: FloatArray
    everyone: FloatArray
    other: FloatArray


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

    def clients(self, z: ClientMoments, sums: UploadSums, poison: FloatArray) -> Exchanged:
        """Exchange server and clients; `poison` (K,) is E[(τ_k δ_k)²] per uploaded entry."""


def exchange_pairs(exchange: SeparableExchange, z: PairMoments, result: Exchanged) -> PairMoments:
    """Exchange the pairs of different clients by the formula in the module's docstring."""
    drawn, entries, c = exchange.drawn, exchange.entries, exchange.constants
    average = z.average(drawn, entries)
    weighted = drawn.pair * z.both + drawn.only_first * z.one
    both = (
        c.average_both * average + result.each[None, :] + entries.flip(result.each)[:, None] + result.everyone
    )
    if np.any(c.weighted_both) or np.any(c.both_both):
        both += c.weighted_both * (weighted + entries.flip_pairs(weighted))
        both += c.both_both * z.both + c.both_flipped * entries.flip(z.both)
    one = c.average_one * average + c.weighted_one * weighted + result.other[None, :]
    diagonal = np.arange(average.shape[0])
    for pairs in (both, one):
        pairs[diagonal, diagonal] = 0.0
    return PairMoments(both, one, average)


@dataclass(frozen=True, eq=False)
class _Averages:
    """What every exchange needs of the uploads: z̄ = (1/|S|) Σ b_m z_m and its moments with g and z_l."""

    own: FloatArray  # E[z_l z_lᵀ]
    cross: FloatArray  # E[g z_lᵀ]
    mean_client: FloatArray  # U_l = E[z̄ z_lᵀ]
    uploader_mean: FloatArray  # E[b_l z_l z̄ᵀ]
    mean_mean: FloatArray  # V = E[z̄ z̄ᵀ], without the attack
    server_mean: FloatArray  # E[g z̄ᵀ]

    @classmethod
    def of(cls, z: ClientMoments, sums: UploadSums, drawn: Participation) -> "_Averages":
        p, s = drawn.single, drawn.participants
        uploader_mean = (p * z.own1 + sums.uploader) / s
        return cls(
            own=p * z.own1 + (1 - p) * z.own0,
            cross=p * z.cross1 + (1 - p) * z.cross0,
            mean_client=(p * z.own1 + sums.anyone) / s,
            uploader_mean=uploader_mean,
            mean_mean=uploader_mean.sum(axis=0) / s,
            server_mean=p * z.cross1.sum(axis=0) / s,
        )


@dataclass(frozen=True, eq=False)
class CommonMask:
    """One mask σ for all clients: g' = (1 − σ) g + σ z̄, and who downloads gets z̄ where σ = 1.

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

    def clients(self, z: ClientMoments, sums: UploadSums, poison: FloatArray) -> Exchanged:
        """Exchange server and clients."""
        drawn, flip = self.drawn, self.entries.flip
        average = _Averages.of(z, sums, drawn)
        q = self.mask.pair
        only_i, only_j = self.mask.row - q, self.mask.column - q
        neither = 1 - self.mask.row - self.mask.column + q
        attack = drawn.single * poison.sum() / drawn.participants**2 * self.entries.diagonal
        mean_mean = average.mean_mean + attack
        server = (
            neither * z.server
            + only_j * average.server_mean
            + only_i * flip(average.server_mean)
            + q * mean_mean
        )
        cross0 = (1 - self.mask.row) * average.cross + self.mask.row * average.mean_client
        if self.remembered:
            # Where the mask is 1 the server holds z̄, so what a client downloads is z̄.
            got_client, got_got = average.mean_client, mean_mean
            cross1 = (
                neither * average.cross + only_j * average.server_mean + only_i * got_client + q * got_got
            )
        else:
            got_client, got_got = cross0, server
            cross1 = (1 - self.mask.column) * cross0 + self.mask.column * server
        own1 = neither * average.own + only_i * got_client + only_j * flip(got_client) + q * got_got
        clients = ClientMoments(server, cross1, cross0, own1, average.own)
        return Exchanged(clients, only_i * got_client, q * got_got, self.mask.row * got_client)


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

    def clients(self, z: ClientMoments, sums: UploadSums, poison: FloatArray) -> Exchanged:
        """Exchange server and clients."""
        drawn, flip = self.drawn, self.entries.flip
        p, q, s = self.mask.row, self.mask.pair, drawn.participants
        covariance = q - p**2
        average = _Averages.of(z, sums, drawn)
        # With e = g + p (z̄ − g) the server is e + (1/s) Σ b_m (S_m − p) d_m, d_m = z_m − g, plus the attack.
        server_mean = average.server_mean
        blend = (
            (1 - p) ** 2 * z.server
            + p * (1 - p) * (server_mean + flip(server_mean))
            + p**2 * average.mean_mean
        )
        pulls = drawn.single * (z.own1 - z.cross1 - flip(z.cross1) + z.server)  # E[b_m d_m d_mᵀ]
        injected = drawn.single / s**2 * poison[:, None] * self.entries.diagonal
        server = blend + covariance / s**2 * pulls.sum(axis=0) + p * injected.sum(axis=0)
        client = (1 - p) * average.cross + p * average.mean_client  # E[g' z_lᵀ]
        if not self.remembered:
            own1 = (1 - 2 * p + q) * average.own + (p - q) * (client + flip(client)) + q * server
            clients = ClientMoments(server, (1 - p) * client + p * server, client, own1, average.own)
            return Exchanged(clients, p * (1 - p) * client, p**2 * server, p * client)
        return self._remembered(z, average, blend, pulls, injected, server, client)

    def _remembered(
        self,
        z: ClientMoments,
        average: _Averages,
        blend: FloatArray,
        pulls: FloatArray,
        injected: FloatArray,
        server: FloatArray,
        client: FloatArray,
    ) -> Exchanged:
        drawn, flip = self.drawn, self.entries.flip
        p, q, s = self.mask.row, self.mask.pair, drawn.participants
        variance, covariance = p - p**2, q - p**2
        # E[b_l d_l eᵀ] and E[b_l d_l z_lᵀ]
        uploader_cross = (drawn.single - drawn.pair) * z.cross1 + drawn.pair * z.cross1.sum(axis=0)
        pull_blend = (1 - p) * drawn.single * (flip(z.cross1) - z.server) + p * (
            average.uploader_mean - uploader_cross / s
        )
        pull_own = drawn.single * (z.own1 - z.cross1)
        # E[(S_l(j) − p) g'(i) g'(j)]: how the server leans on client l's own mask
        lean = (covariance * pull_blend + variance * flip(pull_blend)) / s
        lean += (1 - 2 * p) * covariance / s**2 * pulls + variance * injected
        own_server = q * (
            blend
            + (1 - p) / s * (pull_blend + flip(pull_blend))
            + (1 - p) ** 2 / s**2 * pulls
            + covariance / s**2 * (pulls.sum(axis=0) - pulls)
        )
        own_server += p**2 * injected.sum(axis=0) + variance * injected
        other_cross = drawn.pair * z.cross1 + drawn.only_first * z.cross0  # E[b_k g z_lᵀ], k ≠ l
        other = p * client - variance / s * other_cross
        own_client = (p - q) * client + (variance - q * (1 - p)) / s * pull_own
        clients = ClientMoments(
            server=server,
            cross1=(1 - p) * client - covariance / s * pull_own + p * server + lean,
            cross0=client,
            own1=(1 - 2 * p + q) * average.own + own_client + flip(own_client) + own_server,
            own0=average.own,
        )
        pair = drawn.pair / s**2
        each = (1 - p) * other - p * covariance / s * pull_own + p * lean
        each -= pair * (variance**2 * z.cross1 + covariance**2 * flip(z.cross1))
        everyone = p**2 * server + pair * (variance**2 + covariance**2) * z.server
        return Exchanged(clients, each, everyone, other)


@dataclass(frozen=True, eq=False)
class FixedMasks:
    """Known masks, one for each client: round-robin with an offset each, given the offsets.

    Not separable: what happens to a pair depends on both clients' masks.

    Parameters
    ----------
    drawn : Participation
    entries : Entries
    row, column : array (K, E)
        S_k(i) and S_k(j) on the tracked entries.
    """

    drawn: Participation
    entries: Entries
    row: FloatArray
    column: FloatArray

    def __call__(
        self, z: ClientMoments, pairs: PairMoments, poison: FloatArray
    ) -> tuple[ClientMoments, PairMoments]:
        """Exchange all moments."""
        drawn, flip, s = self.drawn, self.entries.flip, self.drawn.participants
        p, row, column = drawn.single, self.row, self.column
        average = pairs.average(drawn, self.entries)
        weighted = drawn.pair * pairs.both + drawn.only_first * pairs.one
        other_cross = drawn.pair * z.cross1 + drawn.only_first * z.cross0  # E[b_k g z_lᵀ], k ≠ l
        pull_own = p * (z.own1 - z.cross1)
        # E[g' z_lᵀ]
        client = (
            p * z.cross1
            + (1 - p) * z.cross0
            + (
                np.einsum("me,mle->le", row, weighted)
                - (row.sum(axis=0) - row) * other_cross
                + row * pull_own
            )
            / s
        )
        server = self._server(z, pairs, poison)
        own = p * z.own1 + (1 - p) * z.own0
        cross1 = (1 - column) * client + column * server
        own_client = row * (1 - column) * client
        own1 = (1 - row) * (1 - column) * own + own_client + flip(own_client) + row * column * server
        keep_row, keep_column = (1 - row)[:, None], (1 - column)[None, :]
        row_, column_ = row[:, None], column[None, :]
        both = keep_row * (keep_column * average + column_ * flip(client)[:, None])
        both += row_ * (keep_column * client[None, :] + column_ * server)
        one = keep_row * average + row_ * client[None, :]
        diagonal = np.arange(drawn.clients)
        for array in (both, one):
            array[diagonal, diagonal] = 0.0
        return ClientMoments(server, cross1, client, own1, own), PairMoments(both, one, average)

    def _server(self, z: ClientMoments, pairs: PairMoments, poison: FloatArray) -> FloatArray:
        drawn, flip, s = self.drawn, self.entries.flip, self.drawn.participants
        p, row, column = drawn.single, self.row, self.column
        toward = (row * p * (flip(z.cross1) - z.server)).sum(axis=0) / s
        pulls = p * (z.own1 - z.cross1 - flip(z.cross1) + z.server)
        pull_pairs = np.einsum("ke,kle,le->e", row, pairs.both, column)
        # Σ_{k≠l} S_k(i) S_l(j) times what does not depend on both clients
        others = row.sum(axis=0) - row
        pull_pairs -= (others * column * z.cross1).sum(axis=0)
        pull_pairs -= ((column.sum(axis=0) - column) * row * flip(z.cross1)).sum(axis=0)
        pull_pairs += (others * column).sum(axis=0) * z.server
        second = (row * column * pulls).sum(axis=0) + drawn.pair * pull_pairs
        attack = p * (poison[:, None] * row).sum(axis=0) * self.entries.diagonal
        return np.asarray(z.server + toward + flip(toward) + (second + attack) / s**2)


def constants_are_zero(constants: PairConstants) -> bool:
    """Whether only the average Y_kl enters, so that one number per pair suffices."""
    remembered = ("weighted_both", "both_both", "both_flipped", "weighted_one")
    return not any(np.any(getattr(constants, f.name)) for f in fields(constants) if f.name in remembered)
