"""A sine."""

import math

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Function


class Sine(Function):
    """f(x) = sin(2s) with s = 1ᵀx/√d: smooth, bounded, and uncorrelated enough with x that a line fits it badly."""

    def value(self, x: FloatArray) -> float:
        """Return f(x)."""
        return math.sin(2.0 * np.sum(x) / math.sqrt(x.size))
