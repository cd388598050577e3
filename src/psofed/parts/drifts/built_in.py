"""The built-in drifts."""

import math

import numpy as np

from psofed.common.types import FloatArray
from psofed.common.validation import check_integer
from psofed.parts import Drift, option
from psofed.parts.contexts import Step


class Jump(Drift):
    """Jump: at one iteration w* moves by a vector of given length in a random direction, and stays there.

    Examples
    --------
    >>> Jump(size=1.0)
    Traceback (most recent call last):
    psofed.common.errors.MissingArgumentError: drift.at is required: an integer of at least 0.
    """

    size: float = option(low=0.0, text="Euclidean length of the jump; w* itself has length 1")
    at: int = option(low=0, text="first iteration with labels from the new target")

    def move(self, step: Step) -> FloatArray:
        """Return 0 before iteration `at` and the jump from then on."""
        return self.size * step.direction if step.iteration >= self.at else np.zeros(step.direction.size)

    def check(self, iterations: int) -> None:
        """Refuse a run that ends before the jump."""
        check_integer("drift.at", self.at, 0, iterations - 1, "iterations - 1")

    def jump_iteration(self) -> int:
        """Return `at`."""
        return self.at


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


class Sinusoid(Drift):
    """Sinusoid: w*_n = w*_0 + A sin(2πn/T) u with a random unit vector u, drawn once per trial."""

    amplitude: float = option(low=0.0, text="amplitude of the swing (A)")
    period: int = option(low=2, text="period in iterations (T)")

    def move(self, step: Step) -> FloatArray:
        """Return A sin(2πn/T) u."""
        phase = (step.iteration % self.period) / self.period
        return self.amplitude * math.sin(2 * math.pi * phase) * step.direction

    def mean_square(self) -> float:
        """Return A²/2."""
        return self.amplitude**2 / 2
