"""How far attackers can go without standing out, for Min-Max and Min-Sum."""

import math

import numpy as np  # noqa: F401 (for the example)

from psofed.common.types import FloatArray
from psofed.parts.vectors import add_scaled, clear, scale


def write_mean(honest: FloatArray, out: FloatArray) -> None:
    """Write the mean of the honest updates into ``out`` (E,).

    Examples
    --------
    >>> out = np.empty(2)
    >>> write_mean(np.array([[1.0, 0.0], [3.0, 4.0]]), out)
    >>> out
    array([2., 2.])
    """
    clear(out)
    for h in range(honest.shape[0]):
        add_scaled(1.0 / honest.shape[0], honest[h], out)


def write_direction(honest: FloatArray, mean: FloatArray, direction: str, out: FloatArray) -> None:
    """Write the direction that attackers move away in into ``out`` (E,): against the mean, or their deviations.

    Examples
    --------
    >>> honest, out = np.array([[3.0, 0.0], [3.0, 8.0]]), np.empty(2)
    >>> write_direction(honest, np.array([3.0, 4.0]), "unit", out)
    >>> out
    array([-0.6, -0.8])
    """
    count = honest.shape[0]
    clear(out)
    if direction == "deviation":
        for i in range(out.size):
            total = 0.0
            for h in range(count):
                total += (honest[h, i] - mean[i]) ** 2
            out[i] = -math.sqrt(total / max(count - 1, 1))
    elif direction == "sign":
        for i in range(out.size):
            out[i] = -1.0 if mean[i] > 0.0 else (1.0 if mean[i] < 0.0 else 0.0)
    else:
        add_scaled(-1.0, mean, out)
        size = 0.0
        for i in range(out.size):
            size += mean[i] * mean[i]
        scale(1.0 / math.sqrt(size) if size > 0.0 else 0.0, out)
