"""Clients that hold no model, under the mean: the recursion of the server's own moments.

Exchanges are as frequent as the communication budget allows (:class:`psofed.parts.traffic.Traffic`): iteration n has
P_n participants, 0 in most, with period T, and nothing happens between exchanges. The steady state averages over a
period, and ρ(𝓕) is that of a period to the power 1/T.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.parts.affine import LinearUpdate
from psofed.theory.maps.krylov import dominant_eigenvalue, solve_fixed_point
from psofed.theory.maps.server_held import ServerMoments, ServerRecursion
from psofed.theory.metrics import SteadyState
from psofed.theory.moments.level import NO_SOURCES, Sources
from psofed.theory.moments.second import pack
from psofed.theory.solve.method import Method, Solve, by_source
from psofed.theory.steps.corruption import Corruption
from psofed.theory.steps.learning import rescaled
from psofed.theory.steps.samples import Mixture, SampleLaw


class ServerHeld(Method):
    """Algorithms whose clients hold no model: Online-Fed, and those with a momentum at the server."""

    needs: ClassVar[frozenset[str]] = frozenset({"server-held"})

    def steady_state(self, stepsize: float) -> SteadyState:
        """Steady state; the stepsize must be stable."""
        return SteadyState.of(by_source(self.model, self._solve(stepsize), self.clean._solve(stepsize)))

    def spectral_radius(self, stepsize: float) -> float:
        """ρ(𝓕), per iteration."""
        with np.errstate(over="ignore", invalid="ignore"):
            period = self._period(stepsize, NO_SOURCES)
            start = pack(self._moments(np.eye(self._size), np.zeros(self._size))[:3])
            radius = dominant_eigenvalue(lambda x: period(x)[0], start)
        return float(max(radius, 0.0) ** (1.0 / len(self._participants)))

    def curve(self, stepsize: float, iterations: int) -> tuple[FloatArray, FloatArray]:
        """Excess network MSE and server MSD over the iterations."""
        target = self.model.fleet.target
        first = target if self._size > 1 else np.array([math.sqrt(float(np.mean(target**2)))])
        block = np.outer(target, target) if self._size > 1 else np.array([[float(np.mean(target**2))]])
        v, recursion = self._moments(block, first), self._recursion(stepsize)
        levels = np.empty((iterations, 2))
        with np.errstate(over="ignore", invalid="ignore"):
            for n in range(iterations):
                levels[n] = self._level(v)
                v = self._step(recursion, v, n, Sources())
        return levels[:, 0], levels[:, 1]

    def num_moments(self, stepsize: float) -> int:
        """Count the numbers that one iteration of a curve computes."""
        return 3 * self._size**2

    @property
    def _size(self) -> int:
        return 1 if self.model.fleet.is_white else self.model.scenario.dimension

    @cached_property
    def _participants(self) -> tuple[int, ...]:
        """P_n of one period."""
        traffic = self.model.scenario.algorithm.traffic(self.model.scenario)
        cost = traffic.group * max(traffic.bits_up, traffic.bits_down)
        return tuple(traffic.exchanges_in(n) for n in range(cost // math.gcd(cost, traffic.budget)))

    @cached_property
    def _update(self) -> LinearUpdate:
        update = self.model.scenario.algorithm.linear_update(self.model.scenario)
        assert update is not None
        return update

    def _recursion(self, stepsize: float) -> ServerRecursion:
        model, size = self.model, self._size
        mixture, stepsizes = model.mixture, model.stepsizes(stepsize)
        sends_model = model.scenario.algorithm.exchange(model.scenario).sends_model
        corruption = model.law.corruption
        affine = corruption.affine
        constant = -np.asarray(affine.offset, dtype=np.float64) * np.ones(size)
        if sends_model:
            constant = constant + (1.0 - affine.own - affine.server) * model.fleet.target[:size]
        return ServerRecursion(
            Mixture(
                _as_matrices(mixture.clean, size, stepsizes),
                None if mixture.poisoned is None else _as_matrices(mixture.poisoned, size, stepsizes),
                mixture.attackers,
            ),
            Corruption(corruption.attackers, affine, constant),
            self._update,
            sends_model,
            model.scenario.dimension,
        )

    def _solve(self, stepsize: float) -> Solve:
        def solve(sources: Sources) -> FloatArray:
            directed = sources.direction and self.model.has_direction
            driven = replace(sources, direction=directed)
            means = self._steady_means(stepsize) if directed else np.zeros((2, self._size))
            period = self._period(stepsize, driven, means)
            source, _ = period(np.zeros(3 * self._size**2))
            linear = self._period(stepsize, NO_SOURCES)
            fixed = solve_fixed_point(lambda x: linear(x)[0], source)
            return period(fixed)[1]

        return solve

    def _steady_means(self, stepsize: float) -> FloatArray:
        """Means of g and m at the start of a period, (2, n), in the steady state."""
        recursion, size = self._recursion(stepsize), self._size
        zero = np.zeros((size, size))

        def period(x: FloatArray, sources: Sources) -> FloatArray:
            v = ServerMoments(zero, zero, zero, *x.reshape(2, size))
            for n in range(len(self._participants)):
                v = self._step(recursion, v, n, sources)
            return np.concatenate([v.mean, v.mean_momentum])

        source = period(np.zeros(2 * size), Sources())
        return solve_fixed_point(lambda x: period(x, NO_SOURCES), source).reshape(2, size)

    def _period(
        self, stepsize: float, sources: Sources, means: FloatArray | None = None
    ) -> Callable[[FloatArray], tuple[FloatArray, FloatArray]]:
        """Return a period's map of the packed moments, and the mean level over it."""
        recursion, size = self._recursion(stepsize), self._size
        first = np.zeros((2, size)) if means is None else means

        def period(x: FloatArray) -> tuple[FloatArray, FloatArray]:
            v, total = ServerMoments(*x.reshape(3, size, size), *first), np.zeros(2)
            for n in range(len(self._participants)):
                total += self._level(v)
                v = self._step(recursion, v, n, sources)
            return pack(v[:3]), total / len(self._participants)

        return period

    def _step(self, recursion: ServerRecursion, v: ServerMoments, n: int, sources: Sources) -> ServerMoments:
        participants = self._participants[n % len(self._participants)]
        return recursion.exchange(v, participants, sources) if participants else v

    def _level(self, v: ServerMoments) -> FloatArray:
        """Excess network MSE and server MSD."""
        fleet = self.model.fleet
        if self._size == 1:
            square = self.model.scenario.dimension * v.server[0, 0]
            return np.array([float(fleet.input_variance.mean()) * square, square])
        return np.array([np.einsum("ij,ji->", self._covariance, v.server), np.trace(v.server)])

    @cached_property
    def _covariance(self) -> FloatArray:
        """Mean of the clients' covariances, (D, D)."""
        return np.asarray(self.model.fleet.covariances().mean(axis=0))

    def _moments(self, block: FloatArray, first: FloatArray) -> ServerMoments:
        zero = np.zeros_like(block)
        return ServerMoments(block, zero, zero, first, np.zeros_like(first))


def _as_matrices(samples: SampleLaw, size: int, stepsizes: FloatArray) -> SampleLaw:
    """Return the law with covariances (K, n, n) and displacements (K, n), the stepsizes (K,) in them."""
    if samples.fourth is not None:
        raise NotCoveredError(
            "the theory of algorithms whose clients hold no model covers Gaussian inputs, not measured fourth moments"
        )
    samples = rescaled(samples, stepsizes)
    covariance, displacement = samples.covariance, samples.displacement
    if covariance.ndim == 1:
        covariance = covariance[:, None, None] * np.eye(size)
    if displacement is not None:
        displacement = displacement.reshape(len(covariance), size)
    return replace(samples, covariance=covariance, displacement=displacement)
