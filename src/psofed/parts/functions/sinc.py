"""The usual test of support vector regression."""

import math

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Function


class Sinc(Function):
    """f(x) = sin(π‖x‖)/(π‖x‖), the usual test of support vector regression."""

    def value(self, x: FloatArray) -> float:
        """Return f(x)."""
        angle = math.pi * math.sqrt(np.sum(x * x))
        return math.sin(angle) / angle if angle > 0.0 else 1.0
