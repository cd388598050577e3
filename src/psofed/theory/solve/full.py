"""Any covariances: fixed points are found by GMRES, of all K²D² moments or with those of pairs eliminated.

ρ(F) need not be found to tell whether a stepsize is stable. A map F of covariances to covariances with ρ(F) ≥ 1 has
x = F x + s solved by no covariance if s excites everything: with F's left eigenvector φ, φ·x (1 − ρ) = φ·s > 0. So the
steady state due to the noise alone, which is needed anyway, says whether there is one. It belongs to the map that it
solves, and the maps of the last stepsize are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.theory.maps.eliminated import EliminatedRecursion
from psofed.theory.maps.general import Recursion
from psofed.theory.maps.krylov import SAMPLED_TOLERANCE
from psofed.theory.maps.periodic import PeriodicRecursion
from psofed.theory.metrics import ALONE, NOISE, SteadyState
from psofed.theory.model import Branch
from psofed.theory.moments.level import Level, Sources
from psofed.theory.moments.second import MomentState
from psofed.theory.solve.method import Method, Solve, by_source


class Full(Method):
    """Correlated inputs, masks of any separable kind."""

    needs: ClassVar[frozenset[str]] = frozenset({"separable"})
    # Offsets to sample where each client has its own: for levels, and for ρ(𝓕)
    sample: ClassVar[int] = 32
    radius_sample: ClassVar[int] = 2

    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state, with its standard error where offsets are sampled; the stepsize must be stable."""
        branches = self._branches(self.sample)
        levels = self._by_source(stepsize, branches)
        mean = np.tensordot([branch.weight for branch in branches], levels, axes=1)
        if not self.model.is_sampled:
            return SteadyState.of(mean)
        return SteadyState.of(mean, levels.sum(axis=1).std(axis=0, ddof=1) / np.sqrt(len(levels)))

    def spectral_radius(self, stepsize: float) -> float:
        """ρ(𝓕), the largest over the sampled offsets."""
        with np.errstate(over="ignore", invalid="ignore"):
            branches = self._branches(self.radius_sample)
            # Eigenvectors are not smooth in the clients' variances: all clients are kept (maps.lumps).
            return max(self._recursion(stepsize, branch, False).spectral_radius() for branch in branches)

    def curve(self, stepsize: float, iterations: int) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD over the iterations."""
        total = np.zeros((2, iterations))
        for branch in self._branches(self.sample):
            # Offsets one window apart are the same masks one iteration apart: enumerated offsets leave those out,
            # so every phase is a start; a sample of offsets has them all.
            recursion = self._recursion(stepsize, branch, True)
            starts = range(1 if self.model.is_sampled else max(len(branch.exchanges), 1))
            for start in starts:
                total += np.array(recursion.curve(iterations, start)) * (branch.weight / len(starts))
        return total[0], total[1]

    def _branches(self, count: int) -> tuple[Branch, ...]:
        """Return the cases to average over; `count` sampled ones where each client has its own offset."""
        return self.model.offset_branches(count) if self.model.is_scattered else self.model.branches

    def _is_stable(self, stepsize: float) -> bool:
        if "separable" not in self.model.tags or not np.all(self.model.fleet.noise_variance > 0):
            return super()._is_stable(stepsize)
        return all(
            self._solved(stepsize, branch, False).noise_is_covariance for branch in self.model.branches
        )

    def _by_source(self, stepsize: float, branches: tuple[Branch, ...]) -> FloatArray:
        """Excess and MSD by source, given the offsets of each branch: (N, 4, 2)."""

        def solve(method: Full, branch: Branch) -> Solve:
            return lambda sources: method._solved(stepsize, branch, True).level(sources)

        return np.array(
            [by_source(self.model, solve(self, branch), solve(self.clean, branch)) for branch in branches]
        )

    def _solved(self, stepsize: float, branch: Branch, lumped: bool) -> "_SolvedMap":
        """Return the map of a stepsize and a branch, its clients lumped together if they can be."""
        return self._kept(stepsize, branch, lumped and self.model.can_lump(stepsize))

    @cached_property
    def _kept(self) -> Callable[[float, Branch, bool], "_SolvedMap"]:
        """Make the map of a stepsize and a branch; one for each branch is kept."""
        kept = 1 if self.model.is_scattered else len(self._branches(1))
        tolerance = SAMPLED_TOLERANCE if self.model.is_sampled else None
        return lru_cache(kept)(lambda *which: _SolvedMap(self._recursion(*which), tolerance))

    def _recursion(self, stepsize: float, branch: Branch, lumped: bool) -> PeriodicRecursion[Any, Any]:
        return self.model.recursion(stepsize, branch, lumped)


@dataclass(frozen=True, eq=False)
class _SolvedMap:
    """A recursion that keeps its steady state due to the noise alone."""

    recursion: Any  # a PeriodicRecursion; stability is only asked of one of clients
    tolerance: float | None

    def level(self, sources: Sources) -> FloatArray:
        """Excess and MSD of the steady state, (2,)."""
        level, _ = (
            self._noise if sources == ALONE[NOISE] else self._solver.steady_state(sources, self.tolerance)
        )
        return np.array([level.excess, level.server])

    @cached_property
    def noise_is_covariance(self) -> bool:
        """Whether the steady state due to the noise alone is a covariance, so that the map is stable."""
        try:
            return is_covariance(self.recursion, self._noise[1])
        except PsofedError:  # it did not converge
            return bool(self.recursion.spectral_radius() < 1.0)

    @cached_property
    def _noise(self) -> tuple[Level, Any]:
        return self._solver.steady_state(ALONE[NOISE], self.tolerance)

    @cached_property
    def _solver(self) -> EliminatedRecursion | PeriodicRecursion[Any, Any]:
        recursion = self.recursion
        return EliminatedRecursion(recursion) if EliminatedRecursion.applies(recursion) else recursion


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
    matrix = joint.swapaxes(1, 2).reshape((clients + 1) * size, -1)
    rounding = 1e-6 * float(np.linalg.norm(matrix))
    if not 0.0 < rounding < np.inf:
        return False
    try:
        np.linalg.cholesky(matrix + rounding * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return False
    return True
