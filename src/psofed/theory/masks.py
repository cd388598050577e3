"""Moments of the masks: what the theory needs of a selection pattern. Nothing compiled is imported."""

import math

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray


def random_mask_moments(dimension: int, num_shared: int) -> tuple[float, float]:
    """Return E[S(i)] = p_e = M/D and E[S(i) S(j)] = p_e (M − 1)/(D − 1), i ≠ j, of one random mask (Appendix A).

    Examples
    --------
    >>> first, pair = random_mask_moments(3, 2)
    >>> round(first, 3), round(pair, 3)
    (0.667, 0.333)
    """
    p = num_shared / dimension
    return p, p * (num_shared - 1) / (dimension - 1) if dimension > 1 else 0.0


def window_period(dimension: int, num_shared: int) -> int:
    """Return after how many iterations a moving window is back where it began: D / gcd(D, M).

    Examples
    --------
    >>> window_period(6, 4)
    3
    """
    return dimension // math.gcd(dimension, num_shared)


def window_masks(dimension: int, num_shared: int, offsets: NDArray[np.int64], n: int = 0) -> FloatArray:
    """Return the masks (…, D) of iteration `n` of windows with the given offsets (…).

    Examples
    --------
    >>> window_masks(5, 2, np.array([0, 4]), n=1)
    array([[0., 0., 1., 1., 0.],
           [0., 1., 1., 0., 0.]])
    """
    place = (np.arange(dimension) - np.asarray(offsets)[..., None] - n * num_shared) % dimension
    return (place < num_shared).astype(np.float64)
