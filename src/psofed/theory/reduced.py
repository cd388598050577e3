"""The recursion with all pairs of clients eliminated: 6K + 1 unknowns instead of 3K².

In a steady state (or an eigenvector with eigenvalue λ) the pairs of a separable exchange obey, each pair apart from
all others, λ V_kl = A_kl Z_kl + f_kl, Z_kl = θ_kl V_kl + q_kl: the LMS decay θ_kl and the push q_kl of displaced
targets (moments Z before the exchange), then a small matrix A_kl that depends on the clients' kind only, and f_kl, a
sum of products of a number of k and one of l. So Z_kl = (λ − θA)⁻¹(θ f + q) is known at once, and only its sums over k
act back on server and clients. White inputs only: there θ_kl is a number.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.exchange import Exchanged, SeparableExchange, constants_are_zero
from psofed.theory.first import FirstMoments
from psofed.theory.kernels import ClientNodes, PairKernel, Products
from psofed.theory.krylov import dominant_eigenvalue, solve_fixed_point
from psofed.theory.lms import WhiteLms
from psofed.theory.moments import ClientMoments, UploadSums
from psofed.theory.recursion import NO_SOURCES, Level, Recursion, Sources

_DENSE = 640  # unknowns up to which a steady state is solved directly
_DENSE_EIGENVALUES = 120  # likewise for eigenvalues, which cost more


def can_reduce(recursion: Recursion) -> bool:
    """Whether the pairs of a recursion can be eliminated."""
    if recursion.entries.is_full or len(recursion.exchanges) != 1:
        return False
    exchange = recursion.exchanges[0]
    if not hasattr(exchange, "constants"):
        return False
    return recursion.entries.size == 1 or recursion.redrawn or constants_are_zero(exchange.constants)


@dataclass(frozen=True, eq=False)
class ReducedRecursion:
    """A recursion on server, clients and two sums over pairs, at eigenvalue λ (1 for the steady state).

    Parameters
    ----------
    full : Recursion
        The recursion that is reduced; :func:`can_reduce` must hold.
    eigenvalue : float
        λ.
    """

    full: Recursion
    eigenvalue: float = 1.0

    @cached_property
    def _exchange(self) -> SeparableExchange:
        return self.full.exchanges[0]  # type: ignore[return-value]

    @cached_property
    def _lms(self) -> WhiteLms:
        assert isinstance(self.full.lms, WhiteLms)
        return self.full.lms

    @property
    def _split(self) -> int:
        return ClientMoments.length(self.full.law.rows, self.full.entries.size)

    @property
    def size(self) -> int:
        """Number of unknowns, (6K + 1) E."""
        return self._split + 2 * self.full.law.rows * self.full.entries.size

    def step(self, x: FloatArray, sources: Sources, first: FirstMoments | None = None) -> FloatArray:
        """One iteration on the packed unknowns (server and clients divided by λ, then the sums)."""
        full, entries = self.full, self.full.entries
        clients, size = full.law.rows, entries.size
        if entries.size == 1:
            size = x.size // self.size  # several states side by side: x is (unknowns, states), flattened
        split = self._split * size // entries.size
        moments = ClientMoments.unpack(x[:split], clients, size)
        z = self._lms.clients(moments, sources.noise, sources.attack, first)
        sums = UploadSums.unpack(x[split:], clients, size)
        if full.redrawn:
            z = z.mixed(full.drawn)
        if entries.shift:
            roll = entries.roll
            z = ClientMoments(roll(z.server), roll(z.cross1), roll(z.cross0), roll(z.own1), roll(z.own0))
            sums = UploadSums(roll(sums.anyone), roll(sums.uploader))
        before = None if first is None else full._before_upload(first)
        result = self._exchange.clients(full.law, z, sums, before, sources.attack)
        walk = sources.drift * full.walk
        moved = result.clients.plus(np.full(size, walk)) if walk else result.clients
        pushes = None if first is None or self._lms.means.push is None else self._pushes(first)
        return np.concatenate([moved.pack() / self.eigenvalue, self._sums(result, walk, pushes).pack()])

    def steady_state(self, sources: Sources) -> tuple[Level, FloatArray]:
        """Find the fixed point: its level, and itself."""
        first = self.full.steady_first()[0] if sources.direction and self.full.has_direction else None
        source = self.step(np.zeros(self.size), sources, first)
        if self.is_small:
            x = np.asarray(np.linalg.solve(np.eye(self.size) - self.matrix, source), dtype=np.float64)
        else:
            x = solve_fixed_point(lambda v: self.step(v, NO_SOURCES), source)
        return self.full.level(self.client_moments(x), first), x

    @property
    def is_small(self) -> bool:
        """Whether the step's matrix is cheaper than an iterative solution."""
        return self.full.entries.size == 1 and self.size <= _DENSE

    @cached_property
    def matrix(self) -> FloatArray:
        """The step as a matrix: all unit vectors stepped at once; for one tracked entry."""
        return self.step(np.eye(self.size).ravel(), NO_SOURCES).reshape(self.size, self.size)

    def client_moments(self, x: FloatArray) -> ClientMoments:
        """Server and clients of packed unknowns."""
        return ClientMoments.unpack(x[: self._split], self.full.law.rows, self.full.entries.size)

    def growth(self) -> float:
        """Spectral radius of the step: below, at or above one as ρ(𝓕) is below, at or above λ."""
        if self.is_small and self.size <= _DENSE_EIGENVALUES:
            return float(np.abs(np.linalg.eigvals(self.matrix)).max())
        return dominant_eigenvalue(lambda v: self.step(v, NO_SOURCES), np.ones(self.size))

    @property
    def pair_bound(self) -> float:
        """Largest growth factor of a pair left to itself; λ must be above it."""
        if self.full.drawn.clients == 1:
            return 0.0
        return self._pair_growth * self._largest_decay

    @cached_property
    def _largest_decay(self) -> float:
        ends = np.array([self._lms.input_variance.min(), self._lms.input_variance.max()])
        return float(np.abs(self._lms.pair_decay(ends[:, None], ends[None, :])).max())

    @cached_property
    def _remembers(self) -> bool:
        # Whether a pair's recursion needs more than its average: who uploaded, or what they made of it
        if constants_are_zero(self._exchange.constants):
            return False
        return not (self.full.redrawn and self.full.law.corruption.is_linear_part_honest)

    @cached_property
    def _pair_growth(self) -> float:
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
            return ClientNodes(sites, np.eye(self.full.law.rows), sites)
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
        if corruption.attackers.covariance:
            return np.ones_like(corruption.own)
        return corruption.own

    def _pushes(self, first: FirstMoments) -> list[list[tuple[float, FloatArray, FloatArray]]]:
        """q_kl of both, one, its mirror image and none, each a list of weight · left_k · right_l."""
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

    def _sums(self, result: Exchanged, walk: float, pushes: "_Pushes | None") -> UploadSums:
        """Sum over pairs; `walk` is what every pair gains from the target's walk."""
        one = np.ones((1, 1))
        both = [(1.0, x, y) for x, y in result.both] + [(walk, one, one)]
        only = [(1.0, x, y) for x, y in result.one] + [(walk, one, one)]
        rows = [both, only, [(w, y, x) for w, x, y in only], [(walk, one, one)]]
        anyone, both_sum = self._weigh(rows, pushes)
        corruption = self.full.law.corruption
        own = corruption.own[:, None]
        if corruption.attackers.covariance:
            # All clients alike: the factors stand outside the sums
            return UploadSums(own * anyone, corruption.own_pair(own, own) * both_sum)
        return UploadSums(anyone, own * both_sum)

    def _weigh(self, rows: "_Pushes", pushes: "_Pushes | None") -> tuple[FloatArray, FloatArray]:
        """Σ_{k≠l} w_k E[b_k z_k z_l] and Σ_{m≠l} w_m E[b_l b_m z_l z_m], (K, E) each."""
        drawn, clients, size = self.full.drawn, self.full.law.rows, self.full.entries.size
        if size == 1:
            return self._weigh_one(rows, pushes)
        average = Products.of([self._averaged(rows)], clients, size)
        pushed = None if pushes is None else Products.of([self._averaged(pushes)], clients, size)
        if self.full.redrawn:
            total = self._average_kernel.sum_products(average)
            if pushed is not None:
                total = total + self._average_push.sum_products(pushed)
            return drawn.single * total.T, drawn.pair * total.T
        both, one, _ = self._average_constants
        decayed = self._decayed_average_kernel.sum_products(average)
        if pushed is not None:
            decayed = decayed + self._decayed_average_push.sum_products(pushed)
        uploader = both * decayed.T + self._entrywise(rows[0], self._decay_kernel)
        other = one * decayed.T + self._entrywise(rows[1], self._decay_kernel)
        if pushes is not None:
            uploader = uploader + self._entrywise(pushes[0], self._plain_kernel)
            other = other + self._entrywise(pushes[1], self._plain_kernel)
        return drawn.pair * uploader + drawn.only_first * other, drawn.pair * uploader

    def _weigh_one(self, rows: "_Pushes", pushes: "_Pushes | None") -> tuple[FloatArray, FloatArray]:
        """Do the same for one tracked entry, and any number of states side by side."""
        drawn = self.full.drawn
        if self._remembers:
            anyone, both_sum = self._remembered_kernel.sum_terms(rows)
            if pushes is not None:
                more = self._remembered_push.sum_terms(pushes)
                anyone, both_sum = anyone + more[0], both_sum + more[1]
            return anyone, both_sum
        average = [self._averaged(rows)]
        pushed = None if pushes is None else [self._averaged(pushes)]
        if self.full.redrawn:
            total = self._average_kernel.sum_terms(average)[0]
            if pushed is not None:
                total = total + self._average_push.sum_terms(pushed)[0]
            return drawn.single * total, drawn.pair * total
        both, one, _ = self._average_constants
        decayed = self._decayed_average_kernel.sum_terms(average)[0]
        if pushed is not None:
            decayed = decayed + self._decayed_average_push.sum_terms(pushed)[0]
        uploader = both * decayed + self._decay_kernel.sum_terms(rows[:1])[0]
        other = one * decayed + self._decay_kernel.sum_terms(rows[1:2])[0]
        if pushes is not None:
            uploader = uploader + self._plain_kernel.sum_terms(pushes[:1])[0]
            other = other + self._plain_kernel.sum_terms(pushes[1:2])[0]
        return drawn.pair * uploader + drawn.only_first * other, drawn.pair * uploader

    def _averaged(self, rows: "_Pushes") -> list[tuple[float, FloatArray, FloatArray]]:
        """Average over who participates of what both, one, its mirror image and none gain."""
        drawn = self.full.drawn
        chances = (drawn.pair, drawn.only_first, drawn.only_first, drawn.neither)
        return [(chance * w, x, y) for chance, row in zip(chances, rows, strict=True) for w, x, y in row]

    def _entrywise(self, row: list[tuple[float, FloatArray, FloatArray]], kernel: PairKernel) -> FloatArray:
        """Σ_{k≠l} w_k h_kl f_kl with one kernel for every entry, (K, E): entries are states side by side."""
        return kernel.sum_terms([row])[0]

    # One number per pair: common masks, or an upload set drawn afresh

    @cached_property
    def _average_constants(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """How both, one and the average of a pair follow from its average Y before the exchange, (E,) each."""
        c, drawn = self._exchange.constants, self.full.drawn
        both = c.average_both + 2 * drawn.single * c.weighted_both + c.both_both + c.both_flipped
        one = c.average_one + drawn.single * c.weighted_one
        return both, one, drawn.pair * both + 2 * drawn.only_first * one + drawn.neither

    def _cyclic_kernel(self, decays: int) -> PairKernel:
        """Y of every entry from what every entry gains: λ Y_e = θ α_e Y_{e+shift} + θ^decays F_e."""
        _, _, alpha = self._average_constants
        size, shift = self.full.entries.size, self.full.entries.shift
        cycle = np.prod(alpha)

        def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
            theta = self._lms.pair_decay(a[0], b[0]) / self.eigenvalue
            table = np.empty((size, size, *theta.shape))
            closed = 1.0 / (1.0 - cycle * theta**size)
            for target in range(size):
                source, factor = target, 1.0
                for lag in range(size):
                    table[target, source] = factor * theta ** (lag + decays) * closed
                    factor *= alpha[source]
                    source = (source + shift) % size
            return table

        return PairKernel.of(self._nodes, kernel, self._counted, self.full.law.copies)

    @cached_property
    def _average_kernel(self) -> PairKernel:
        return self._cyclic_kernel(1)

    @cached_property
    def _average_push(self) -> PairKernel:
        return self._cyclic_kernel(0)

    @cached_property
    def _decay_kernel(self) -> PairKernel:
        return PairKernel.of(
            self._nodes,
            lambda a, b: self._lms.pair_decay(a[0], b[0])[None, None] / self.eigenvalue,
            self._counted,
            self.full.law.copies,
        )

    @cached_property
    def _plain_kernel(self) -> PairKernel:
        return PairKernel.of(
            self._nodes,
            lambda a, b: np.ones((1, 1, *np.broadcast(a[0], b[0]).shape)),
            self._counted,
            self.full.law.copies,
        )

    @cached_property
    def _decayed_average_kernel(self) -> PairKernel:
        return self._decayed(self._average_kernel)

    @cached_property
    def _decayed_average_push(self) -> PairKernel:
        return self._decayed(self._average_push)

    def _decayed(self, average: PairKernel) -> PairKernel:
        """Return a kernel times θ/λ, with the source of entry e being Y of entry e + shift."""
        shift, scale = self.full.entries.shift, self._decay_kernel
        return PairKernel(
            self._nodes,
            np.roll(average.table, -shift, axis=0) * scale.table,
            np.roll(average.same, -shift, axis=0) * scale.same,
            self._counted,
            self.full.law.copies,
        )

    # Four numbers per pair: independent masks whose upload remembers who downloaded (one tracked entry)

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
        """What happens to the four numbers between LMS step and upload: they are averaged if that set is redrawn."""
        drawn = self.full.drawn
        if not self.full.redrawn:
            return np.eye(4)
        return np.tile([drawn.pair, drawn.only_first, drawn.only_first, drawn.neither], (4, 1))

    def _four_kernel(self, decays: int) -> PairKernel:
        """Return the two sums' weights on what both, one, its mirror image and none gain: θ^decays (λ − θA)⁻¹ f."""
        drawn = self.full.drawn
        readout = np.array([[drawn.pair, drawn.only_first, 0.0, 0.0], [drawn.pair, 0.0, 0.0, 0.0]])
        readout = readout @ self._mixing

        def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
            theta = self._lms.pair_decay(a[0], b[0])
            matrix = self._pair_matrix(a[1], b[1])
            system = self.eigenvalue * np.eye(4) - theta[..., None, None] * matrix
            # readout (λ − θA)⁻¹ from the transposed system, two right-hand sides per pair
            solved = np.linalg.solve(system.swapaxes(-1, -2), readout.T)
            return np.moveaxis(theta[..., None, None] ** decays * solved, (-1, -2), (0, 1))

        return PairKernel.of(self._nodes, kernel, self._counted, self.full.law.copies)

    @cached_property
    def _remembered_kernel(self) -> PairKernel:
        return self._four_kernel(1)

    @cached_property
    def _remembered_push(self) -> PairKernel:
        return self._four_kernel(0)


_Pushes = list[list[tuple[float, FloatArray, FloatArray]]]
