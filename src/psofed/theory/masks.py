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
from psofed.theory.presence import TAKEN


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


class MaskMoments(NamedTuple):
    """Moments of the masks S of σ and S_k of the downloads, where the uploads in σ may be masked already.

    Attributes
    ----------
    up, down : array (E, d), (E, 1 or n, d)
        E[S(i)] and E[S_k(i)].
    up_up : array (E, d, d)
        E[S(i) S(j)].
    up_down : array (E, d, 1 or n, d)
        E[S(i) S_k(j)].
    down_down : array (E, 1 or n, d, 1 or n, d)
        E[S_k(i) S_l(j)] of two different clients.
    same : array (E, 1 or n, d, d)
        E[S_k(i) S_k(j)].
    """

    up: FloatArray
    down: FloatArray
    up_up: FloatArray
    up_down: FloatArray
    down_down: FloatArray
    same: FloatArray


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
        q = self.q[:, :, None]
        masks = MaskMoments(self.p, self.shared, self.q, q, q[:, None], self.q[:, None])
        return _download(uploads, summed(uploads), masks)


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
        down, one = self.masks, np.ones_like(self.masks[:, 0])
        up_down = np.broadcast_to(down[:, None], (len(down), down.shape[2], *down.shape[1:]))
        between, same = down[..., None, None] * down[:, None, None], down[..., None] * down[:, :, None]
        masks = MaskMoments(one, down, one[:, None] * one[..., None], up_down, between, same)
        return _download(uploads, summed(uploads, down), masks)


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
        p, q = self.p, self.q
        between = q if self.is_common else np.full_like(q, p * p)  # of two clients
        total, pulls = summed(uploads), np.einsum("k,ekij->eij", uploads.copies, uploads.dd)
        square = between * total.square + (q - between) * pulls
        total = UploadSum(p * total.before, square, p * total.means)
        masks = MaskMoments(
            np.ones_like(q[:, 0]), self.shared, np.ones_like(q), np.full_like(q, p)[:, :, None],
            between[:, None, :, None], q[:, None],
        )  # fmt: skip
        return _download(uploads, total, masks)


@dataclass(frozen=True, eq=False)
class OwnMasks(MaskLaw):
    """A random mask for each client, independent of all others: fresh masks, but for what meets itself.

    Split S_k = p + ξ_k. An expectation survives only where each ξ_k meets itself: E[ξ(i)²] = κ₀ = p − p²,
    E[ξ(i) ξ(j)] = κ = q − p², E[ξ(i) ξ(j)²] = (1 − 2p) κ. With L > 0, ξ_k meets itself in g' and taken_k alone, which
    adds κ E[δ_l (G_1 − z_l)ᵀ] to E[g' taken_lᵀ]. With L = 0 also in x = g' = e + Σ_m ξ_m δ_m, e = G + p Σ_m δ_m. With

        B_kl = E[δ_k z_lᵀ],   Δ_l = E[δ_l δ_lᵀ],   Γ_l = E[δ_l eᵀ],   Z_kl = E[δ_k δ_lᵀ],
        Ξ_l  = E[ξ_l(j) g'(i) g'(j)] = κ Γ_l + κ₀ Γ_lᵀ + (1 − 2p) κ Δ_l,

    the moments of fresh masks then gain

        E[g' taken_lᵀ]      + Ξ_l − κ B_ll
        E[taken_k kept_lᵀ]  + κ₀ B_kl
        E[taken_k taken_lᵀ] + X_kl + X_lkᵀ + κ₀² Z_kl + κ² Z_lk,    X_kl = (1 − p) κ₀ B_kl + p (Ξ_l − κ B_ll)
        E[taken_l taken_lᵀ] + N_l + N_lᵀ + q ((1 − p)² − κ) Δ_l,     N_l = (κ₀ − q (1 − p)) B_ll + q (1 − p) Γ_l.

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
        second, means, own = exchanged = FreshMasks(self.p, self.q, is_common=False).exchange(uploads)
        p, q, last = self.p, self.q[:, None], uploads.delay
        k0, k = p - p * p, q - p * p
        kept, taken = uploads.z, slice(uploads.z.stop, None)
        if last:
            toward = k * (uploads.second[:, uploads.delta, :, 1] - uploads.dz)
            _add(second, slice(last, last + 1), taken, _as_row(toward)[:, None])
            return exchanged
        rows = uploads.second[:, uploads.delta]
        B, Z = rows[:, :, :, uploads.z], rows[:, :, :, uploads.delta]
        # E[δ_l Σδᵀ] of a client l in group l
        met = _weigh(uploads.copies, Z.transpose(0, 3, 4, 1, 2)).transpose(0, 2, 3, 1) + uploads.dd - _same(Z)
        Gamma = rows[:, :, :, 0] + p * met
        Xi = k * Gamma + k0 * Gamma.mT + (1.0 - 2.0 * p) * k * uploads.dd
        with_new = _as_row(Xi - k * uploads.dz)[:, None]
        _add(second, slice(0, 1), taken, with_new)
        _add(second, taken, kept, k0 * B)
        half = (1.0 - p) * k0 * B + p * with_new
        _add(second, taken, taken, half)
        second[:, taken, :, taken] += k0**2 * Z + k[:, :, :, None] ** 2 * Z.swapaxes(1, 3)
        N = (k0 - q * (1.0 - p)) * uploads.dz + q * (1.0 - p) * Gamma
        own[:, TAKEN] += N + N.mT + q * ((1.0 - p) ** 2 - k) * uploads.dd
        means[:, taken] += k0 * uploads.means[:, uploads.delta]
        return exchanged


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


def _download(uploads: UploadMoments, total: UploadSum, masks: MaskMoments) -> Exchanged:
    """Return the moments after g' = G_L + Sσ and taken_k = z_k + S_k (x − z_k)."""
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
    up, down = masks.up[..., None, None], masks.down[..., None, None]
    kept, taken = slice(last + 1, sigma), slice(sigma, sigma + n)
    result = np.empty((entries, sigma + n, size, sigma + n, size))
    # g' = G_L + Sσ, and the models on their way
    new = y[:, last] + up * y[:, sigma]  # E[g' yᵀ]
    if last:
        result[:, :last, :, :last] = y[:, 1 : last + 1, :, 1 : last + 1]
        _put(result, slice(last, last + 1), slice(0, last), new[:, None, :, 1 : last + 1])
        _put(result, slice(0, last), kept, y[:, 1 : last + 1, :, z])
    toward = masks.up[..., None] * y[:, sigma, :, last]
    result[:, last, :, last] = y[:, last, :, last] + toward + toward.mT + masks.up_up * y[:, sigma, :, sigma]
    _put(result, slice(last, last + 1), kept, new[:, None, :, z])
    # taken_k = z_k + S_k (x − z_k)
    change = x[:, None] - y[:, z]  # E[(x − z_k) yᵀ], (E, n, d, blocks, d)
    weighted = down * change
    z_z, half = y[:, z, :, z], weighted[:, :, :, z]
    result[:, kept, :, kept] = z_z
    _put(result, taken, kept, z_z + half)
    square = (xx[:, None] - xz.transpose(0, 2, 3, 1))[:, :, :, None] - (xz[:, None] - z_z)
    result[:, taken, :, taken] = z_z + half + half.transpose(0, 3, 4, 1, 2) + masks.down_down * square
    if last:
        _put(result, taken, slice(0, last), y[:, z, :, 1 : last + 1] + weighted[:, :, :, 1 : last + 1])
    met = y[:, last, :, z] + weighted[:, :, :, last].transpose(0, 3, 1, 2) + up * y[:, sigma, :, z]
    met = met + masks.up_down * change[:, :, :, sigma].transpose(0, 3, 1, 2)
    _put(result, slice(last, last + 1), taken, met[:, None])
    g_mean = y_means[:, last] + masks.up[..., None] * y_means[:, sigma]
    taken_means = y_means[:, z] + masks.down[..., None] * (download(y_means)[:, None] - y_means[:, z])
    means = np.concatenate([y_means[:, 1 : last + 1], g_mean[:, None], y_means[:, z], taken_means], axis=1)
    p_row = np.broadcast_to(masks.down, (len(masks.down), n, size))[..., None]
    p_column, z_x, same = p_row.mT, xz.transpose(0, 2, 1, 3), masks.same
    own = (1.0 - p_row - p_column + same) * uploads.zz + same * xx[:, None]
    own = own + (p_row - same) * z_x + (p_column - same) * z_x.mT
    return Exchanged(result, means, np.stack([uploads.zz, own], axis=1))


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


def _add(second: FloatArray, rows: slice, columns: slice, block: FloatArray) -> None:
    """Add a block and its transpose."""
    second[:, rows, :, columns] += block
    second[:, columns, :, rows] += block.transpose(0, 3, 4, 1, 2)
