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
        model = self.model
        if model.is_opened or not np.all(model.fleet.noise_variance > 0):
            return super()._is_stable(stepsize)
        branches = self._branches(self.radius_sample)
        if model.is_scattered:  # levels are solved to too few digits
            maps = (_SolvedMap(self._recursion(stepsize, branch, False), None) for branch in branches)
            return all(one.is_stable for one in maps)
        # Clients lumped together nearly always tell, and their solution serves the steady state.
        for lumped in (True, False) if model.can_lump(stepsize) else (False,):
            verdicts = [self._solved(stepsize, branch, lumped).is_stable for branch in branches]
            if None not in verdicts:
                break
        return all(verdicts)

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
    def is_stable(self) -> bool | None:
        """Whether the steady state due to the noise alone is a covariance; None if clients lumped do not tell."""
        copies = self.recursion.law.copies
        try:
            second = second_moments(self.recursion, self._noise[1])
        except PsofedError:  # it did not converge
            return bool(self.recursion.spectral_radius() < 1.0) if copies is None else None
        if copies is None or is_covariance(second):
            return is_covariance(second)
        # The noise of a row that stands for many clients may be negative: only rows of one client prove anything.
        alone = np.append(True, copies == 1.0)
        return None if is_covariance(second[alone][:, alone]) else False

    @cached_property
    def _noise(self) -> tuple[Level, Any]:
        return self._solver.steady_state(ALONE[NOISE], self.tolerance)

    @cached_property
    def _solver(self) -> EliminatedRecursion | PeriodicRecursion[Any, Any]:
        recursion = self.recursion
        return EliminatedRecursion(recursion) if EliminatedRecursion.applies(recursion) else recursion


def second_moments(recursion: Recursion, state: MomentState) -> FloatArray:
    """Return the second moments of server and clients, whoever participates, (rows + 1, rows + 1, D, D).

    Where a row stands for W clients it is their mean, with P + (Q − P)/W from the moments of each of them, Q, and of
    two of them, P.
    """
    law, size = recursion.law, recursion.entries.dimension
    v = state.clients.mixed(recursion.drawn)
    pairs = state.pairs.average(recursion.drawn, recursion.entries)
    k = np.arange(law.rows)
    pairs[k, k] += (v.own1 - pairs[k, k]) / (1.0 if law.copies is None else law.copies[:, None])
    joint = np.empty((law.rows + 1, law.rows + 1, size, size))
    joint[0, 0] = v.server.reshape(size, size)
    joint[0, 1:] = v.cross1.reshape(-1, size, size)
    joint[1:, 0] = joint[0, 1:].swapaxes(-1, -2)
    joint[1:, 1:] = pairs.reshape(law.rows, law.rows, size, size)
    return joint


def is_covariance(joint: FloatArray) -> bool:
    """Whether blocks (n, n, D, D) make up a covariance matrix, to rounding."""
    matrix = joint.swapaxes(1, 2).reshape(joint.shape[0] * joint.shape[2], -1)
    rounding = 1e-6 * float(np.linalg.norm(matrix))
    if not 0.0 < rounding < np.inf:
        return False
    try:
        np.linalg.cholesky(matrix + rounding * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        return False
    return True
