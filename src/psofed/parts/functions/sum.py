"""A linear function."""

import math

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Function


class Sum(Function):
    """f(x) = 1ᵀx/√d, which a linear model learns exactly."""

    def value(self, x: FloatArray) -> float:
        """Return f(x)."""
        return float(np.sum(x) / math.sqrt(x.size))
