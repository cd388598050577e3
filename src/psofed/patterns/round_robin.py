"""Masks whose window of M entries moves on by M entries in every iteration."""

import math

import numpy as np
from numpy.typing import NDArray


def mask_period(dimension: int, num_shared: int) -> int:
    """Number of iterations after which the window is back where it began: D / gcd(D, M).

    Examples
    --------
    >>> mask_period(6, 4)
    3
    """
    return dimension // math.gcd(dimension, num_shared)


def mask_given_offset(
    dimension: int, num_shared: int, offset: NDArray[np.int64], n: int = 0
) -> NDArray[np.float64]:
    """Return the mask of iteration `n` for each given offset; it is certain, so it is its own moment.

    Examples
    --------
    >>> mask_given_offset(5, 2, np.array([0, 4]), n=1)
    array([[0., 0., 1., 1., 0.],
           [0., 1., 1., 0., 0.]])
    """
    place = (np.arange(dimension) - np.asarray(offset)[..., None] - n * num_shared) % dimension
    return (place < num_shared).astype(np.float64)
