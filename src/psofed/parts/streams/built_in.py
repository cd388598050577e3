"""The built-in streams."""

import math
from typing import ClassVar

from psofed.common.types import FloatArray
from psofed.parts import InputStream, option
from psofed.parts.contexts import Innovation


class Independent(InputStream):
    """Inputs that are independent over time: x_{k,n} ~ N(0, R_k) in every iteration, as in the paper."""

    methods: ClassVar[tuple[str, ...]] = ()  # the engine draws these inputs itself


class DelayLine(InputStream):
    """A tapped delay line: x_{k,n} = (u_n, u_{n−1}, …, u_{n−d+1}) of u_n = ρ u_{n−1} + √(1−ρ²) ς_k ε_n.

    `pole` is ρ. The line starts in its stationary state. Its covariance is that of ``data.input_correlation = ρ``, but
    successive inputs share all entries but one, also with ρ = 0. This is what filters see in system identification and
    echo cancellation, and what the independence assumption of LMS theory leaves out.
    """

    pole: float = option(
        default=0.0, low=-1.0, high=1.0, open_low=True, open_high=True, text="correlation of successive values (ρ)"
    )

    def input_correlation(self) -> float:
        """Return ρ."""
        return self.pole

    def memory_size(self, dimension: int) -> int:
        """Return d, the values in the line."""
        return dimension

    def draw(self, innovation: Innovation, memory: FloatArray, out: FloatArray) -> None:
        """Shift the line by a value; in iteration 0 fill it from its stationary distribution."""
        fresh = math.sqrt(1.0 - self.pole * self.pole) * innovation.deviation
        if innovation.iteration == 0:
            memory[out.size - 1] = innovation.deviation * innovation.normals[out.size - 1]
            for i in range(out.size - 2, -1, -1):
                memory[i] = self.pole * memory[i + 1] + fresh * innovation.normals[i]
        else:
            for i in range(out.size - 1, 0, -1):
                memory[i] = memory[i - 1]
            memory[0] = self.pole * memory[0] + fresh * innovation.normals[0]
        for i in range(out.size):
            out[i] = memory[i]
