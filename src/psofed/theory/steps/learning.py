"""The learner's step on moments: LMS with any stepsizes, leaky LMS, and normalised LMS over white inputs.

All are an LMS step with stepsize 1 on rescaled samples, times a_k, plus b_k: z = a (v − x'x'ᵀ(v + e) − x'ν') + b.

========= ======================================= ============ ============ ======
learner   E[x'x'ᵀ]                                a            b            of
========= ======================================= ============ ============ ======
LMS       μ_k R_k                                 1            0
leaky LMS (μ_k/a_k) R_k                           1 − μ_k γ    μ_k γ w*
NLMS      μ_k e₁/D,  E[x'x'ᵀPx'x'ᵀ] = τ(2P + I tr P) 1         0            white x
========= ======================================= ============ ============ ======

NLMS divides by ε + ‖x‖², and R = ‖x‖² ~ ς²χ²_D is independent of the direction of x, which is uniform. So with
e₁ = E[R/(ε + R)], e₂ = E[R²/(ε + R)²] and e₃ = E[R/(ε + R)²], τ = μ² e₂/(D(D + 2)) and the noise adds μ² σ² e₃/D. The
expectations are integrals over u = log R, smooth and falling off at both ends, for which the trapezoidal rule converges
exponentially.
"""

from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.moments.first import FirstMoments
from psofed.theory.moments.layout import Entries
from psofed.theory.moments.level import Sources
from psofed.theory.moments.second import ClientMoments, MomentState, PairMoments
from psofed.theory.steps.lms import CorrelatedLms, WhiteLms
from psofed.theory.steps.samples import SampleLaw


@dataclass(frozen=True, eq=False)
class LearningStep:
    """The step of all clients.

    Attributes
    ----------
    lms : WhiteLms or CorrelatedLms
        LMS with stepsize 1 on the rescaled samples.
    entries : Entries
    keep : array (K,) or None
        a_k; None if all are 1.
    push : array (K, F) or None
        b_k; None if all are 0.
    """

    lms: WhiteLms | CorrelatedLms
    entries: Entries
    keep: FloatArray | None = None
    push: FloatArray | None = None

    def first(self, v: FirstMoments) -> FirstMoments:
        """Step first moments."""
        z = self._kept(self.lms.first(v))
        if self.push is None:
            return z
        return FirstMoments(z.server, z.taking + self.push, z.idle + self.push)

    def moments(
        self, v: MomentState, sources: Sources, first: FirstMoments | None
    ) -> tuple[ClientMoments, PairMoments]:
        """Step second moments; pairs of a client with itself are not used."""
        z = self.lms.clients(v.clients, sources.noise, sources.attack, first)
        pairs = self.lms.pairs(v.pairs, first)
        if self.keep is not None:
            a = self.keep[:, None]
            z = ClientMoments(z.server, a * z.cross1, a * z.cross0, a**2 * z.own1, a**2 * z.own0)
            pairs = pairs.map(lambda block: a[:, None] * a[None, :] * block)
        if self.push is None or first is None:
            return z, pairs
        means, b = self._kept(self.lms.first(first)), self.push
        cross = self.entries.outer(first.server, b)
        own1, own0 = (x + self._gain(m, b) for x, m in ((z.own1, means.taking), (z.own0, means.idle)))
        z = ClientMoments(z.server, z.cross1 + cross, z.cross0 + cross, own1, own0)
        sides = ((means.taking, means.taking), (means.taking, means.idle), (means.idle, means.idle))
        return z, PairMoments(*(x + self._pair_gain(k, m, b) for x, (k, m) in zip(pairs, sides, strict=True)))

    def half(self, block: FloatArray, mean: FloatArray | None, other: FloatArray | None) -> FloatArray:
        """E[z_k v_lᵀ] of k that learns and l that does not, from E[v_k v_lᵀ] (K, K, E) and means (K, F)."""
        z = self.lms.left(block, other)
        if self.keep is not None:
            z = self.keep[:, None, None] * z
        if self.push is None or mean is None or other is None:
            return z
        return z + self.entries.outer(self.push[:, None], other[None, :])

    def _kept(self, z: FirstMoments) -> FirstMoments:
        if self.keep is None:
            return z
        a = self.entries.per_client(self.keep)
        return FirstMoments(z.server, a * z.taking, a * z.idle)

    def _gain(self, mean: FloatArray, push: FloatArray) -> FloatArray:
        """Return the gain of E[z zᵀ] from b: m bᵀ + b mᵀ + b bᵀ."""
        mixed = self.entries.outer(mean, push)
        return np.asarray(mixed + self.entries.flip(mixed) + self.entries.outer(push, push))

    def _pair_gain(self, k: FloatArray, m: FloatArray, push: FloatArray) -> FloatArray:
        """Return the gain of E[z_k z_lᵀ] from b: m_k b_lᵀ + b_k (m_l + b_l)ᵀ."""
        outer = self.entries.outer
        return np.asarray(outer(k[:, None], push[None, :]) + outer(push[:, None], (m + push)[None, :]))


def rescaled(samples: SampleLaw, factor: FloatArray) -> SampleLaw:
    """Return the samples whose LMS step with stepsize 1 is that of `samples` with stepsizes `factor` (K,)."""
    shaped = factor.reshape(-1, *(1,) * (samples.covariance.ndim - 1))
    square = (factor**2)[:, None, None]
    return SampleLaw(
        shaped * samples.covariance,
        factor * samples.noise_variance,
        factor * samples.residual_variance,
        samples.displacement,
        None if samples.fourth is None else square * samples.fourth,
        None if samples.weighted_noise is None else square * samples.weighted_noise,
    )


def normalised(samples: SampleLaw, stepsizes: FloatArray, regularisation: float, dimension: int) -> SampleLaw:
    """Return the samples whose LMS step with stepsize 1 is NLMS on white `samples`."""
    e1, e2, e3 = normalised_moments(samples.covariance, regularisation, dimension)
    factor = stepsizes * e3 / np.where(e1 > 0.0, e1, 1.0)  # inputs that are always 0 teach nothing
    return SampleLaw(
        stepsizes * e1 / dimension,
        factor * samples.noise_variance,
        factor * samples.residual_variance,
        samples.displacement,
        square=stepsizes**2 * e2 / (dimension * (dimension + 2)),
    )


def normalised_moments(variance: FloatArray, regularisation: float, dimension: int) -> FloatArray:
    """Return e₁, e₂ and e₃ for input variances ς² (K,), an array (3, K).

    Examples
    --------
    >>> normalised_moments(np.array([0.5]), 0.0, 4).ravel().round(9).tolist()  # e₃ = 1/(ς²(D − 2))
    [1.0, 1.0, 1.0]
    """
    from scipy.special import gammaln

    half = dimension / 2.0
    u = np.arange(-80.0 / min(half, 2.0), 6.0, 0.02)
    # R/(2ς²) = eᵘ has a gamma distribution.
    density = 0.02 * np.exp(half * u - np.exp(u) - gammaln(half))
    power = 2.0 * variance[:, None] * np.exp(u)
    inverse = np.divide(1.0, regularisation + power, out=np.zeros_like(power), where=power > 0.0)
    share = power * inverse
    return np.stack([share @ density, share**2 @ density, (share * inverse) @ density])
