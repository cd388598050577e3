"""The channel that kernel LMS was introduced on."""

from psofed.common.types import FloatArray
from psofed.parts import Function


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
