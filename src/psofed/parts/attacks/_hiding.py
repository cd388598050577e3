"""How far attackers can go without standing out, for Min-Max and Min-Sum."""

import math
from dataclasses import dataclass
from typing import ClassVar

from psofed.common.options import option
from psofed.common.types import FloatArray
from psofed.parts.vectors import add_scaled, clear, length, part_of


@dataclass(frozen=True, kw_only=True)
class Hiding:
    """Knowledge and options that both attacks share."""

    knows: ClassVar[str] = "everyone"
    not_affine_because: ClassVar[str] = "distances between uploads are not affine in the models"

    scale: float = option(default=1.0, low=0.0, text="fraction of the largest undetected distance", strength=True)
    direction: str = option(
        default="deviation", choices=("deviation", "unit", "sign"), text="direction of the perturbation (p)"
    )


def take_aim(honest: FloatArray, direction: str, scratch: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean of the honest updates and the direction to move away in, (E,) each; both lie in ``scratch``."""
    size = honest.shape[1]
    mean, away = part_of(scratch, 0, (size,)), part_of(scratch, size, (size,))
    write_mean(honest, mean)
    write_direction(honest, mean, direction, away)
    return mean, away


def send_alike(mean: FloatArray, reach: float, away: FloatArray, out: FloatArray) -> None:
    """Let all attackers send  mean + reach · away,  a row of ``out`` each.

    Examples
    --------
    >>> import numpy as np
    >>> out = np.empty((2, 1))
    >>> send_alike(np.array([2.0]), 0.5, np.array([-1.0]), out)
    >>> out.ravel()
    array([1.5, 1.5])
    """
    for a in range(out.shape[0]):
        for i in range(mean.size):
            out[a, i] = mean[i] + reach * away[i]


def write_mean(honest: FloatArray, out: FloatArray) -> None:
    """Write the mean of the honest updates into ``out`` (E,).

    Examples
    --------
    >>> import numpy as np
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
    >>> import numpy as np
    >>> honest, out = np.array([[3.0, 0.0], [3.0, 8.0]]), np.empty(2)
    >>> write_direction(honest, np.array([3.0, 4.0]), "unit", out)
    >>> out
    array([-0.6, -0.8])

    A mean that is only a rounding error has no sign.

    >>> honest, out = np.array([[0.1], [0.2], [-0.3]]), np.empty(1)
    >>> write_direction(honest, honest.mean(axis=0), "sign", out)
    >>> out
    array([0.])
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
            size = 0.0
            for h in range(count):
                size += abs(honest[h, i])
            least = 1e-12 * size
            out[i] = -1.0 if mean[i] > least else (1.0 if mean[i] < -least else 0.0)
    else:
        size = length(mean)
        add_scaled(-1.0 / size if size > 0.0 else 0.0, mean, out)
