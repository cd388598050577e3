"""f(x) = sin(π‖x‖)/(π‖x‖), the usual test of support vector regression."""

import numpy as np

from psofed.engine.compiling import hook
from psofed.engine.hooks import FUNCTION

INPUT_DIMENSION = None


@hook(FUNCTION)
def evaluate(inputs, out):
    """Write f of the columns of ``inputs`` (d, lanes) into ``out`` (lanes,)."""
    size, lanes = inputs.shape
    for lane in range(lanes):
        squares = 0.0
        for i in range(size):
            squares += inputs[i, lane] * inputs[i, lane]
        angle = np.pi * np.sqrt(squares)
        out[lane] = np.sin(angle) / angle if angle > 0.0 else 1.0
