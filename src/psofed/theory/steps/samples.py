"""SampleLaw that clients learn from: clean ones, and those that an attacker has poisoned.

A sample is y = (w* + e)ᵀx + ν with Gaussian x of covariance R and noise ν independent of it. e is the distance of the
client's own target from the common one, 0 in most fleets. A poisoned sample (x + ξ, φ y), ξ ~ N(0, v I), is of the same
kind. Given x' = x + ξ, the mean of φ y is φ (w* + d)ᵀ R R'⁻¹ x' with R' = R + v I, and since all is Gaussian the
remainder is independent of x'. So a poisoned sample has

    covariance    R',
    displacement  e' = φ R'⁻¹ R (w* + d) − w*,
    noise         φ² (σ_ν² + (w* + d)ᵀ (R − R R'⁻¹ R) (w* + d)).

φ = ``poison.label``, v = ``poison.input_noise_variance``, d = ``fleet.target_offsets``, w* = ``fleet.target``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.fleet import Fleet
from psofed.parts.affine import PoisonedSamples
from psofed.theory.moments.layout import Entries
from psofed.theory.steps.corruption import AttackChances


@dataclass(frozen=True, eq=False)
class SampleLaw:
    """The law of one kind of samples, for every client.

    Attributes
    ----------
    covariance : array (K,) over white inputs, else (K, D, D)
        ς_k² or R_k.
    noise_variance : array (K,)
        Contribution of the observation noise: σ_νk², times φ² if poisoned.
    residual_variance : array (K,)
        Contribution of poisoned inputs, (w* + d)ᵀ (R − R R'⁻¹ R) (w* + d), times φ².
    displacement : array (K, F) or None
        e_k; None if all are zero.
    fourth : array (K, D², D²) or None
        The matrix of A → E[xxᵀ A xxᵀ] where it was measured; None for Gaussian inputs.
    weighted_noise : array (K, D, D) or None
        E[ν² xxᵀ] where it was measured; None for noise independent of the inputs, σ_ν² R.
    square : array (K,) or None
        τ in E[xxᵀ A xxᵀ] = τ (2A + I tr A) over white inputs; None for Gaussian ones, ς⁴.
    """

    covariance: FloatArray
    noise_variance: FloatArray
    residual_variance: FloatArray
    displacement: FloatArray | None = None
    fourth: FloatArray | None = None
    weighted_noise: FloatArray | None = None
    square: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Mixture:
    """Clean samples and, for clients that poison theirs, poisoned ones.

    Attributes
    ----------
    clean : SampleLaw
    poisoned : SampleLaw or None
    attackers : AttackChances or None
        How likely each client is to learn from a poisoned sample.
    """

    clean: SampleLaw
    poisoned: SampleLaw | None = None
    attackers: AttackChances | None = None

    @cached_property
    def branches(self) -> Sequence[tuple[FloatArray, SampleLaw]]:
        """Probabilities (K,) and samples."""
        if self.poisoned is None or self.attackers is None:
            return ((np.ones_like(self.clean.noise_variance), self.clean),)
        chance = self.attackers.chance
        return ((1.0 - chance, self.clean), (chance, self.poisoned))

    @property
    def covariance(self) -> float:
        """Cov(t_k, t_l) of two clients that poison their samples."""
        return self.attackers.covariance if self.poisoned is not None and self.attackers is not None else 0.0


def clean_samples(fleet: Fleet, entries: Entries) -> SampleLaw:
    """Return the law of the samples as they are drawn."""
    covariance = fleet.covariances() if entries.is_full else fleet.input_variance
    displacement = None if fleet.target_offsets is None else entries.vector(fleet.target_offsets)
    nothing = np.zeros_like(fleet.noise_variance)
    measured = fleet.fourth_moments, fleet.weighted_noise
    return SampleLaw(covariance, fleet.noise_variance, nothing, displacement, *measured)


def poisoned_samples(fleet: Fleet, entries: Entries, poison: PoisonedSamples) -> SampleLaw:
    """Return the law of the samples that attackers learn from.

    Examples
    --------
    >>> from psofed import Data, Scenario, draw_fleet
    >>> data = Data(input_variance=0.5, noise_variance=0.1)
    >>> fleet = draw_fleet(Scenario(num_clients=1, dimension=1, num_participants=1, data=data))
    >>> found = poisoned_samples(fleet, Entries.white(1, 1), PoisonedSamples(input_noise_variance=0.5))
    >>> found.displacement.ravel(), found.residual_variance  # half of w* = 1 is left to be learned
    (array([-0.5]), array([0.25]))
    """
    label, noise = poison.label, poison.input_noise_variance
    targets = np.broadcast_to(fleet.target, (fleet.noise_variance.size, fleet.target.size))
    if fleet.target_offsets is not None:
        targets = targets + fleet.target_offsets
    if entries.is_full:
        clean = fleet.covariances()
        covariance = clean + noise * np.eye(fleet.target.size)
        # Without input noise R' = R, and the target itself is what is learned, even where R is singular.
        learned = targets
        if noise > 0:
            learned = np.linalg.solve(covariance, np.einsum("kij,kj->ki", clean, targets)[..., None])[..., 0]
        lost = np.einsum("ki,kij,kj->k", targets, clean, targets - learned)
    else:
        clean = fleet.input_variance
        covariance = clean + noise
        ratio = np.divide(clean, covariance, out=np.ones_like(clean), where=covariance > 0)
        learned = ratio[:, None] * targets
        lost = clean * (1.0 - ratio) * (targets**2).sum(axis=1)
    displacement = entries.vector(label * learned - fleet.target)
    # Noise on measured inputs is refused (:mod:`psofed.theory.coverage`), so measured moments stay as they are.
    noise_variance, weighted = label**2 * fleet.noise_variance, fleet.weighted_noise
    weighted = None if weighted is None else label**2 * weighted
    return SampleLaw(
        covariance, noise_variance, label**2 * lost, displacement, fleet.fourth_moments, weighted
    )
