"""The built-in functions."""

import math
from typing import ClassVar

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import Function


class Sum(Function):
    """f(x) = 1ᵀx/√d, which a linear model learns exactly."""

    def value(self, x: FloatArray) -> float:
        """Return f(x)."""
        return float(np.sum(x) / math.sqrt(x.size))


class Sine(Function):
    """f(x) = sin(2s) with s = 1ᵀx/√d: smooth, bounded, and uncorrelated enough with x that a line fits it badly."""

    def value(self, x: FloatArray) -> float:
        """Return f(x)."""
        return math.sin(2.0 * np.sum(x) / math.sqrt(x.size))


class Sinc(Function):
    """f(x) = sin(π‖x‖)/(π‖x‖), the usual test of support vector regression."""

    def value(self, x: FloatArray) -> float:
        """Return f(x)."""
        angle = math.pi * math.sqrt(np.sum(x * x))
        return math.sin(angle) / angle if angle > 0.0 else 1.0


class Wiener(Function):
    """f(x) = s − 0.9 s² with s = x₁ + ½x₂ + ¼x₃ + …: the non-linear channel that kernel LMS was introduced on.

    A linear filter (here with taps 2^−i) followed by a static non-linearity: a Wiener system.

    References
    ----------
    Liu, Pokharel, Príncipe, "The kernel least-mean-square algorithm", IEEE Trans. Signal Processing 56(2), 2008.
    """

    def value(self, x: FloatArray) -> float:
        """Return f(x)."""
        total, tap = 0.0, 1.0
        for i in range(x.size):
            total += tap * x[i]
            tap *= 0.5
        return total - 0.9 * total * total


class RootSine(Function):
    """f(x) = √(x₁² + sin²(πx₄)) + (0.8 − 0.5 exp(−x₂²)) x₃, the benchmark of online federated kernel regression.

    References
    ----------
    Gogineni, Werner, Huang, Kuh, "Communication-efficient online federated learning framework for nonlinear
    regression", ICASSP 2022.
    """

    num_inputs: ClassVar[int | None] = 4

    def value(self, x: FloatArray) -> float:
        """Return f(x)."""
        sine = math.sin(math.pi * x[3])
        return math.sqrt(x[0] * x[0] + sine * sine) + (0.8 - 0.5 * math.exp(-x[1] * x[1])) * float(x[2])
