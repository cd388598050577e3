"""Clients that hold no model, under the mean: the recursion of the server's own moments.

Exchanges are as frequent as the communication budget allows (:class:`psofed.parts.traffic.Traffic`): iteration n has
P_n participants, 0 in most, with period T, and nothing happens between exchanges. The steady state averages over a
period, and ρ(𝓕) is that of a period to the power 1/T.
"""

import math
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.theory.maps.server_held import ServerRecursion
from psofed.theory.model import Branch
from psofed.theory.solve.full import Full
from psofed.theory.steps.corruption import Corruption
from psofed.theory.steps.learning import rescaled
from psofed.theory.steps.samples import Mixture, SampleLaw


class ServerHeld(Full):
    """Algorithms whose clients hold no model and whose server adds the mean of their updates: Online-Fed."""

    needs: ClassVar[frozenset[str]] = frozenset({"server-held"})

    def num_moments(self, stepsize: float) -> int:
        """Count the numbers that one iteration of a curve computes."""
        return self._size**2

    @property
    def _size(self) -> int:
        return 1 if self.model.fleet.is_white else self.model.scenario.dimension

    def _is_stable(self, stepsize: float) -> bool:
        return self.growth(stepsize) < 1.0

    def _branches(self, count: int) -> tuple[Branch, ...]:
        return (Branch((), 1.0),)

    @cached_property
    def _participants(self) -> tuple[int, ...]:
        """P_n of one period."""
        traffic = self.model.scenario.algorithm.traffic(self.model.scenario)
        cost = traffic.group * max(traffic.bits_up, traffic.bits_down)
        return tuple(traffic.exchanges_in(n) for n in range(cost // math.gcd(cost, traffic.budget)))

    def _recursion(self, stepsize: float, branch: Branch, lumped: bool = False) -> ServerRecursion:
        model, size = self.model, self._size
        mixture, stepsizes, fleet = model.mixture, model.stepsizes(stepsize), model.fleet
        sends_model = model.scenario.algorithm.exchange(model.scenario).sends_model
        corruption = model.law.corruption
        affine = corruption.affine
        constant = -np.asarray(affine.offset, dtype=np.float64) * np.ones(size)
        if sends_model:
            constant = constant + (1.0 - affine.own - affine.server) * fleet.target[:size]
        covariance = fleet.input_variance[:, None, None] if size == 1 else fleet.covariances()
        return ServerRecursion(
            Mixture(
                _as_matrices(mixture.clean, size, stepsizes),
                None if mixture.poisoned is None else _as_matrices(mixture.poisoned, size, stepsizes),
                mixture.attackers,
            ),
            Corruption(corruption.attackers, affine, constant),
            sends_model,
            self._participants,
            fleet.target,
            covariance.mean(axis=0),
            model.has_direction,
        )


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
