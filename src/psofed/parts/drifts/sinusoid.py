"""A swing."""

import math

from psofed.common.types import FloatArray
from psofed.parts import Drift, option
from psofed.parts.contexts import Step


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
