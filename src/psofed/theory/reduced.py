"""The recursion with all pairs of clients eliminated: 6K + 1 unknowns instead of 3K².

In a steady state (or an eigenvector with eigenvalue λ) the pairs of a separable exchange obey, each pair apart from
all others, λ V_kl = θ_kl A V_kl + f_kl with the pair's LMS decay θ_kl, a small matrix A that is the same for all
pairs, and f_kl = x_k + x_l + s made of the other moments. So V_kl = (λ − θ_kl A)⁻¹ f_kl is known at once, and only its
sums over k act back on server and clients. White inputs only: there θ_kl is a number.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.exchange import Exchanged, SeparableExchange, constants_are_zero
from psofed.theory.kernels import ClientNodes, PairKernel
from psofed.theory.krylov import dominant_eigenvalue, solve_fixed_point
from psofed.theory.lms import WhiteLms
from psofed.theory.moments import ClientMoments, UploadSums
from psofed.theory.recursion import NO_SOURCES, Level, Recursion, Sources


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
        return ClientMoments.length(self.full.drawn.clients, self.full.entries.size)

    @property
    def size(self) -> int:
        """Number of unknowns, (6K + 1) E."""
        return self._split + 2 * self.full.drawn.clients * self.full.entries.size

    def step(self, x: FloatArray, sources: Sources) -> FloatArray:
        """One iteration on the packed unknowns (server and clients divided by λ, then the sums)."""
        full, entries = self.full, self.full.entries
        clients, size = full.drawn.clients, entries.size
        z = self._lms.clients(ClientMoments.unpack(x[: self._split], clients, size), sources.noise)
        sums = UploadSums.unpack(x[self._split :], clients, size)
        if full.redrawn:
            z = z.mixed(full.drawn)
        if entries.shift:
            roll = entries.roll
            z = ClientMoments(roll(z.server), roll(z.cross1), roll(z.cross0), roll(z.own1), roll(z.own0))
            sums = UploadSums(roll(sums.anyone), roll(sums.uploader))
        result = self._exchange.clients(z, sums, sources.attack * full.poison)
        walk = sources.drift * full.walk
        if walk:
            result = Exchanged(
                result.clients.plus(np.full(size, walk)),
                result.each,
                result.everyone + walk,
                result.other + walk,
            )
        return np.concatenate([result.clients.pack() / self.eigenvalue, self._sums(result, walk).pack()])

    def steady_state(self, sources: Sources) -> tuple[Level, FloatArray]:
        """Find the fixed point: its level, and itself."""
        source = self.step(np.zeros(self.size), sources)
        x = solve_fixed_point(lambda v: self.step(v, NO_SOURCES), source)
        return self.full.level(self.client_moments(x)), x

    def client_moments(self, x: FloatArray) -> ClientMoments:
        """Server and clients of packed unknowns."""
        return ClientMoments.unpack(x[: self._split], self.full.drawn.clients, self.full.entries.size)

    def growth(self) -> float:
        """Spectral radius of the step: below, at or above one as ρ(𝓕) is below, at or above λ."""
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
        # Whether who uploaded matters for a pair beyond its average
        return not (self.full.redrawn or constants_are_zero(self._exchange.constants))

    @cached_property
    def _pair_growth(self) -> float:
        if self._remembers:
            return float(np.abs(np.linalg.eigvals(self._pair_matrix)).max())
        _, _, alpha = self._average_constants
        return float(np.abs(np.prod(alpha)) ** (1.0 / alpha.size))

    @cached_property
    def _nodes(self) -> ClientNodes:
        growth = self._pair_growth / self.eigenvalue
        return ClientNodes.of(
            self._lms.input_variance,
            lambda a, b: 1.0 / (1.0 - (growth * self._lms.pair_decay(a, b)) ** self.full.entries.size),
        )

    def _sums(self, result: Exchanged, walk: float) -> UploadSums:
        """Sum over pairs; `walk` is what a pair gains in which nobody participates."""
        return self._remembered_sums(result, walk) if self._remembers else self._average_sums(result, walk)

    # One number per pair: common masks, or an upload set drawn afresh

    @cached_property
    def _average_constants(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """How both, one and the average of a pair follow from its average Y before the exchange, (E,) each."""
        c, drawn = self._exchange.constants, self.full.drawn
        both = c.average_both + 2 * drawn.single * c.weighted_both + c.both_both + c.both_flipped
        one = c.average_one + drawn.single * c.weighted_one
        return both, one, drawn.pair * both + 2 * drawn.only_first * one + drawn.neither

    @cached_property
    def _average_kernel(self) -> PairKernel:
        """Y of every entry from the forcing F of every entry: λ Y_e = θ (α_e Y_{e+shift} + F_e)."""
        _, _, alpha = self._average_constants
        size, shift = self.full.entries.size, self.full.entries.shift
        cycle = np.prod(alpha)

        def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
            theta = self._lms.pair_decay(a, b) / self.eigenvalue
            table = np.empty((size, size, *theta.shape))
            closed = 1.0 / (1.0 - cycle * theta**size)
            for target in range(size):
                source, factor = target, 1.0
                for lag in range(size):
                    table[target, source] = factor * theta ** (lag + 1) * closed
                    factor *= alpha[source]
                    source = (source + shift) % size
            return table

        return PairKernel.of(self._nodes, kernel)

    @cached_property
    def _decay_kernel(self) -> PairKernel:
        return PairKernel.of(
            self._nodes, lambda a, b: self._lms.pair_decay(a, b)[None, None] / self.eigenvalue
        )

    @cached_property
    def _decayed_average_kernel(self) -> PairKernel:
        """The average kernel times θ/λ, with the source of entry e being Y of entry e + shift."""
        shift, average = self.full.entries.shift, self._average_kernel
        scale = self._decay_kernel
        return PairKernel(
            self._nodes,
            np.roll(average.table, -shift, axis=0) * scale.table,
            np.roll(average.same, -shift, axis=0) * scale.same,
        )

    def _average_sums(self, result: Exchanged, walk: float) -> UploadSums:
        drawn = self.full.drawn
        each = (drawn.pair * result.each + drawn.only_first * result.other).T
        everyone = drawn.pair * result.everyone[:, None] + drawn.neither * walk
        if self.full.redrawn:
            average = _pair_sums(self._average_kernel, each, everyone).T
            return UploadSums(drawn.single * average, drawn.pair * average)
        both, one, _ = self._average_constants
        decayed = _pair_sums(self._decayed_average_kernel, each, everyone).T
        uploader = drawn.pair * (both * decayed + self._decayed(result.each, result.everyone))
        other = one * decayed + self._decayed_own(result.other)
        return UploadSums(uploader + drawn.only_first * other, uploader)

    def _decayed(self, each: FloatArray, everyone: FloatArray) -> FloatArray:
        """Σ_{k≠l} (θ_kl/λ)(x_k + x_l + s)."""
        kernel = self._decay_kernel
        columns = [
            _pair_sums(kernel, each[:, e][None], everyone[e][None, None])[0] for e in range(each.shape[1])
        ]
        return np.stack(columns, axis=1)

    def _decayed_own(self, own: FloatArray) -> FloatArray:
        """Σ_{k≠l} (θ_kl/λ) t_l."""
        kernel = self._decay_kernel
        return np.stack([kernel.sum_scaled(own[:, e][None])[0] for e in range(own.shape[1])], axis=1)

    # Four numbers per pair: independent masks whose upload remembers who downloaded (one tracked entry)

    @cached_property
    def _pair_matrix(self) -> FloatArray:
        """A: (both_kl, one_kl, one_lk, none_kl) after the exchange from those before it."""
        c, drawn = self._exchange.constants, self.full.drawn
        average = np.array([drawn.pair, drawn.only_first, drawn.only_first, drawn.neither])
        weighted = np.array([drawn.pair, drawn.only_first, 0.0, 0.0])
        mirrored = np.array([drawn.pair, 0.0, drawn.only_first, 0.0])
        both = c.average_both[0] * average + c.weighted_both[0] * (weighted + mirrored)
        both[0] += c.both_both[0] + c.both_flipped[0]
        one = c.average_one[0] * average + c.weighted_one[0] * weighted
        other = c.average_one[0] * average + c.weighted_one[0] * mirrored
        return np.stack([both, one, other, average])

    @cached_property
    def _remembered_kernel(self) -> PairKernel:
        """The two sums' weights on the forcing of (both, one, its mirror image, none): z = θ (λ − θA)⁻¹ f."""
        drawn, matrix = self.full.drawn, self._pair_matrix
        readout = np.array([[drawn.pair, drawn.only_first, 0.0, 0.0], [drawn.pair, 0.0, 0.0, 0.0]])

        def kernel(a: FloatArray, b: FloatArray) -> FloatArray:
            theta = self._lms.pair_decay(a, b)
            system = self.eigenvalue * np.eye(4) - theta[..., None, None] * matrix
            # readout (λ − θA)⁻¹ from the transposed system, two right-hand sides per pair
            solved = np.linalg.solve(system.swapaxes(-1, -2), readout.T)
            return np.moveaxis(theta[..., None, None] * solved, (-1, -2), (0, 1))

        return PairKernel.of(self._nodes, kernel)

    def _remembered_sums(self, result: Exchanged, walk: float) -> UploadSums:
        each, other = result.each[:, 0], result.other[:, 0]
        everyone = result.everyone[0]
        nothing = np.zeros_like(each)
        # f: both_kl = x_k + x_l + s, one_kl = t_l, mirrored one = t_k, none = q
        of_k = np.stack([each, nothing, other, nothing])
        of_l = np.stack([each + everyone, other, nothing, nothing + walk])
        kernel = self._remembered_kernel
        sums = kernel.sum(of_k) + kernel.sum_scaled(of_l)
        return UploadSums(sums[0][:, None], sums[1][:, None])


def _pair_sums(kernel: PairKernel, each: FloatArray, everyone: FloatArray) -> FloatArray:
    """Σ_{k≠l} h_kl (x_k + x_l + s)."""
    return kernel.sum(each) + kernel.sum_scaled(each + everyone)
