"""Masks of M entries drawn uniformly and afresh in every iteration."""

import numpy as np
from numpy.typing import NDArray


def mask_moments(dimension: int, num_shared: int) -> tuple[float, NDArray[np.float64]]:
    """Return E[S(i)] and the matrix E[S(i) S(j)] of one mask, shape (D, D) (Appendix A).

    E[S(i)] = p_e = M/D; E[S(i) S(j)] = p_e on the diagonal and p_e (M − 1)/(D − 1) off it.

    Examples
    --------
    >>> first, second = mask_moments(3, 2)
    >>> second.round(3)
    array([[0.667, 0.333, 0.333],
           [0.333, 0.667, 0.333],
           [0.333, 0.333, 0.667]])
    """
    p = num_shared / dimension
    off = p * (num_shared - 1) / (dimension - 1) if dimension > 1 else 0.0
    return p, np.full((dimension, dimension), off) + (p - off) * np.eye(dimension)
