"""A random walk."""

import math

from psofed.common.types import FloatArray
from psofed.parts import Drift, option
from psofed.parts.contexts import Step


class RandomWalk(Drift):
    """Random walk: w*_{n+1} = w*_n + q_n with q_n ~ N(0, q I), the usual model of a wandering target."""

    variance: float = option(low=0.0, text="variance of each entry's step per iteration (q)")

    def move(self, step: Step) -> FloatArray:
        """Take a step; the walk starts at iteration 0."""
        if step.iteration == 0:
            return step.position
        return step.position + math.sqrt(self.variance) * step.normals

    def increment_variance(self) -> float:
        """Return q."""
        return self.variance
