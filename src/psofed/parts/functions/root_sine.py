"""The benchmark of online federated kernel regression."""

import math
from typing import ClassVar

from psofed.common.types import FloatArray
from psofed.parts import Function


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
