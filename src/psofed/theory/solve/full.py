"""Any covariances: all K²D² moments are kept, and fixed points found by GMRES.

ρ(F) need not be found to tell whether a stepsize is stable. A map F of covariances to covariances with ρ(F) ≥ 1 has
x = F x + s solved by no covariance if s excites everything: with F's left eigenvector φ, φ·x (1 − ρ) = φ·s > 0. So the
steady state due to the noise alone, which is needed anyway, says whether there is one. It belongs to the map that it
solves, and the maps of the last stepsize are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.theory.maps.general import Recursion
from psofed.theory.metrics import ALONE, NOISE, SteadyState
from psofed.theory.model import Branch
from psofed.theory.moments.level import Level, Sources
from psofed.theory.moments.second import MomentState
from psofed.theory.solve.method import Method, by_source


class Full(Method):
    """Correlated inputs, masks of any separable kind."""

    needs: ClassVar[frozenset[str]] = frozenset({"separable"})

    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state; the stepsize must be stable."""
        weights = [branch.weight for branch in self.model.branches]
        return SteadyState.of(np.tensordot(weights, self._by_source(stepsize, self.model.branches), axes=1))

    def spectral_radius(self, stepsize: float) -> float:
        """ρ(𝓕)."""
        with np.errstate(over="ignore", invalid="ignore"):
            recursions = (self._recursion(stepsize, branch) for branch in self.model.branches)
            return max(recursion.spectral_radius() for recursion in recursions)

    def curve(self, stepsize: float, iterations: int) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD over the iterations."""
        return self._curve(stepsize, iterations, self.model.branches)

    def _is_stable(self, stepsize: float) -> bool:
        if not np.all(self.model.fleet.noise_variance > 0):
            return super()._is_stable(stepsize)
        return all(self._solved(stepsize, branch).noise_is_covariance for branch in self.model.branches)

    def _curve(
        self, stepsize: float, iterations: int, branches: tuple[Branch, ...]
    ) -> tuple[FloatArray, FloatArray]:
        total = np.zeros((2, iterations))
        for branch in branches:
            # Offsets one window apart are the same masks one iteration apart: enumerated offsets leave those out,
            # so every phase is a start; a sample of offsets has them all.
            starts = range(1 if self.model.is_sampled else len(branch.exchanges))
            recursion = self._recursion(stepsize, branch)
            for start in starts:
                total += np.array(recursion.curve(iterations, start)) * (branch.weight / len(starts))
        return total[0], total[1]

    def _by_source(self, stepsize: float, branches: tuple[Branch, ...]) -> FloatArray:
        """Excess and MSD by source, given the offsets of each branch: (N, 4, 2)."""
        return np.array(
            [
                by_source(
                    self.model,
                    lambda sources, b=branch: self._solved(stepsize, b).level(sources),  # type: ignore[misc]
                    lambda sources, b=branch: self.clean._solved(stepsize, b).level(sources),  # type: ignore[misc]
                )
                for branch in branches
            ]
        )

    def _recursion(self, stepsize: float, branch: Branch) -> Recursion:
        return self.model.recursion(stepsize, branch)

    @cached_property
    def _solved(self) -> Callable[[float, Branch], "_SolvedMap"]:
        """Return the map of a stepsize and a branch; one for each branch is kept."""
        kept = 1 if self.model.is_scattered else len(self.model.branches)
        return lru_cache(kept)(lambda stepsize, branch: _SolvedMap(self._recursion(stepsize, branch)))


@dataclass(frozen=True, eq=False)
class _SolvedMap:
    """A recursion that keeps its steady state due to the noise alone."""

    recursion: Recursion

    def level(self, sources: Sources) -> FloatArray:
        """Excess and MSD of the steady state, (2,)."""
        level, _ = self._noise if sources == ALONE[NOISE] else self.recursion.steady_state(sources)
        return np.array([level.excess, level.server])

    @cached_property
    def noise_is_covariance(self) -> bool:
        """Whether the steady state due to the noise alone is a covariance, so that the map is stable."""
        try:
            return is_covariance(self.recursion, self._noise[1])
        except PsofedError:  # it did not converge
            return self.recursion.spectral_radius() < 1.0

    @cached_property
    def _noise(self) -> tuple[Level, MomentState]:
        return self.recursion.steady_state(ALONE[NOISE])


def is_covariance(recursion: Recursion, state: MomentState) -> bool:
    """Whether the average moments of server and clients are a covariance matrix, to rounding."""
    clients, size, drawn = recursion.drawn.clients, recursion.entries.dimension, recursion.drawn
    v = state.clients.mixed(drawn)
    joint = np.empty((clients + 1, clients + 1, size, size))
    shape = (size, size)
    joint[0, 0] = v.server.reshape(shape)
    joint[0, 1:] = v.cross1.reshape(-1, *shape)
    joint[1:, 0] = joint[0, 1:].swapaxes(-1, -2)
    joint[1:, 1:] = state.pairs.average(drawn, recursion.entries).reshape(clients, clients, *shape)
    k = np.arange(clients)
    joint[1 + k, 1 + k] = v.own1.reshape(-1, *shape)
    values = np.linalg.eigvalsh(joint.swapaxes(1, 2).reshape((clients + 1) * size, -1))
    return bool(np.isfinite(values).all() and values[0] >= -1e-6 * values[-1] and values[-1] > 0)
