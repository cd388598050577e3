"""A function to learn: a bump."""

# ruff: noqa: D102  (the base class documents these methods)
import math

import numpy as np

from psofed.parts import Function, option


class Bump(Function):
    """f(x) = exp(−‖x‖²/(2 width²))."""

    width: float = option(default=1.0, low=0.0, open_low=True, text="width of the bump")

    def value(self, x):
        return math.exp(-np.sum(x * x) / (2.0 * self.width**2))
