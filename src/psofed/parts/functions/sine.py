"""f(x) = sin(2s) with s = 1ᵀx/√d: smooth, bounded, and uncorrelated enough with x that a line fits it badly."""

import numpy as np

from psofed.engine.compiling import hook
from psofed.engine.hooks import FUNCTION

INPUT_DIMENSION = None


@hook(FUNCTION)
def evaluate(inputs, out):
    """Write f of the columns of ``inputs`` (d, lanes) into ``out`` (lanes,)."""
    size, lanes = inputs.shape
    for lane in range(lanes):
        total = 0.0
        for i in range(size):
            total += inputs[i, lane]
        out[lane] = np.sin(2.0 * total / size**0.5)
