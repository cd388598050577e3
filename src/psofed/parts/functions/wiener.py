"""f(x) = s − 0.9 s² with s = x₁ + ½x₂ + ¼x₃ + …: the non-linear channel that kernel LMS was introduced on.

A linear filter (here with taps 2^−i) followed by a static non-linearity: a Wiener system.

References
----------
Liu, Pokharel, Príncipe, "The kernel least-mean-square algorithm", IEEE Trans. Signal Processing 56(2), 2008.
"""

from psofed.engine.compiling import hook
from psofed.engine.hooks import FUNCTION

INPUT_DIMENSION = None


@hook(FUNCTION)
def evaluate(inputs, out):
    """Write f of the columns of ``inputs`` (d, lanes) into ``out`` (lanes,)."""
    size, lanes = inputs.shape
    for lane in range(lanes):
        total, tap = 0.0, 1.0
        for i in range(size):
            total += tap * inputs[i, lane]
            tap *= 0.5
        out[lane] = total - 0.9 * total * total
