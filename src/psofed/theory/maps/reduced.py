"""The recursion with all pairs of clients eliminated: 6K + 1 unknowns instead of 3K²; white inputs, separable masks.

In a steady state (λ = 1), or an eigenvector with eigenvalue λ, every pair of a separable exchange obeys,
independently of all other pairs,

    λ V_kl = A_kl Z_kl + f_kl,    Z_kl = θ_kl V_kl + q_kl,

with V its moments after a download and Z before the next upload, θ_kl = (1 − μς_k²)(1 − μς_l²) the LMS decay, q_kl
the push of displaced targets, A_kl a small matrix that depends on the two clients' factors E[A_k], E[A_l] only, and
f_kl a sum of products of a number of k and a number of l. So Z_kl = (λ − θA)⁻¹ (θ f + q) is known at once, and only
its sums over k (:class:`~psofed.theory.moments.second.UploadSums`) act back on server and clients. (λ − θA)⁻¹ is a
smooth kernel of (ς_k², ς_l²), so the sums cost O(K) (:mod:`psofed.theory.maps.pair_sums`). λ = ``eigenvalue``.

V has four numbers per pair: both, one, its mirror image and none. With round-robin windows the average Y of a pair is
enough, and its entry e feeds entry e − M of the next iteration, a cycle that closes after E steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.maps.general import Recursion
from psofed.theory.maps.krylov import dominant_eigenvalue, solve_fixed_point
from psofed.theory.maps.pair_sums import ClientNodes, PairKernel, Term
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.level import NO_SOURCES, Level, Sources
from psofed.theory.moments.second import ClientMoments, UploadSums, pack
from psofed.theory.steps.exchange import ONE, BeforeUpload, Exchanged, SeparableMasks
from psofed.theory.steps.lms import WhiteLms

_DENSE = 640  # unknowns up to which a steady state is solved directly
_DENSE_EIGENVALUES = 120  # likewise for eigenvalues, which cost more

# For both, one, its mirror image and none: products weight · left_k · right_l that pairs gain
_Gains = list[list[tuple[float, FloatArray, FloatArray]]]


@dataclass(frozen=True, eq=False)
class ReducedRecursion:
    """A recursion on server, clients and two sums over pairs, at eigenvalue λ (1 for the steady state).

    Parameters
    ----------
    full : Recursion
        The recursion to reduce: over white inputs, with one separable exchange.
    eigenvalue : float
        λ.
    """

    full: Recursion
    eigenvalue: float = 1.0

    def step(
        self, x: FloatArray, sources: Sources = NO_SOURCES, first: FirstMoments | None = None
    ) -> FloatArray:
        """One iteration on the packed unknowns (server and clients divided by λ, then the sums)."""
        full, entries, clients = self.full, self.full.entries, self.full.law.rows
        # With one tracked entry x may hold several states side by side: (unknowns, states), flattened
        size = x.size // self.size if entries.size == 1 else entries.size
        split = ClientMoments.length(clients, size)
        z = self._lms.clients(
            ClientMoments.unpack(x[:split], clients, size), sources.noise, sources.attack, first
        )
        anyone, uploader = (entries.roll(block) for block in x[split:].reshape(2, clients, size))
        before = None if first is None else full.first_before_upload(first)
        uploading = BeforeUpload(full.law, full.before_upload(z), before, sources.attack)
        result = self._exchange.clients(uploading, UploadSums(anyone, uploader))
        walk = sources.drift * full.walk
        moved = result.clients.map(lambda v: (v + walk) / self.eigenvalue)
        pushes = None if first is None or self._lms.means.push is None else self._pushes(first)
        return pack((*moved, *self._sums(result, walk, pushes)))

    def steady_state(self, sources: Sources) -> tuple[Level, FloatArray]:
        """Find the fixed point: its level, and the packed unknowns."""
        first = self.full.steady_first()[0] if sources.direction and self.full.has_direction else None
        source = self.step(np.zeros(self.size), sources, first)
        if self.is_small:
            x = np.asarray(np.linalg.solve(np.eye(self.size) - self.matrix, source), dtype=np.float64)
        else:
            x = solve_fixed_point(self.step, source)
        clients, size = self.full.law.rows, self.full.entries.size
        moments = ClientMoments.unpack(x[: ClientMoments.length(clients, size)], clients, size)
        return self.full.level(moments, first), x

    def growth(self) -> float:
        """Spectral radius of the step: below, at or above one as ρ(𝓕) is below, at or above λ.

        This holds where no number of the step is negative: see :class:`psofed.theory.solve.reduced.Reduced`.
        """
        if self.pair_bound >= self.eigenvalue:
            return np.inf  # a pair on its own grows faster than λ
        if self.is_small:
            # All columns of the matrix cost as much as a few single steps, of which ARPACK takes dozens.
            return dominant_eigenvalue(self.matrix.__matmul__, np.ones(self.size), _DENSE_EIGENVALUES)
        return dominant_eigenvalue(self.step, np.ones(self.size))

    @property
    def size(self) -> int:
        """Number of unknowns, (6K + 1) E."""
        clients, size = self.full.law.rows, self.full.entries.size
        return ClientMoments.length(clients, size) + 2 * clients * size

    @property
    def is_small(self) -> bool:
        """Whether the step's matrix is cheaper than an iterative solution."""
        return self.full.entries.size == 1 and self.size <= _DENSE

    @cached_property
    def matrix(self) -> FloatArray:
        """The step as a matrix: all unit vectors stepped at once; for one tracked entry."""
        return self.step(np.eye(self.size).ravel()).reshape(self.size, self.size)

    @property
    def pair_bound(self) -> float:
        """Largest growth factor of a pair on its own; λ must be above it."""
        if self.full.drawn.clients == 1:
            return 0.0
        ends = np.array([self._lms.input_variance.min(), self._lms.input_variance.max()])
        return self._pair_growth * float(np.abs(self._lms.pair_decay(ends[:, None], ends[None, :])).max())

    # Sums over pairs

    def _pushes(self, first: FirstMoments) -> _Gains:
        """q_kl of both, one, its mirror image and none."""
        kinds = self.full.entries.kinds
        means = [(k, m) for k in (first.taking, first.idle) for m in (first.taking, first.idle)]
        return [
            [
                (1.0 / kinds, x[..., kind], y[..., kind])
                for x, y in self._lms.pair_pushes(k, m)
                for kind in range(kinds)
            ]
            for k, m in means
        ]

    def _sums(self, result: Exchanged, walk: float, pushes: _Gains | None) -> UploadSums:
        """Sum over pairs; `walk` is what every pair gains from the target's walk."""
        both = [(1.0, x, y) for x, y in result.both] + [(walk, ONE, ONE)]
        only = [(1.0, x, y) for x, y in result.one] + [(walk, ONE, ONE)]
        gains = [both, only, [(w, y, x) for w, x, y in only], [(walk, ONE, ONE)]]
        four = self.full.entries.size == 1
        anyone, uploader = self._of_four(gains, pushes) if four else self._averaged(gains, pushes)
        corruption = self.full.law.corruption
        own = corruption.own[:, None]
        if corruption.attackers.covariance:
            # All clients are alike: the factors stand outside the sums.
            return UploadSums(own * anyone, corruption.own_pair(own, own) * uploader)
        return UploadSums(anyone, own * uploader)

    def _of_four(self, gains: _Gains, pushes: _Gains | None) -> FloatArray:
        """Σ_{k≠l} w_k E[b_k z_k z_l] and Σ_{m≠l} w_m E[b_l b_m z_l z_m], (K, S) each: four numbers per pair."""
        total = self._four_kernel.sum(_entrywise(gains))
        return total if pushes is None else total + self._four_push.sum(_entrywise(pushes))

    def _averaged(self, gains: _Gains, pushes: _Gains | None) -> tuple[FloatArray, FloatArray]:
        """Do the same for round-robin windows, where the average of a pair suffices and entries feed each other."""
        drawn, (both, one, _) = self.full.drawn, self._average_constants
        before = self._cycle_sum(self._average_kernel, gains)
        if pushes is not None:
            before = before + self._cycle_sum(self._average_push, pushes)
        if self.full.redrawn:
            return drawn.single * before, drawn.pair * before
        uploader, other = both * before, one * before
        for rows, kernel in ((gains, self._decay_kernel), (pushes, self._plain_kernel)):
            if rows is not None:
                uploader = uploader + kernel.sum(_entrywise(rows[:1]))[0]
                other = other + kernel.sum(_entrywise(rows[1:2]))[0]
        return drawn.pair * uploader + drawn.only_first * other, drawn.pair * uploader

    def _cycle_sum(self, kernel: PairKernel, gains: _Gains) -> FloatArray:
        """Σ_{k≠l} w_k Y_kl on every entry, (K, E), with Y averaged over who participates."""
        drawn = self.full.drawn
        chances = (drawn.pair, drawn.only_first, drawn.only_first, drawn.neither)
        average = [(chance * w, x, y) for chance, row in zip(chances, gains, strict=True) for w, x, y in row]
        # Entries are the rows b of the kernel.
        rows = [
            Term(slice(0, self.full.entries.size), w, x.T[:, :, None], y.T[:, :, None]) for w, x, y in average
        ]
        return np.asarray(kernel.sum(rows)[..., 0].T)

    # Kernels

    @cached_property
    def _exchange(self) -> SeparableMasks:
        (exchange,) = self.full.exchanges
        assert isinstance(exchange, SeparableMasks)
        return exchange

    @cached_property
    def _lms(self) -> WhiteLms:
        assert isinstance(self.full.lms, WhiteLms)
        return self.full.lms

    @cached_property
    def _remembers(self) -> bool:
        """Whether a pair's recursion needs more than its average: who uploaded, or with what factor."""
        if self._exchange.constants.need_only_the_average:
            return False
        return not (self.full.redrawn and self.full.law.corruption.is_linear_part_honest)

    @cached_property
    def _pair_growth(self) -> float:
        """Growth factor of a pair on its own, without the LMS decay."""
        if self._remembers:
            own = np.unique(self.full.law.corruption.own)
            matrices = self._pair_matrix(own[:, None], own[None, :])
            return float(np.abs(np.linalg.eigvals(matrices)).max())
        _, _, alpha = self._average_constants
        return float(np.abs(np.prod(alpha)) ** (1.0 / alpha.size))

    @cached_property
    def _nodes(self) -> ClientNodes:
        own = self.full.law.corruption.own if self._remembers else np.ones(self.full.law.rows)
        if self.full.law.copies is not None:
            sites = np.stack([self._lms.input_variance, own])
            return ClientNodes(sites, None, sites)
        growth = self._pair_growth / self.eigenvalue
        return ClientNodes.of(
            self._lms.input_variance,
            lambda a, b: 1.0 / (1.0 - (growth * self._lms.pair_decay(a, b)) ** self.full.entries.size),
            own,
        )

    @cached_property
    def _counted(self) -> FloatArray:
        """How much a client counts in the sums: A_k, or one for all where the Byzantine set is redrawn."""
        corruption = self.full.law.corruption
        return np.ones_like(corruption.own) if corruption.attackers.covariance else corruption.own

    @cached_property
    def _average_constants(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """How both, one and the average of a pair follow from its average Y before the exchange, (E,) each."""
        c, drawn = self._exchange.constants, self.full.drawn
        both = c.average_both + 2 * drawn.single * c.weighted_both + c.both_both + c.both_flipped
        one = c.average_one + drawn.single * c.weighted_one
        return both, one, drawn.pair * both + 2 * drawn.only_first * one + drawn.neither

    @cached_property
    def _average_kernel(self) -> PairKernel:
        return self._cyclic_kernel(1)

    @cached_property
    def _average_push(self) -> PairKernel:
        return self._cyclic_kernel(0)

    def _cyclic_kernel(self, decays: int) -> PairKernel:
        """From what entries gain, F: Y of every entry if the upload set is redrawn, else θ/λ Y of the entry before.

        λ Y_e = θ α_e Y_{e+shift} + θ^decays F_e, so going round the cycle once closes it.
        """
        _, _, alpha = self._average_constants
        size, shift = self.full.entries.size, self.full.entries.shift
        cycle, extra = np.prod(alpha), 0 if self.full.redrawn else 1

        def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
            theta = self._lms.pair_decay(a[0], b[0]) / self.eigenvalue
            table = np.empty((size, size, *theta.shape))
            closed = 1.0 / (1.0 - cycle * theta**size)
            for target in range(size):
                source, factor = (target + extra * shift) % size, 1.0
                for lag in range(size):
                    table[target, source] = factor * theta ** (lag + decays + extra) * closed
                    factor *= alpha[source]
                    source = (source + shift) % size
            return table

        return self._kernel(kernel)

    @cached_property
    def _decay_kernel(self) -> PairKernel:
        """θ/λ."""
        return self._kernel(lambda a, b: self._lms.pair_decay(a[0], b[0])[None, None] / self.eigenvalue)

    @cached_property
    def _plain_kernel(self) -> PairKernel:
        """1 for all pairs."""
        return self._kernel(lambda a, b: np.ones((1, 1, *np.broadcast(a[0], b[0]).shape)))

    def _kernel(self, of: Callable[[FloatArray, FloatArray], FloatArray]) -> PairKernel:
        return PairKernel.of(self._nodes, of, self._counted, self.full.law.copies)

    @cached_property
    def _four_kernel(self) -> PairKernel:
        return self._kernel_of_four(1)

    @cached_property
    def _four_push(self) -> PairKernel:
        return self._kernel_of_four(0)

    def _kernel_of_four(self, decays: int) -> PairKernel:
        """Weights of the two sums on what both, one, its mirror image and none gain: θ^decays (λ − θA)⁻¹ f."""
        drawn, eigenvalue = self.full.drawn, self.eigenvalue
        readout = np.array([[drawn.pair, drawn.only_first, 0.0, 0.0], [drawn.pair, 0.0, 0.0, 0.0]])
        readout = (readout @ self._mixing).T
        chances = np.array([drawn.pair, drawn.only_first, drawn.only_first, drawn.neither])

        def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
            theta = self._lms.pair_decay(a[0], b[0])[..., None, None]
            # readout (λ − θA)⁻¹ from the transposed system, two right-hand sides per pair
            if self._remembers:
                system = eigenvalue * np.eye(4) - theta * self._pair_matrix(a[1], b[1])
                solved = np.linalg.solve(system.swapaxes(-1, -2), readout)
            else:
                # A is a product of the constants and the chances (Sherman and Morrison).
                both, one, alpha = (float(constant[0]) for constant in self._average_constants)
                product = np.outer(chances, np.array([both, one, one, 1.0]) @ readout)
                solved = (readout + theta / (eigenvalue - theta * alpha) * product) / eigenvalue
            return np.moveaxis(theta**decays * solved, (-1, -2), (0, 1))

        return self._kernel(kernel)

    def _pair_matrix(self, k: FloatArray, m: FloatArray) -> FloatArray:
        """Return A: (both_kl, one_kl, one_lk, none_kl) after the exchange from those before it, (…, 4, 4).

        `k` and `m` are the factors E[A_k] and E[A_l] of the two clients.
        """
        c, drawn = self._exchange.constants, self.full.drawn
        k, m = np.broadcast_arrays(k, m)
        average = np.array([drawn.pair, drawn.only_first, drawn.only_first, drawn.neither])
        weighted = k[..., None] * np.array([drawn.pair, drawn.only_first, 0.0, 0.0])
        mirrored = m[..., None] * np.array([drawn.pair, 0.0, drawn.only_first, 0.0])
        both = c.average_both[0] * average + c.weighted_both[0] * (weighted + mirrored)
        both[..., 0] += (c.both_both[0] + c.both_flipped[0]) * self.full.law.corruption.own_pair(k, m)
        one = c.average_one[0] * average + c.weighted_one[0] * weighted
        other = c.average_one[0] * average + c.weighted_one[0] * mirrored
        matrix = np.stack([both, one, other, np.broadcast_to(average, both.shape)], axis=-2)
        return matrix @ self._mixing

    @cached_property
    def _mixing(self) -> FloatArray:
        """Effect on the four numbers between LMS step and upload: they are averaged if the upload set is redrawn."""
        drawn = self.full.drawn
        if not self.full.redrawn:
            return np.eye(4)
        return np.tile([drawn.pair, drawn.only_first, drawn.only_first, drawn.neither], (4, 1))


def _entrywise(gains: _Gains) -> list[Term]:
    """Rows b of a kernel that treats all entries, or all states side by side, alike."""
    return [Term(slice(b, b + 1), w, x[None], y[None]) for b, row in enumerate(gains) for w, x, y in row]
