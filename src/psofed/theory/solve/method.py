"""The interface of methods: steady state, stability, spectral radius and learning curve of one model at any stepsize.

The steady state is x = F x + s, stable if and only if ρ(F) < 1. F takes covariances to covariances, so ρ(F) is one of
its eigenvalues (Krein and Rutman). A stepsize below the contraction bound is stable, and one at which a client diverges
by itself is unstable; both are checked first. By source, the steady state solves for each part
of s alone, without the attack; the attack's term is what it adds to the sum of these, so that terms add up.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from psofed.common.types import FloatArray
from psofed.theory.metrics import ALONE, ATTACK, SteadyState
from psofed.theory.model import TheoryModel
from psofed.theory.moments.level import Level, Sources
from psofed.theory.stability import contraction_bound, lone_growth

Solve = Callable[[Sources], FloatArray]


@dataclass(frozen=True, eq=False)
class Method(ABC):
    """A way to solve one model at any stepsize.

    Parameters
    ----------
    model : TheoryModel
        Its tags must contain those the method needs.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    model: TheoryModel

    @abstractmethod
    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state; the stepsize must be stable."""

    def rough_level(self, stepsize: float) -> Level:
        """Excess and MSD at a stable stepsize, precise enough to compare stepsizes."""
        return self.steady_state(stepsize).total

    @abstractmethod
    def spectral_radius(self, stepsize: float) -> float:
        """ρ(𝓕): the factor by which the influence of the start shrinks per iteration, in the end."""

    @abstractmethod
    def curve(self, stepsize: float, iterations: int) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD over the iterations."""

    def num_moments(self, stepsize: float) -> int:
        """Count the numbers that one iteration of a curve computes."""
        model = self.model
        return 3 * model.recursion(stepsize, model.branches[0]).law.rows ** 2 * model.entries.size

    def growth(self, stepsize: float) -> float:
        """Below one if and only if ρ(𝓕) is."""
        return self.spectral_radius(stepsize)

    def is_stable(self, stepsize: float) -> bool:
        """Whether all second moments stay bounded."""
        model = self.model
        if model.is_bounded and stepsize < contraction_bound(model.fleet):
            return True
        if model.is_contraction:
            # With correlated inputs, proving instability is far cheaper than looking for a steady state.
            alone = 1.0 - model.scenario.participation_probability
            is_quick = model.theory == "exact" and not model.fleet.is_white
            if is_quick and alone * lone_growth(model.fleet, stepsize) > 1.0:
                return False
        with np.errstate(over="ignore", invalid="ignore"):  # far beyond the limit moments grow to infinity
            return self._is_stable(stepsize)

    def check_answer(self, stepsize: float) -> None:  # noqa: B027, most methods have nothing to refuse
        """Refuse a stable stepsize whose steady state contradicts what the theory assumes."""

    def _is_stable(self, stepsize: float) -> bool:
        return self.growth(stepsize) < 1.0

    @cached_property
    def clean(self) -> Self:
        """The same method for the model without the attack, which has the same tags."""
        return self if self.model.clean is self.model else type(self)(self.model.clean)


def by_source(model: TheoryModel, attacked: Solve, clean: Solve) -> FloatArray:
    """Solve for each source: excess and MSD, (…, 4, 2), rows as in :data:`~psofed.theory.metrics.ALONE`.

    `attacked` and `clean` solve the model and the same without its attack for given sources, (…, 2).
    """
    # An additive attack leaves the linear part as it is: one solution of the model serves both.
    base = attacked if model.is_additive else clean
    present = (True, False, model.walk > 0, model.clean.has_direction)
    rows = [base(sources) if there else None for sources, there in zip(ALONE, present, strict=True)]
    levels = np.stack([np.zeros_like(rows[0]) if row is None else row for row in rows], axis=-2)
    if model.is_additive:
        levels[..., ATTACK, :] = attacked(ALONE[ATTACK])
    elif model.statement is not None:
        levels[..., ATTACK, :] = attacked(Sources()) - levels.sum(axis=-2)
    return levels
