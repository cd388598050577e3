"""What one LMS step does to second moments: v → z = (I − μ x xᵀ) v − μ x ν, for Gaussian x.

Client k's own block takes E[(I − μxxᵀ) P (I − μxxᵀ)] = P − μ(RP + PR) + μ²(2RPR + R tr(RP)) (Isserlis, the
paper's Appendix B); blocks of two different clients, or of server and client, only means I − μR_k. The noise
adds μ²σ_ν²R_k to the client's own block (the paper's φ_ν, Appendix D).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from psofed.common.types import FloatArray
from psofed.fleet import Fleet
from psofed.theory.moments import ClientMoments, Entries, PairMoments


class LmsStep(Protocol):
    """One LMS step of all clients, acting on moments."""

    def clients(self, v: ClientMoments, noise: float) -> ClientMoments:
        """Step server and single clients; `noise` scales the observation noise (1, or 0 for the linear part)."""

    def pairs(self, v: PairMoments) -> PairMoments:
        """Step pairs of different clients."""

    def excess(self, own: FloatArray) -> FloatArray:
        """tr(R_k P_k), the excess MSE of every client with own block P_k before the step."""


@dataclass(frozen=True, eq=False)
class WhiteLms:
    """LMS on white inputs, R_k = ς_k² I: entries couple only through the trace.

    Parameters
    ----------
    stepsize : float
        μ.
    input_variance, noise_variance : array (K,)
        ς_k², σ_νk².
    entries : Entries
        Diagonal entries that are tracked.
    small_stepsize : bool
        Drop the μ²𝓗 of (Fmat): the paper's small-stepsize approximation.
    """

    stepsize: float
    input_variance: FloatArray
    noise_variance: FloatArray
    entries: Entries
    small_stepsize: bool = False

    @property
    def decay(self) -> FloatArray:
        """1 − μς_k², shape (K,)."""
        return 1.0 - self.stepsize * self.input_variance

    def pair_decay(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """Factor of a pair of clients with input variances `first` and `second`."""
        if self.small_stepsize:
            return np.asarray(1.0 - self.stepsize * (first + second))
        return np.asarray((1.0 - self.stepsize * first) * (1.0 - self.stepsize * second))

    def clients(self, v: ClientMoments, noise: float) -> ClientMoments:
        """Step server and single clients."""
        decay = self.decay[:, None]
        added = noise * (self.stepsize**2 * self.input_variance * self.noise_variance)[:, None]
        return ClientMoments(
            v.server, decay * v.cross1, decay * v.cross0, self._own(v.own1) + added, self._own(v.own0) + added
        )

    def pairs(self, v: PairMoments) -> PairMoments:
        """Step pairs of different clients."""
        factor = self.pair_decay(self.input_variance[:, None], self.input_variance[None, :])[:, :, None]
        return PairMoments(factor * v.both, factor * v.one, factor * v.none)

    def excess(self, own: FloatArray) -> FloatArray:
        """ς_k² tr(P_k)."""
        return np.asarray(self.input_variance * self.entries.trace(own))

    def _own(self, own: FloatArray) -> FloatArray:
        scaled = self.stepsize * self.input_variance[:, None]
        if self.small_stepsize:
            return np.asarray((1.0 - 2.0 * scaled) * own)
        return (1.0 - 2.0 * scaled + 2.0 * scaled**2) * own + scaled**2 * self.entries.trace(own)[:, None]


@dataclass(frozen=True, eq=False)
class CorrelatedLms:
    """LMS on inputs with any covariances R_k.

    Parameters
    ----------
    stepsize : float
        μ.
    covariances : array (K, D, D)
        R_k.
    noise_variance : array (K,)
        σ_νk².
    small_stepsize : bool
        Drop the μ²𝓗 of (Fmat): the paper's small-stepsize approximation.
    """

    stepsize: float
    covariances: FloatArray
    noise_variance: FloatArray
    small_stepsize: bool = False

    def clients(self, v: ClientMoments, noise: float) -> ClientMoments:
        """Step server and single clients."""
        decay = self._decay
        added = noise * self.stepsize**2 * self.noise_variance[:, None, None] * self.covariances

        def cross(blocks: FloatArray) -> FloatArray:
            return _flat(_square(blocks, self._dimension) @ decay)

        def own(blocks: FloatArray) -> FloatArray:
            return _flat(self._own(_square(blocks, self._dimension)) + added)

        return ClientMoments(v.server, cross(v.cross1), cross(v.cross0), own(v.own1), own(v.own0))

    def pairs(self, v: PairMoments) -> PairMoments:
        """Step pairs of different clients."""
        return PairMoments(self._pairs(v.both), self._pairs(v.one), self._pairs(v.none))

    def excess(self, own: FloatArray) -> FloatArray:
        """tr(R_k P_k)."""
        return np.asarray(np.einsum("kij,kji->k", self.covariances, _square(own, self._dimension)))

    @property
    def _dimension(self) -> int:
        return int(self.covariances.shape[-1])

    @property
    def _decay(self) -> FloatArray:
        return np.asarray(np.eye(self._dimension) - self.stepsize * self.covariances)

    def _pairs(self, blocks: FloatArray) -> FloatArray:
        p = _square(blocks, self._dimension)
        if self.small_stepsize:
            scaled = self.stepsize * self.covariances
            return _flat(p - scaled[:, None] @ p - p @ scaled[None, :])
        decay = self._decay
        return _flat(decay[:, None] @ p @ decay[None, :])

    def _own(self, p: FloatArray) -> FloatArray:
        scaled = self.stepsize * self.covariances
        left = scaled @ p
        first_order = p - left - p @ scaled
        if self.small_stepsize:
            return np.asarray(first_order)
        trace = np.trace(left, axis1=1, axis2=2)[:, None, None]
        return np.asarray(first_order + 2.0 * left @ scaled + scaled * trace)


def lms_of(
    fleet: Fleet, stepsize: float, entries: Entries, small_stepsize: bool = False
) -> WhiteLms | CorrelatedLms:
    """Return the LMS step of a fleet on the tracked entries."""
    if entries.is_full:
        return CorrelatedLms(stepsize, fleet.covariances(), fleet.noise_variance, small_stepsize)
    return WhiteLms(stepsize, fleet.input_variance, fleet.noise_variance, entries, small_stepsize)


def _square(blocks: FloatArray, dimension: int) -> FloatArray:
    return blocks.reshape(*blocks.shape[:-1], dimension, dimension)


def _flat(blocks: FloatArray) -> FloatArray:
    return blocks.reshape(*blocks.shape[:-2], -1)
