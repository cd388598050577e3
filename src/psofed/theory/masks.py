"""Masks: which entries of the uploads reach the server, and which the next participants download.

Before the exchange there are the server's models G_0 … G_L (now, and L = ``delay`` iterations later), the clients'
models z_k and their changes δ_k to the server's. With client k's mask S_k of this exchange,

    g' = G_L + Σ_k S_k δ_k,    kept_k = z_k,    taken_k = z_k + S_k (x − z_k),    x = g' (L = 0) or G_1 (L > 0).

All is in errors. Every law below returns the second moments of (G_1 … G_L, g', kept, taken) of different clients, their
means with constants, and a client's own moments. Writing σ = Σ_k S_k δ_k, each new block is an old one plus a change,

    g' = G_L + σ,    taken_k = z_k + S_k c_k,    c_k = x − z_k,

so that moments of S on the pair of entries (i, j) are all that is needed: p_i = E[S(i)], q_ij = E[S(i) S(j)].

- :class:`CommonMask`: one S for all, so σ = S Σ_k δ_k. Round-robin with one offset is the case p, q ∈ {0, 1}.
- :class:`KnownMasks`: S_k is known, round-robin given the clients' offsets.
- :class:`OwnMasks`: the S_k are independent, so that S_k meets itself in g', in taken_k and, through x = g', twice.
- :class:`FreshMasks`: the paper's analysis, which draws another mask for the download than for the upload.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray


class UploadMoments(NamedTuple):
    """Moments before the exchange, over the blocks (G_0 … G_L, z_1 … z_n, δ_1 … δ_n).

    Attributes
    ----------
    second : array (E, blocks, d, blocks, d)
        Two blocks of one group belong to two different clients.
    means : array (E, blocks, d, C)
        Products with the constants.
    zz, dz, dd : array (E, n, d, d)
        E[z zᵀ], E[δ zᵀ] and E[δ δᵀ] of one client.
    copies : array (n,)
        The clients in each group.
    """

    second: FloatArray
    means: FloatArray
    zz: FloatArray
    dz: FloatArray
    dd: FloatArray
    copies: FloatArray

    @property
    def delay(self) -> int:
        """L."""
        return int(self.second.shape[1]) - 2 * self.copies.size - 1

    @property
    def z(self) -> slice:
        """Blocks of the clients' models."""
        return slice(self.delay + 1, self.delay + 1 + self.copies.size)

    @property
    def delta(self) -> slice:
        """Blocks of their changes."""
        return slice(self.delay + 1 + self.copies.size, None)

    @property
    def before(self) -> slice:
        """Blocks of server models and clients' models."""
        return slice(0, self.z.stop)


class Exchanged(NamedTuple):
    """Moments after the exchange, over the blocks (G_1 … G_L, g', kept, taken).

    Attributes
    ----------
    second : array (E, blocks, d, blocks, d)
    means : array (E, blocks, d, C)
    own : array (E, 2, n, d, d)
        A client's moments with itself, kept and taken.
    """

    second: FloatArray
    means: FloatArray
    own: FloatArray


class UploadSum(NamedTuple):
    """Moments of σ with the blocks before (E, d, blocks, d), with itself (E, d, d), and its means (E, d, C)."""

    before: FloatArray
    square: FloatArray
    means: FloatArray


class MaskLaw(ABC):
    """Moments of the masks of one exchange."""

    @abstractmethod
    def exchange(self, uploads: UploadMoments) -> Exchanged:
        """Return the moments after upload and next download."""

    @property
    @abstractmethod
    def shared(self) -> FloatArray:
        """E[S_k(i)], (E, n or 1, d)."""


@dataclass(frozen=True, eq=False)
class CommonMask(MaskLaw):
    """One mask for all clients.

    Parameters
    ----------
    p : array (E, d)
        p_i.
    q : array (E, d, d)
        q_ij.
    """

    p: FloatArray
    q: FloatArray

    @property
    def shared(self) -> FloatArray:
        """E[S(i)]."""
        return self.p[:, None]

    def exchange(self, uploads: UploadMoments) -> Exchanged:
        """Return the moments after upload and next download."""
        pair = self.q[:, None, :, None, :]
        return _download(uploads, summed(uploads), self.p[:, None], pair, self.q[:, None])


@dataclass(frozen=True, eq=False)
class KnownMasks(MaskLaw):
    """A mask for each client that is known; every group is one client.

    Parameters
    ----------
    masks : array (E, n, d)
        S_k(i).
    """

    masks: FloatArray

    @property
    def shared(self) -> FloatArray:
        """S_k(i)."""
        return self.masks

    def exchange(self, uploads: UploadMoments) -> Exchanged:
        """Return the moments after upload and next download."""
        one = np.ones((*self.masks.shape[::2],))[:, None]
        single = np.concatenate([one, self.masks], axis=1)
        pair = single[:, :, :, None, None] * single[:, None, None]
        own = self.masks[..., None] * self.masks[:, :, None]
        return _download(uploads, summed(uploads, self.masks), single, pair, own)


@dataclass(frozen=True, eq=False)
class FreshMasks(MaskLaw):
    """The paper's masks: drawn for the upload, and drawn again for the download.

    Parameters
    ----------
    p : float
    q : array (1, d, d)
    is_common : bool
        Whether all clients have one mask.
    """

    p: float
    q: FloatArray
    is_common: bool

    @property
    def shared(self) -> FloatArray:
        """E[S_k(i)]."""
        return np.full((1, 1, self.q.shape[-1]), self.p)

    def exchange(self, uploads: UploadMoments) -> Exchanged:
        """Return the moments after upload and next download."""
        n, p = uploads.copies.size, self.p
        between = self.q if self.is_common else np.full_like(self.q, p * p)  # of two clients
        total = _masked_sum(uploads, p, self.q, between)
        single = np.concatenate([np.ones((1, 1, 1)), np.full((1, n, 1), p)], axis=1)
        pair = np.empty((1, 1 + n, self.q.shape[-1], 1 + n, self.q.shape[-1]))
        pair[...] = between[:, None, :, None]
        pair[:, 0], pair[:, :, :, 0] = p, p
        pair[:, 0, :, 0] = 1.0
        return _download(uploads, total, single, pair, self.q[:, None])


@dataclass(frozen=True, eq=False)
class OwnMasks(MaskLaw):
    """A random mask for each client, independent of all others.

    Split S_k = p + ξ_k. An expectation survives only where each ξ_k meets itself: E[ξ(i)²] = κ₀ = p − p²,
    E[ξ(i) ξ(j)] = κ = q − p², E[ξ(i) ξ(j)²] = (1 − 2p) κ. With L > 0, ξ_k meets itself in g' and taken_k alone. With
    L = 0 also in x = g' = e + Σ_m ξ_m δ_m, e = G + p Σ_m δ_m. Then, with

        A_l = E[g' z_lᵀ],   B_kl = E[δ_k z_lᵀ],   Δ_l = E[δ_l δ_lᵀ],   Γ_l = E[δ_l eᵀ],   Z_kl = E[δ_k δ_lᵀ],
        T   = E[g' g'ᵀ] = E[e eᵀ] + κ Σ_m Δ_m,
        Ξ_l = E[ξ_l(j) g'(i) g'(j)] = κ Γ_l + κ₀ Γ_lᵀ + (1 − 2p) κ Δ_l,

    the moments after the exchange are

        E[g' taken_lᵀ]      = (1 − p) A_l − κ B_ll + p T + Ξ_l
        E[taken_k kept_lᵀ]  = (1 − p) E[z_k z_lᵀ] + p A_l + κ₀ B_kl
        E[taken_k taken_lᵀ] = (1 − p)² E[z_k z_lᵀ] + X_kl + X_lkᵀ + p² T + κ₀² Z_kl + κ² Z_lk
        X_kl                = (1 − p)(p A_l + κ₀ B_kl) + p (Ξ_l − κ B_ll)
        E[taken_l taken_lᵀ] = (1 − 2p + q) E[z_l z_lᵀ] + N_l + N_lᵀ
                              + q (E[e eᵀ] + (1 − p)(Γ_l + Γ_lᵀ) + (1 − p)² Δ_l + κ Σ_{m≠l} Δ_m)
        N_l                 = (p − q) A_l + (κ₀ − q (1 − p)) B_ll.

    Parameters
    ----------
    p : float
    q : array (1, d, d)
    """

    p: float
    q: FloatArray

    @property
    def shared(self) -> FloatArray:
        """E[S_k(i)]."""
        return np.full((1, 1, self.q.shape[-1]), self.p)

    def exchange(self, uploads: UploadMoments) -> Exchanged:
        """Return the moments after upload and next download."""
        return self._delayed(uploads) if uploads.delay else self._at_once(uploads)

    def _delayed(self, uploads: UploadMoments) -> Exchanged:
        exchanged = FreshMasks(self.p, self.q, is_common=False).exchange(uploads)
        last, n, second = uploads.delay, uploads.copies.size, exchanged.second
        taken = slice(last + 1 + n, None)
        met = uploads.second[:, uploads.delta, :, 1] - uploads.dz  # E[δ_l (G_1 − z_l)ᵀ]
        again = (self.q - self.p**2)[:, None] * met
        second[:, last, :, taken] += again.transpose(0, 2, 1, 3)
        second[:, taken, :, last] += again.transpose(0, 1, 3, 2)
        return exchanged

    def _at_once(self, uploads: UploadMoments) -> Exchanged:
        p, q, n = self.p, self.q, uploads.copies.size
        k0, k = p - p * p, q - p * p
        k_own, z, delta = k[:, None], uploads.z, uploads.delta
        second, dz, Delta = uploads.second, uploads.dz, uploads.dd
        total = summed(uploads)
        server, pulls = second[:, 0, :, 0], np.einsum("k,ekij->eij", uploads.copies, Delta)
        toward = total.before[:, :, 0]  # E[Σδ gᵀ]
        ee = server + p * (toward + toward.mT) + p * p * total.square
        T = ee + k * pulls
        new = second[:, 0, :, uploads.before] + p * total.before  # E[g' yᵀ], (E, d, blocks, d)
        A = new[:, :, z].transpose(0, 2, 1, 3)
        met = _weigh(uploads.copies, second[:, delta, :, delta]).transpose(0, 2, 3, 1)  # E[δ_l Σδᵀ], l in group l
        met = met + Delta - _same(second[:, delta, :, delta])
        Gamma = second[:, delta, :, 0] + p * met
        Xi = k_own * Gamma + k0 * Gamma.mT + (1.0 - 2.0 * p) * k_own * Delta
        N = (p - q)[:, None] * A + (k0 - q * (1.0 - p))[:, None] * dz
        served = ee[:, None] + (1.0 - p) * (Gamma + Gamma.mT) + (1.0 - p) ** 2 * Delta
        served = served + k_own * (pulls[:, None] - Delta)
        own = (1.0 - 2.0 * p + q)[:, None] * uploads.zz + N + N.mT + q[:, None] * served
        Y, B, Z = second[:, z, :, z], second[:, delta, :, z], second[:, delta, :, delta]
        half = (1.0 - p) * (p * new[:, None, :, z] + k0 * B) + p * _as_row(Xi - k_own * dz)[:, None]
        both = (1.0 - p) ** 2 * Y + half + half.transpose(0, 3, 4, 1, 2) + p * p * T[:, None, :, None]
        both = both + k0**2 * Z + k[:, None, :, None] ** 2 * Z.swapaxes(1, 3)
        blocks = 1 + 2 * n
        result = np.empty((len(second), blocks, second.shape[2], blocks, second.shape[2]))
        kept, taken = slice(1, 1 + n), slice(1 + n, blocks)
        result[:, 0, :, 0] = T
        result[:, kept, :, kept], result[:, taken, :, taken] = Y, both
        _put(result, slice(0, 1), kept, new[:, None, :, z])
        met_taken = (1.0 - p) * A - k_own * dz + p * T[:, None] + Xi
        _put(result, slice(0, 1), taken, _as_row(met_taken)[:, None])
        _put(result, taken, kept, (1.0 - p) * Y + p * new[:, None, :, z] + k0 * B)
        means = uploads.means
        g_mean = (means[:, 0] + p * total.means)[:, None]
        taken_mean = (1.0 - p) * means[:, z] + p * g_mean + k0 * means[:, delta]
        return Exchanged(
            result, np.concatenate([g_mean, means[:, z], taken_mean], axis=1), np.stack([uploads.zz, own], axis=1)
        )


def summed(uploads: UploadMoments, masks: FloatArray | None = None) -> UploadSum:
    """Return the moments of Σ_k S_k δ_k over all clients, with known masks (E, n, d) or without masks.

    A sum over clients meets client l twice: as another one (a block of `second`) and as l itself (``dz``, ``dd``).
    """
    second, delta, z = uploads.second, uploads.delta, uploads.z
    rows, square = second[:, delta, :, uploads.before], second[:, delta, :, delta]
    means = uploads.means[:, delta]
    beyond_dz = uploads.dz - _same(second[:, delta, :, z])
    beyond_dd = uploads.dd - _same(square)
    if masks is not None:
        rows, means = masks[..., None, None] * rows, masks[..., None] * means
        square = masks[..., None, None] * square * masks[:, None, None]
        beyond_dz = masks[..., None] * beyond_dz
        beyond_dd = masks[..., None] * beyond_dd * masks[:, :, None]
    weights = uploads.copies
    before = _weigh(weights, rows)
    before[:, :, z] += _as_row(beyond_dz)
    total = np.einsum("eikj,k->eij", _weigh(weights, square), weights)
    total = total + np.einsum("ekij,k->eij", beyond_dd, weights)
    return UploadSum(before, total, np.einsum("ekic,k->eic", means, weights))


def _masked_sum(uploads: UploadMoments, p: float, q: FloatArray, between: FloatArray) -> UploadSum:
    """Return the moments of Σ_k S_k δ_k for random masks: q of one client's, `between` of two clients' masks."""
    total = summed(uploads)
    pulls = np.einsum("k,ekij->eij", uploads.copies, uploads.dd)
    square = between * total.square + (q - between) * pulls
    return UploadSum(p * total.before, square, p * total.means)


def _download(
    uploads: UploadMoments, total: UploadSum, single: FloatArray, pair: FloatArray, own_pair: FloatArray
) -> Exchanged:
    """Return the moments after g' = G_L + Mσ and taken_k = z_k + M (x − z_k), for masks M of given moments.

    `single` (E, 1 or 1 + n, d) are first moments of the masks of (σ, taken_1 …), `pair` (E, ·, d, ·, d) second ones of
    two different blocks, `own_pair` (E, 1 or n, d, d) those of a client with itself.
    """
    last, n, z = uploads.delay, uploads.copies.size, uploads.z
    entries, size = uploads.second.shape[0], uploads.second.shape[2]
    sigma = last + 1 + n
    y = np.empty((entries, sigma + 1, size, sigma + 1, size))  # over (G_0 … G_L, z, σ)
    y[:, :sigma, :, :sigma] = uploads.second[:, uploads.before, :, uploads.before]
    _put(y, slice(sigma, None), slice(0, sigma), total.before[:, None])
    y[:, sigma, :, sigma] = total.square
    y_means = np.concatenate([uploads.means[:, uploads.before], total.means[:, None]], axis=1)

    def download(rows: FloatArray) -> FloatArray:
        """Return x of rows (E, blocks, …)."""
        return rows[:, 1] if last else rows[:, last] + rows[:, sigma]

    x = download(y)  # E[x yᵀ], (E, d, blocks, d)
    xx, xz = download(x.swapaxes(1, 2)).swapaxes(1, 2), x[:, :, z]
    xx = xx if last else np.ascontiguousarray(xx)
    p_sum, p = single[:, 0], single[:, 1:] if single.shape[1] > 1 else single
    q_sum, q_met = pair[:, 0, :, 0], pair[:, :1, :, 1:] if single.shape[1] > 1 else pair
    q = pair[:, 1:, :, 1:] if single.shape[1] > 1 else pair
    blocks = last + 1 + 2 * n
    kept, taken = slice(last + 1, sigma), slice(sigma, blocks)
    result = np.empty((entries, blocks, size, blocks, size))
    # g' = G_L + Mσ, and the models on their way
    new = y[:, last] + p_sum[..., None, None] * y[:, sigma]  # E[g' yᵀ]
    if last:
        result[:, :last, :, :last] = y[:, 1 : last + 1, :, 1 : last + 1]
        _put(result, slice(last, last + 1), slice(0, last), new[:, None, :, 1 : last + 1])
        _put(result, slice(0, last), kept, y[:, 1 : last + 1, :, z])
    toward = p_sum[..., None] * y[:, sigma, :, last]
    result[:, last, :, last] = y[:, last, :, last] + toward + toward.mT + q_sum * y[:, sigma, :, sigma]
    _put(result, slice(last, last + 1), kept, new[:, None, :, z])
    # taken_k = z_k + M (x − z_k)
    change = x[:, None] - y[:, z]  # E[(x − z_k) yᵀ], (E, n, d, blocks, d)
    weighted = p[..., None, None] * change
    z_z = y[:, z, :, z]
    half = weighted[:, :, :, z]
    result[:, kept, :, kept] = z_z
    _put(result, taken, kept, z_z + half)
    square = (xx[:, None] - xz.transpose(0, 2, 3, 1))[:, :, :, None] - (xz[:, None] - z_z)
    result[:, taken, :, taken] = z_z + half + half.transpose(0, 3, 4, 1, 2) + q * square
    if last:
        _put(result, taken, slice(0, last), y[:, z, :, 1 : last + 1] + weighted[:, :, :, 1 : last + 1])
    met = y[:, last, :, z] + _turned_row(weighted[:, :, :, last]) + p_sum[..., None, None] * y[:, sigma, :, z]
    met = met + (q_met * change[:, None, :, :, sigma].transpose(0, 1, 4, 2, 3))[:, 0]
    _put(result, slice(last, last + 1), taken, met[:, None])
    g_mean = y_means[:, last] + p_sum[..., None] * y_means[:, sigma]
    taken_means = y_means[:, z] + p[..., None] * (download(y_means)[:, None] - y_means[:, z])
    means = np.concatenate([y_means[:, 1 : last + 1], g_mean[:, None], y_means[:, z], taken_means], axis=1)
    p_row = np.broadcast_to(p, (len(p), n, size))[..., None]
    p_column, z_x = p_row.mT, xz.transpose(0, 2, 1, 3)
    own = (1.0 - p_row - p_column + own_pair) * uploads.zz + own_pair * xx[:, None]
    own = own + (p_row - own_pair) * z_x + (p_column - own_pair) * z_x.mT
    return Exchanged(result, means, np.stack([uploads.zz, own], axis=1))


def _turned_row(blocks: FloatArray) -> FloatArray:
    """Turn E[c_k gᵀ] (E, n, d, d) into E[g c_kᵀ] (E, d, n, d)."""
    return blocks.transpose(0, 3, 1, 2)


def _same(blocks: FloatArray) -> FloatArray:
    """Blocks (k, k) of (E, n, d, n, d) as (E, n, d, d)."""
    return blocks.diagonal(axis1=1, axis2=3).transpose(0, 3, 1, 2)


def _as_row(blocks: FloatArray) -> FloatArray:
    """Turn (E, n, d, d) into the row (E, d, n, d)."""
    return blocks.transpose(0, 2, 1, 3)


def _weigh(weights: FloatArray, rows: FloatArray) -> FloatArray:
    """Σ_k W_k rows_k of (E, n, d, …): an array (E, d, …)."""
    flat = rows.reshape(len(rows), rows.shape[1], -1)
    return np.asarray((weights @ flat).reshape(len(rows), *rows.shape[2:]))


def _put(second: FloatArray, rows: slice | NDArray[np.int64], columns: slice, block: FloatArray) -> None:
    """Write a block and its transpose."""
    second[:, rows, :, columns] = block
    second[:, columns, :, rows] = block.transpose(0, 3, 4, 1, 2)
