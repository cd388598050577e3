"""White inputs, separable masks: pairs are eliminated, and large fleets lumped together.

The steady state comes from the reduced step M(λ) at λ = 1 (:mod:`psofed.theory.maps.reduced`). λ is an eigenvalue of
F if and only if 1 is one of M(λ). How the largest eigenvalue r(λ) of M(λ) tells ρ(F) from λ depends on signs:

1. Where no number of the step is negative, M(λ) is a matrix without negative entries that falls with λ. Then r(λ) < 1
   exactly if ρ(F) < λ, and ρ(F) is the λ with r(λ) = 1 (Perron and Frobenius).
2. An attack that turns or overshoots updates makes entries negative, and r(λ) says nothing for certain. F itself still
   takes covariances to covariances, so its spectral radius is its largest real eigenvalue (Krein and Rutman). Up to
   60 clients it is computed from F.
3. Beyond, F has too many unknowns, and the largest real part of the eigenvalues of M(λ) is taken for r(λ). Of 600
   random systems of a few clients, whose signs matter most, it misjudged two, within 1e-4 of ρ(F).
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import ClassVar

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.maps.general import Recursion
from psofed.theory.maps.reduced import ReducedRecursion
from psofed.theory.metrics import SteadyState
from psofed.theory.moments.level import Sources
from psofed.theory.solve.method import Method, Solve, by_source

_MOST_CLIENTS = 60  # of which all pairs are kept to find ρ(F)
_HOPELESS = 1e50  # μς² beyond which its fourth power is not a number any more


class Reduced(Method):
    """White inputs, separable masks: random ones of any kind, or round-robin with one offset."""

    needs: ClassVar[frozenset[str]] = frozenset({"white", "separable"})

    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state; the stepsize must be stable."""
        return SteadyState.of(by_source(self.model, self._solve(stepsize), self.clean._solve(stepsize)))

    def growth(self, stepsize: float) -> float:
        """Below one if and only if ρ(𝓕) is."""
        with np.errstate(over="ignore", invalid="ignore"):
            return (
                self._reduced_growth(stepsize, 1.0)
                if self._can_trust_reduced(stepsize)
                else self._full_radius(stepsize)
            )

    def spectral_radius(self, stepsize: float) -> float:
        """ρ(𝓕)."""
        with np.errstate(over="ignore", invalid="ignore"):
            if not self._can_trust_reduced(stepsize):
                return self._full_radius(stepsize)
            return find_radius(lambda eigenvalue: self._reduced_growth(stepsize, eigenvalue))

    def curve(self, stepsize: float, iterations: int) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD over the iterations."""
        return self._recursion(stepsize, lumped=True).curve(iterations)

    def _recursion(self, stepsize: float, lumped: bool) -> Recursion:
        (branch,) = self.model.branches
        return self.model.recursion(stepsize, branch, lumped)

    def _solve(self, stepsize: float) -> Solve:
        reduced: list[ReducedRecursion] = []  # all sources share one

        def solve(sources: Sources) -> FloatArray:
            if not reduced:
                reduced.append(ReducedRecursion(self._recursion(stepsize, lumped=True)))
            level = reduced[0].steady_state(sources)[0]
            return np.array([level.excess, level.server])

        return solve

    def _can_trust_reduced(self, stepsize: float) -> bool:
        """Whether no number of the step is negative (uploads, means after the LMS step), or F is too large."""
        nonnegative = self.model.law.corruption.has_no_negative_factor and stepsize * self._widest <= 1.0
        return nonnegative or self.model.drawn.clients > _MOST_CLIENTS

    @cached_property
    def _widest(self) -> float:
        """Largest input variance, of clean or poisoned samples."""
        return max(float(samples.covariance.max()) for _, samples in self.model.mixture.branches)

    def _reduced_growth(self, stepsize: float, eigenvalue: float) -> float:
        return ReducedRecursion(self._recursion(stepsize, lumped=False), eigenvalue).growth()

    def _full_radius(self, stepsize: float) -> float:
        if stepsize * self._widest > _HOPELESS:
            return math.inf
        return self._recursion(stepsize, lumped=False).spectral_radius()


def find_radius(growth: Callable[[float], float]) -> float:
    """Find λ with growth(λ) = 1, which is ρ(𝓕), by secants in log λ; growth falls with λ, about as ρ(𝓕)/λ.

    Examples
    --------
    >>> round(find_radius(lambda eigenvalue: 0.9 / eigenvalue), 9)
    0.9
    """
    before, value_before = 0.0, math.log(growth(1.0))
    now = max(value_before, -0.7) if math.isfinite(value_before) else 0.7
    for _ in range(60):
        raw = growth(math.exp(now))
        if not math.isfinite(raw):
            now = 0.5 * (now + before)  # below the growth of a pair on its own: λ is too small
            continue
        value = math.log(raw)
        if abs(value) < 1e-9 or now == before:
            break
        slope = (value - value_before) / (now - before)
        before, value_before = now, value
        now += min(max(-value / min(slope, -0.2), -0.7), 0.7)
        if abs(now - before) < 1e-9:
            break
    return math.exp(now)
