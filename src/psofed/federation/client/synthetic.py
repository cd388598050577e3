"""Data drawn from a scenario on each client: y = wᵀx + ν, the same whenever and wherever it is drawn."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.federation.client.sources import Position, Samples
from psofed.fleet import Fleet, draw_fleet
from psofed.scenario import Scenario


@dataclass(frozen=True)
class SyntheticSource:
    """The stream of client `partition` of a scenario; sample n depends on (seed, partition, n) alone.

    Examples
    --------
    >>> source = SyntheticSource(Scenario(num_clients=5, dimension=2), partition=1, seed=0)
    >>> late = source.read(Position(samples=3), limit=1)
    >>> bool((late.inputs == source.read(Position(), limit=4).inputs[3:]).all())
    True
    """

    scenario: Scenario
    partition: int
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.partition < self.scenario.num_clients:
            raise InvalidValueError("partition", self.partition, f"0 to {self.scenario.num_clients - 1}")

    @cached_property
    def _fleet(self) -> Fleet:
        return draw_fleet(self.scenario)

    @cached_property
    def _root(self) -> FloatArray | None:
        """A square root of R_k, or None for white inputs."""
        if self._fleet.is_white:
            return None
        covariance = self._fleet.covariances()[self.partition]
        try:
            return np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:  # singular
            values, vectors = np.linalg.eigh(covariance)
            return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))

    def read(self, start: Position, limit: int) -> Samples:
        """Draw the samples from `start` on."""
        fleet, k = self._fleet, self.partition
        target = fleet.target if fleet.target_offsets is None else fleet.target + fleet.target_offsets[k]
        inputs = np.empty((limit, self.scenario.dimension))
        targets = np.empty(limit)
        for i in range(limit):
            generator = np.random.default_rng((self.seed, k, start.samples + i))
            white = generator.standard_normal(self.scenario.dimension)
            inputs[i] = np.sqrt(fleet.input_variance[k]) * white if self._root is None else self._root @ white
            noise = np.sqrt(fleet.noise_variance[k]) * generator.standard_normal()
            targets[i] = inputs[i] @ target + noise
        return Samples(inputs, targets, Position(start.samples + limit))
