"""One LMS step on moments: v → z = v − μ x xᵀ (v + e) − μ x ν, for samples y = (w* + e)ᵀx + ν.

With P = E[vvᵀ], m = E[v] and P̂ = E[(v + e)(v + e)ᵀ] = P + m eᵀ + e mᵀ + e eᵀ, client k's own block becomes

    P − μ(R (P + e mᵀ) + (P + m eᵀ) R) + μ² E[xxᵀ P̂ xxᵀ] + μ² σ_ν² R,

with E[xxᵀ A xxᵀ] = 2RAR + R tr(RA) for Gaussian x (Isserlis, the paper's Appendix B) and symmetric A. Blocks of
two different clients, or of server and client, only see means: v → (I − μR) v − μ R e. The noise adds μ²σ_ν²R_k to the
client's own block (the paper's φ_ν, Appendix D). A client that poisons its samples with probability t has a mixture of
two such steps. If the Byzantine set is redrawn, k and l are correlated in whether they do so, which adds Cov(t_k, t_l)
times the product of the differences of the two steps.

μ = ``stepsize``; R, e and σ_ν² of clean and poisoned samples are in ``mixture``; P and m are moments ``v`` and
``first``.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.layout import Entries
from psofed.theory.moments.second import ClientMoments, PairMoments
from psofed.theory.steps.samples import Mixture, SampleLaw


@dataclass(frozen=True, eq=False)
class _Means:
    """The step's effect on means: v → M v − μ r, M = I − μR, averaged over clean and poisoned samples."""

    decay: FloatArray  # E[M_k]: (K,) or (K, D, D)
    push: FloatArray | None  # E[R_k e_k], (K, F)
    swing: FloatArray  # R of poisoned less clean samples
    push_swing: FloatArray | None  # likewise R e


@dataclass(frozen=True, eq=False)
class LmsStep:
    """One LMS step of all clients on moments; white and correlated inputs differ in how R is applied.

    In all methods `first` None leaves out the effect of displacements.

    Parameters
    ----------
    stepsize : float
        μ.
    mixture : Mixture
        The clients' samples; covariances are ς_k², (K,), or R_k, (K, D, D).
    entries : Entries
        Tracked entries: diagonal ones over white inputs, else all.
    small_stepsize : bool
        Drop the μ²𝓗 of (Fmat): the paper's small-stepsize approximation.
    """

    stepsize: float
    mixture: Mixture
    entries: Entries
    small_stepsize: bool = False

    @cached_property
    def means(self) -> _Means:
        """The step's effect on means."""
        branches, zero = self.mixture.branches, np.zeros(())
        covariance = sum(self._scale(weight) * samples.covariance for weight, samples in branches)
        decay = np.asarray(self._identity - self.stepsize * covariance)
        swing = branches[-1][1].covariance - branches[0][1].covariance
        if all(samples.displacement is None for _, samples in branches):
            return _Means(decay, None, swing, None)
        parts = [
            zero if samples.displacement is None else self._times(samples.covariance, samples.displacement)
            for _, samples in branches
        ]
        push = sum(
            self.entries.per_client(weight) * part for (weight, _), part in zip(branches, parts, strict=True)
        )
        return _Means(decay, np.asarray(push), swing, parts[-1] - parts[0])

    def first(self, v: FirstMoments) -> FirstMoments:
        """Step first moments."""
        means = self.means
        push = 0.0 if means.push is None else self.stepsize * means.push
        taking, idle = (self._times(means.decay, x) - push for x in (v.taking, v.idle))
        return FirstMoments(v.server, taking, idle)

    def clients(
        self, v: ClientMoments, noise: float, residual: float = 0.0, first: FirstMoments | None = None
    ) -> ClientMoments:
        """Step server and single clients; `noise`, `residual` scale the two parts of the samples' noise."""
        push = self.means.push if first is not None else None
        if first is None or push is None:
            shift: float | FloatArray = 0.0
        else:
            shift = self.stepsize * self.entries.outer(first.server, push)
        return ClientMoments(
            v.server,
            self._right(v.cross1) - shift,
            self._right(v.cross0) - shift,
            self._own(v.own1, noise, residual, None if first is None else first.taking),
            self._own(v.own0, noise, residual, None if first is None else first.idle),
        )

    def pairs(self, v: PairMoments, first: FirstMoments | None = None) -> PairMoments:
        """Step pairs of different clients; the caller discards the result for k = l."""
        stepped, pushed = v.map(self.decay_pairs), self.pushed_pairs(first)
        return stepped if pushed is None else PairMoments(*map(np.add, stepped, pushed))

    def pushed_pairs(self, first: FirstMoments | None) -> PairMoments | None:
        """Return what displacements add to pairs; None if nothing."""
        if first is None or self.means.push is None:
            return None
        means = ((first.taking, first.taking), (first.taking, first.idle), (first.idle, first.idle))
        blocks = []
        for k, m in means:
            terms = self.pair_pushes(k, m)
            blocks.append(sum(self.entries.outer(x[:, None], y[None, :]) for x, y in terms))
        return PairMoments(*map(np.asarray, blocks))

    def pair_pushes(self, k: FloatArray, m: FloatArray) -> list[tuple[FloatArray, FloatArray]]:
        """Return the effect of displacements on E[z_k z_lᵀ], a list of x_k, y_lᵀ, from means (K, F) before the step."""
        means, mu = self.means, self.stepsize
        assert means.push is not None
        # With M v − r the mean after the step, E[z_k z_lᵀ] gains −M_k v_k r_lᵀ − r_k (M_l v_l − r_l)ᵀ: for the means
        # of M and r with weight 1, and for the differences of poisoned and clean samples with weight Cov(t_k, t_l).
        parts = [(1.0, means.decay, -mu * means.push)]
        if self.mixture.covariance and means.push_swing is not None:
            parts.append((self.mixture.covariance, -mu * means.swing, -mu * means.push_swing))
        terms = []
        for weight, matrix, push in parts:
            kept_k, kept_m = self._times(matrix, k), self._times(matrix, m)
            terms += [(weight * kept_k, push), (weight * push, kept_m + push)]
        return terms

    def decay_pairs(self, blocks: FloatArray) -> FloatArray:
        """E[z_k z_lᵀ] of pairs (K, K, E) without displacements."""
        raise NotImplementedError

    def left(self, blocks: FloatArray, other: FloatArray | None = None) -> FloatArray:
        """E[z_k v_lᵀ] of a client k that learns and one that does not, from E[v_k v_lᵀ] and E[v_l] = `other`."""
        stepped, push = self._left(blocks), self.means.push
        if other is None or push is None:
            return stepped
        return stepped - self.stepsize * self.entries.outer(push[:, None], other[None, :])

    def _displaced(
        self, own: FloatArray, mean: FloatArray | None, displacement: FloatArray | None
    ) -> tuple[FloatArray, FloatArray | None]:
        """P̂, and m eᵀ (None if there is no displacement)."""
        if mean is None or displacement is None:
            return own, None
        outer, flip = self.entries.outer, self.entries.flip
        mixed = outer(mean, displacement)
        return own + mixed + flip(mixed) + outer(displacement, displacement), mixed

    def _scale(self, weight: FloatArray) -> FloatArray:
        raise NotImplementedError

    @property
    def _identity(self) -> float | FloatArray:
        raise NotImplementedError

    def _times(self, matrix: FloatArray, vectors: FloatArray) -> FloatArray:
        raise NotImplementedError

    def _right(self, cross: FloatArray) -> FloatArray:
        raise NotImplementedError

    def _left(self, blocks: FloatArray) -> FloatArray:
        raise NotImplementedError

    def _own(self, own: FloatArray, noise: float, residual: float, mean: FloatArray | None) -> FloatArray:
        raise NotImplementedError


class WhiteLms(LmsStep):
    """LMS on white inputs, R_k = ς_k² I: entries couple only through the trace."""

    @cached_property
    def input_variance(self) -> FloatArray:
        """ς_k², averaged over clean and poisoned samples: what the clients' means decay by."""
        return sum(weight * samples.covariance for weight, samples in self.mixture.branches)  # type: ignore[return-value]

    @cached_property
    def decay_swing(self) -> float:
        """Cov(M_k, M_l): what is added to every pair's decay if the poisoners are redrawn."""
        if self.mixture.covariance == 0.0:
            return 0.0
        return float(self.mixture.covariance * (self.stepsize * self.means.swing[0]) ** 2)

    def pair_decay(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Factor of a pair of clients with (average) input variances `first` and `second`."""
        if self.small_stepsize:
            return np.asarray(1.0 - self.stepsize * (first + second))
        decay = (1.0 - self.stepsize * first) * (1.0 - self.stepsize * second)
        return np.asarray(decay + self.decay_swing)

    def excess(self, own: FloatArray, mean: FloatArray | None = None) -> FloatArray:
        """ς_k² tr(P̂_k), the excess MSE on clean samples, of own blocks and means before the step."""
        clean = self.mixture.clean
        seen, _ = self._displaced(own, mean, clean.displacement)
        return np.asarray(clean.covariance * self.entries.trace(seen))

    @cached_property
    def own_factors(self) -> tuple[FloatArray, FloatArray]:
        """Return (K,) factors a, b of the own block's linear part a P + b tr(P)."""
        keep, trace = (np.zeros_like(self.mixture.clean.covariance) for _ in range(2))
        for weight, samples in self.mixture.branches:
            scaled = self.stepsize * samples.covariance
            if self.small_stepsize:
                keep = keep + weight * (1.0 - 2.0 * scaled)
            else:
                square = self._fourth(samples)
                keep = keep + weight * (1.0 - 2.0 * scaled + 2.0 * square)
                trace = trace + weight * square
        return keep, trace

    def _scale(self, weight: FloatArray) -> FloatArray:
        return weight

    @property
    def _identity(self) -> float | FloatArray:
        return 1.0

    def _times(self, matrix: FloatArray, vectors: FloatArray) -> FloatArray:
        return self.entries.per_client(matrix) * vectors

    def _right(self, cross: FloatArray) -> FloatArray:
        return np.asarray(self.means.decay[:, None] * cross)

    def _left(self, blocks: FloatArray) -> FloatArray:
        return np.asarray(self.means.decay[:, None, None] * blocks)

    def decay_pairs(self, blocks: FloatArray) -> FloatArray:
        """E[z_k z_lᵀ] of pairs (K, K, E) without displacements."""
        factor = self.pair_decay(self.input_variance[:, None], self.input_variance[None, :])
        return np.asarray(factor[:, :, None] * blocks)

    def _own(self, own: FloatArray, noise: float, residual: float, mean: FloatArray | None) -> FloatArray:
        keep, trace = self.own_factors
        total = keep[:, None] * own + trace[:, None] * self.entries.trace_over(own)
        for weight, samples in self.mixture.branches:
            level = noise * samples.noise_variance + residual * samples.residual_variance
            total = total + (weight * self.stepsize**2 * samples.covariance * level)[:, None]
            seen, mixed = self._displaced(np.zeros_like(own), mean, samples.displacement)
            if mixed is not None:
                scaled = self.stepsize * samples.covariance[:, None]
                added = 2.0 * seen + self.entries.trace_over(seen)
                square = self._fourth(samples)[:, None]
                total = total + weight[:, None] * (square * added - 2.0 * scaled * mixed)
        return np.asarray(total)

    def _fourth(self, samples: SampleLaw) -> FloatArray:
        """τ in μ² E[xxᵀ A xxᵀ] = τ (2A + I tr A)."""
        square = samples.covariance**2 if samples.square is None else samples.square
        return np.asarray(self.stepsize**2 * square)


class CorrelatedLms(LmsStep):
    """LMS on inputs with any covariances R_k; all entries of every block are tracked."""

    def excess(self, own: FloatArray, mean: FloatArray | None = None) -> FloatArray:
        """tr(R_k P̂_k), the excess MSE on clean samples, of own blocks and means before the step."""
        clean = self.mixture.clean
        seen, _ = self._displaced(own, mean, clean.displacement)
        return np.asarray(np.einsum("kij,kji->k", clean.covariance, self._square(seen)))

    def _scale(self, weight: FloatArray) -> FloatArray:
        return weight[:, None, None]

    @property
    def _identity(self) -> float | FloatArray:
        return np.eye(self.entries.dimension)

    def _times(self, matrix: FloatArray, vectors: FloatArray) -> FloatArray:
        return np.asarray((matrix @ vectors[..., None])[..., 0])

    def _right(self, cross: FloatArray) -> FloatArray:
        return _flat(self._square(cross) @ self.means.decay)

    def _left(self, blocks: FloatArray) -> FloatArray:
        return _flat(self.means.decay[:, None] @ self._square(blocks))

    def decay_pairs(self, blocks: FloatArray) -> FloatArray:
        """E[z_k z_lᵀ] of pairs (K, K, E) without displacements."""
        p = self._square(blocks)
        return _flat(sum((left[:, None] @ p @ right[None, :] for left, right in self._sides), np.zeros(())))

    def sum_decayed(self, weight: FloatArray, blocks: FloatArray) -> FloatArray:
        """Σ_k weight_k E[z_k z_lᵀ], (K, E): the sum over :meth:`decay_pairs` without keeping its pairs."""
        p, total = self._square(blocks), np.zeros(())
        for left, right in self._sides:
            summed = np.tensordot(weight[:, None, None] * left, p, axes=((0, 2), (0, 2)))
            total = total + summed.swapaxes(0, 1) @ right
        return _flat(total)

    def decay_same(self, blocks: FloatArray) -> FloatArray:
        """Return :meth:`decay_pairs` of two clients alike, blocks (K, E)."""
        p = self._square(blocks)
        return _flat(sum((left @ p @ right for left, right in self._sides), np.zeros(())))

    @property
    def cross_matrices(self) -> FloatArray:
        """The step of E[g v_kᵀ] as matrices on flattened blocks, (K, D², D²)."""
        return np.asarray(np.kron(np.eye(self.entries.dimension), self.means.decay.swapaxes(1, 2)))

    @property
    def own_matrices(self) -> FloatArray:
        """The step of E[v_k v_kᵀ] without its sources as matrices on the symmetric part of flattened blocks."""
        size, unit = self.entries.size, np.eye(self.entries.size)
        shape = (self.mixture.clean.noise_variance.size, size)
        blocks = (np.broadcast_to(block, shape) for block in 0.5 * (unit + self.entries.flip(unit)))
        return np.stack([self._own(block, 0.0, 0.0, None) for block in blocks], axis=-1)

    def pair_matrices(self, k: NDArray[np.intp], m: NDArray[np.intp]) -> FloatArray:
        """Return :meth:`decay_pairs` of the pairs (k, m) as matrices on flattened blocks, (N, D², D²)."""
        total = np.zeros(())
        for left, right in self._sides:
            total = total + left[k][:, :, None, :, None] * right[m][:, None, :, None, :]
        return np.asarray(total.reshape(len(k), self.entries.size, self.entries.size))

    @cached_property
    def _sides(self) -> list[tuple[FloatArray, FloatArray]]:
        """Matrices (K, D, D) such that E[z_k z_lᵀ] is the sum of left_k E[v_k v_lᵀ] right_l."""
        decay = self.means.decay
        if self.small_stepsize:
            scaled = self.stepsize * self.mixture.clean.covariance
            eye = np.broadcast_to(self._identity, scaled.shape)
            return [(decay, eye), (eye, -scaled)]
        swing = self.stepsize * self.means.swing
        return [(decay, decay)] + [(self.mixture.covariance * swing, swing)] * bool(self.mixture.covariance)

    def _own(self, own: FloatArray, noise: float, residual: float, mean: FloatArray | None) -> FloatArray:
        total: FloatArray | float = 0.0
        for weight, samples in self.mixture.branches:
            seen, mixed = self._displaced(own, mean, samples.displacement)
            p, scaled = self._square(own), self.stepsize * samples.covariance
            met = p if mixed is None else p + self._square(mixed).swapaxes(-1, -2)  # E[(v + e) vᵀ]
            left = scaled @ met
            step = p - left - left.swapaxes(-1, -2)
            if not self.small_stepsize:
                step = step + self._fourth(samples, self._square(seen))
            added = (noise * samples.noise_variance)[:, None, None] * samples.covariance
            if samples.weighted_noise is not None:
                added = noise * samples.weighted_noise
            added = added + (residual * samples.residual_variance)[:, None, None] * samples.covariance
            step = step + self.stepsize**2 * added
            total = total + weight[:, None, None] * step
        return _flat(np.asarray(total))

    def _fourth(self, samples: SampleLaw, p: FloatArray) -> FloatArray:
        """μ² E[xxᵀ P xxᵀ]."""
        if samples.fourth is not None:
            flat = np.einsum("kab,kb->ka", samples.fourth, _flat(p))
            return np.asarray(self.stepsize**2 * self._square(flat))
        scaled = self.stepsize * samples.covariance
        left = scaled @ p
        trace = np.trace(left, axis1=1, axis2=2)[:, None, None]
        return np.asarray(2.0 * left @ scaled + scaled * trace)

    def _square(self, blocks: FloatArray) -> FloatArray:
        return blocks.reshape(*blocks.shape[:-1], self.entries.dimension, self.entries.dimension)


def lms_of(
    mixture: Mixture, stepsize: float, entries: Entries, small_stepsize: bool = False
) -> WhiteLms | CorrelatedLms:
    """Return the LMS step of a fleet on the tracked entries."""
    kind = CorrelatedLms if entries.is_full else WhiteLms
    return kind(stepsize, mixture, entries, small_stepsize)


def _flat(blocks: FloatArray) -> FloatArray:
    return blocks.reshape(*blocks.shape[:-2], -1)
