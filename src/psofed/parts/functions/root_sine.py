"""f(x) = √(x₁² + sin²(πx₄)) + (0.8 − 0.5 exp(−x₂²)) x₃, the benchmark of online federated kernel regression.

References
----------
Gogineni, Werner, Huang, Kuh, "Communication-efficient online federated learning framework for nonlinear
regression", ICASSP 2022.
"""

import numpy as np

from psofed.engine.compiling import hook
from psofed.engine.hooks import FUNCTION

INPUT_DIMENSION = 4


@hook(FUNCTION)
def evaluate(inputs, out):
    """Write f of the columns of ``inputs`` (4, lanes) into ``out`` (lanes,)."""
    for lane in range(inputs.shape[1]):
        first, second, third = inputs[0, lane], inputs[1, lane], inputs[2, lane]
        sine = np.sin(np.pi * inputs[3, lane])
        out[lane] = np.sqrt(first * first + sine * sine) + (0.8 - 0.5 * np.exp(-second * second)) * third
