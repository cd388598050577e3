"""Round-robin with an offset per client and correlated inputs: the paper's iteration given all masks, a third as large.

Between an upload and the next download of an iteration the server holds g and client k holds z_k, whoever takes part
then. So all moments after the download follow from T = E[g gᵀ], A = E[g zᵀ] and Y = E[z zᵀ] (:class:`Uploaded`), with z
all clients' z_k in one vector of KD numbers. With m the clients' masks in one such vector, m̄ = 1 − m, and p₂, p₁ and
p₀ the probabilities that both, only the first and neither of two clients take part, the next LMS step begins with

    E[v_k v_lᵀ]           = C ∘ Y + X + Xᵀ,    C = p₂ m̄ m̄ᵀ + p₁ (m̄ 1ᵀ + 1 m̄ᵀ) + p₀,
                                               X = m ∘ ((p₂ m̄ + p₁) ∘ A_l + (p₂/2) m ∘ T)
    E[v_k v_lᵀ | both]    = m̄ m̄ᵀ ∘ Y + m̄ mᵀ ∘ A_kᵀ + m m̄ᵀ ∘ A_l + m mᵀ ∘ T
    E[v_k v_lᵀ | only k]  = m̄ ∘ Y + m ∘ A_l.

Of the last two only sums over the uploading clients are needed, so that Y alone costs K² D³ operations.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.maps.krylov import dominant_eigenvalue, solve_fixed_point
from psofed.theory.maps.opened import OpenedRecursion
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.level import NOTHING, Level, Sources
from psofed.theory.moments.second import ClientMoments, MomentState, pack, unpack
from psofed.theory.steps.exchange import FixedMasks
from psofed.theory.steps.lms import CorrelatedLms
from psofed.theory.steps.received import ReceivedMoments


class Uploaded(NamedTuple):
    """Moments between upload and download, whoever participates.

    Attributes
    ----------
    server : array (D, D)
        T.
    cross : array (D, K D)
        A.
    clients : array (K D, K D)
        Y.
    """

    server: FloatArray
    cross: FloatArray
    clients: FloatArray


@dataclass(frozen=True, eq=False, kw_only=True)
class ScatteredRecursion(OpenedRecursion):
    """The recursion of all second moments under known masks; steady states and ρ(𝓕) from a third of them."""

    def steady_state(self, sources: Sources, tolerance: float | None = None) -> tuple[Level, MomentState]:
        """Find the fixed point of one period: its level, averaged over the period, and the state at its start."""
        if not self._is_plain:
            return super().steady_state(sources, tolerance)
        firsts: tuple[FirstMoments | None, ...] = (None,) * self.period
        if sources.direction and self.has_direction:
            firsts = self.steady_first()
        added = [self._added(n, sources, first) for n, first in enumerate(firsts)]
        zero = Uploaded(*map(np.zeros_like, added[0]))

        def over_period(u: Uploaded, added: list[Uploaded] | None = None) -> Uploaded:
            for n in range(self.period):
                u = self._advance(u, n, None if added is None else added[n])
            return u

        solved = solve_fixed_point(
            lambda x: pack(over_period(unpack(x, zero))), pack(over_period(zero, added)), tolerance
        )
        u, total = unpack(solved, zero), NOTHING
        beginning = self._downloaded(u)
        for n, first in enumerate(firsts):
            total += self._level(u, n, first)
            u = self._advance(u, n, added[n])
        return total.scaled(1.0 / self.period), beginning

    def curve(self, iterations: int, start: int = 0) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD at iterations 0 … `iterations` − 1, beginning at phase `start`."""
        if self.has_direction or not self._is_plain:
            return super().curve(iterations, start)
        added = [self._added(n, Sources(), None) for n in range(self.period)]
        u, levels = self._reduced(self.initial), np.empty((2, iterations))
        with np.errstate(over="ignore", invalid="ignore"):  # a diverging recursion grows to infinity
            for n in range(iterations):
                phase = (start + n) % self.period
                level = self._level(u, phase, None)
                levels[:, n] = level.excess, level.server
                u = self._advance(u, phase, added[phase])
        return levels[0], levels[1]

    def spectral_radius(self) -> float:
        """ρ(𝓕), per iteration."""
        if not self._is_plain:
            return super().spectral_radius()
        start = self._reduced(self.initial)

        def over_period(x: FloatArray) -> FloatArray:
            u = unpack(x, start)
            for n in range(self.period):
                u = self._advance(u, n)
            return pack(u)

        return float(max(dominant_eigenvalue(over_period, pack(start)), 0.0) ** (1.0 / self.period))

    @cached_property
    def _is_plain(self) -> bool:
        """Whether inputs are correlated, and the Byzantine clients are always the same."""
        redrawn = self.received.covariance or self.lms.mixture.covariance
        return isinstance(self.lms, CorrelatedLms) and not redrawn

    def _added(self, n: int, sources: Sources, first: FirstMoments | None) -> Uploaded:
        """Return what iteration n adds to the moments."""
        clients, pairs = self.initial
        nothing = MomentState(clients.map(np.zeros_like), pairs.map(np.zeros_like))
        return self._reduced(self.step(nothing, n, sources, first))

    def _reduced(self, v: MomentState) -> Uploaded:
        """Return the moments before the download from those after it: they are those of whoever did not take part."""
        clients, size = self.law.rows, self.entries.dimension
        blocks = v.pairs.none.reshape(clients, clients, size, size).copy()
        k = np.arange(clients)
        blocks[k, k] = v.clients.own0.reshape(clients, size, size)
        return Uploaded(
            v.clients.server[0, 0].reshape(size, size),
            _side_by_side(v.clients.cross0[0].reshape(clients, size, size)),
            blocks.swapaxes(1, 2).reshape(clients * size, -1),
        )

    def _downloaded(self, u: Uploaded) -> MomentState:
        """Return the moments after the download of a period's last exchange."""
        clients, size = self.law.rows, self.entries.dimension
        blocks = u.clients.reshape(clients, size, clients, size).swapaxes(1, 2).reshape(clients, clients, -1)
        none, nothing = np.zeros_like(blocks[0]), np.zeros_like(blocks)
        received = ReceivedMoments(
            cross=_blocks(u.cross).reshape(clients, -1),
            average=blocks,
            pulled=nothing,
            toward=none,
            products=nothing,
        )
        return self._at_once(self.exchanges[-1], u.server.ravel(), received)

    def _level(self, u: Uploaded, n: int, first: FirstMoments | None) -> Level:
        """Excess network MSE and server MSD in iteration n."""
        v = self._clients(u, n)
        return self.level(v._replace(server=v.server[None, None]), first)

    def _clients(self, u: Uploaded, n: int) -> ClientMoments:
        """Return the moments of server and single clients after the download that precedes iteration n."""
        T, A, Y = u
        mask, cross, own = self._masks[n - 1], _blocks(A), _diagonal(Y, len(T))
        row, column = mask[:, :, None], mask[:, None, :]
        mixed = row * (1 - column) * cross
        blocks = (
            (1 - column) * cross + column * T,
            cross,
            (1 - row) * (1 - column) * own + mixed + mixed.swapaxes(1, 2) + row * column * T,
            own,
        )
        return ClientMoments(T.ravel(), *(block.reshape(len(block), -1) for block in blocks))

    def _advance(self, u: Uploaded, n: int, added: Uploaded | None = None) -> Uploaded:
        """Take the moments before the download that precedes iteration n to those after its upload."""
        drawn, received, size = self.drawn, self.received, self.entries.dimension
        p, pair, s = drawn.single, drawn.pair, drawn.participants
        v = self._clients(u, n)
        average = self._average(u, n)
        z = self.lms.clients(v, 0.0)
        z = z.mixed(drawn) if self.redrawn else z
        own1, cross1, cross0 = (x.reshape(-1, size, size) for x in (z.own1, z.cross1, z.cross0))
        anyone, both = self._sums(u, n, v, average)
        # d_k = A_k z_k + r_k g with r_k = G_k − 1, and t² = t in the second moments of one client
        G, t, own, server = u.server, received.chance, received.own, received.server - 1.0
        a, r = (1.0 + t * (own - 1.0))[:, None], (t * received.server - 1.0)[:, None]
        mask = self._masks[n]
        row, column = mask[:, :, None], mask[:, None, :]
        own_upload, pulling = a * mask, r * mask
        pulls = pulling.sum(axis=0) - pulling  # of all others
        other = pair * cross1 + drawn.only_first * cross0
        pulled = anyone + pulls[:, :, None] * other
        pulled = pulled + p * (own_upload[:, :, None] * own1 + pulling[:, :, None] * cross1)
        toward = p * (
            (own_upload[:, :, None] * cross1.swapaxes(1, 2)).sum(axis=0) + pulling.sum(axis=0)[:, None] * G
        )
        square, mixed, rest = (
            (t * x + (1 - t) * y)[:, None, None]
            for x, y in ((own**2, 1.0), (own * server, -1.0), (server**2, 1.0))
        )
        same = square * own1 + mixed * (cross1 + cross1.swapaxes(1, 2)) + rest * G
        crossed = (pulls[:, :, None] * own_upload[:, None, :] * cross1).sum(axis=0)
        products = pair * (both * own_upload[:, None, :]).sum(axis=0) + pair * (crossed + crossed.T)
        products += pair * (pulling[:, :, None] * pulls[:, None, :]).sum(axis=0) * G
        products += p * (row * column * same).sum(axis=0)
        T = G + (toward + toward.T) / s + products / s**2
        A = drawn.mix(cross1, cross0) + pulled / s
        decay = self.lms.means.decay
        half = (decay @ average.reshape(len(decay), size, -1)).reshape(average.shape)
        Y = (decay @ half.T.reshape(len(decay), size, -1)).reshape(average.shape)
        _diagonal(Y, size)[:] = drawn.mix(z.own1, z.own0).reshape(-1, size, size)
        # Covariances are made symmetric again: rounding is not, and grows otherwise.
        moved = Uploaded(0.5 * (T + T.T), _side_by_side(A), 0.5 * (Y + Y.T))
        return moved if added is None else Uploaded(*map(np.add, moved, added))

    def _average(self, u: Uploaded, n: int) -> FloatArray:
        """E[v_k v_lᵀ], whoever participates; that of a client with itself means nothing."""
        T, A, Y = u
        mask, drawn = self._masks[n - 1], self.drawn
        before = mask.ravel()
        half = (drawn.pair * (1 - before) + drawn.only_first) * A
        half += 0.5 * drawn.pair * before * np.tile(T, len(mask))
        taken = (mask[:, :, None] * half).reshape(Y.shape)
        average = self._kept[n - 1] * Y
        average += taken
        average += taken.T
        return np.asarray(average)

    def _sums(
        self, u: Uploaded, n: int, v: ClientMoments, average: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Σ_{k≠l} S_k E[b_k A_k z_k z_lᵀ] and Σ_{k≠l} S_k E[A_k z_k z_lᵀ | b_k = b_l = 1], (K, D, D) each."""
        T, A, Y = u
        drawn, size, decay = self.drawn, len(T), self.lms.means.decay
        each = self._uploading[n]  # E[A_k] S_k (I − μR_k)
        W = _side_by_side(each)
        if self.redrawn:
            both = _blocks(W @ average) - each @ _diagonal(average, size)
            return drawn.single * both @ decay, both @ decay
        mask = self._masks[n - 1]
        before, count = mask.ravel(), len(mask)
        left, given = W * (1 - before), _blocks(W * before).sum(axis=0)
        one = left @ Y + given @ A
        taking = np.tile(left @ A.T + given @ T, count)
        own1, cross0, own0 = (x.reshape(-1, size, size) for x in (v.own1, v.cross0, v.own0))
        alone = (1 - mask)[:, :, None] * own0 + mask[:, :, None] * cross0
        both = _blocks((1 - before) * one + before * taking) - each @ own1
        anyone = drawn.pair * both + drawn.only_first * (_blocks(one) - each @ alone)
        return anyone @ decay, both @ decay

    @cached_property
    def _masks(self) -> list[FloatArray]:
        """Masks of every iteration of a period, (K, D)."""
        size = self.entries.dimension
        return [
            exchange.row.reshape(-1, size, size)[:, :, 0]
            for exchange in self.exchanges
            if isinstance(exchange, FixedMasks)
        ]

    @cached_property
    def _kept(self) -> list[FloatArray]:
        """C of every iteration of a period."""
        drawn, tables = self.drawn, []
        for mask in self._masks:
            left = 1.0 - mask.ravel()
            one = drawn.only_first * left
            tables.append(drawn.pair * np.outer(left, left) + one[:, None] + one + drawn.neither)
        return tables

    @cached_property
    def _uploading(self) -> list[FloatArray]:
        """E[A_k] S_k (I − μR_k) of every iteration of a period, (K, D, D)."""
        factor = 1.0 + self.received.chance * (self.received.own - 1.0)
        return [(factor[:, None] * mask)[:, :, None] * self.lms.means.decay for mask in self._masks]


def _blocks(matrix: FloatArray) -> FloatArray:
    """Return the K blocks of a matrix (D, K D) as (K, D, D)."""
    return matrix.reshape(len(matrix), -1, len(matrix)).swapaxes(0, 1)


def _side_by_side(blocks: FloatArray) -> FloatArray:
    """Undo :func:`_blocks`."""
    return blocks.swapaxes(0, 1).reshape(blocks.shape[1], -1)


def _diagonal(matrix: FloatArray, size: int) -> FloatArray:
    """View the blocks on the diagonal of a matrix (K D, K D) as (K, D, D)."""
    count = len(matrix) // size
    blocks: FloatArray = np.einsum("kikj->kij", matrix.reshape(count, size, count, size))
    return blocks
