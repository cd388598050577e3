"""Round-robin masks."""

import math

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.parts import Pattern
from psofed.parts.contexts import Mask


class RoundRobin(Pattern):
    """Round-robin masks: a window of M entries that moves on by M in each iteration.

    S_{k,n} = {(o_k + nM + j) mod D, j = 0 … M − 1}; the offset o_k is uniform, drawn once per trial, for each client
    or, coordinated, for all.
    """

    def select(self, mask: Mask, out: NDArray[np.int64]) -> None:
        """Write the window of this iteration."""
        offset = int(mask.client_uniform * mask.dimension)
        for m in range(mask.num_shared):
            out[m] = (offset + mask.iteration * mask.num_shared + m) % mask.dimension

    def mask_period(self, dimension: int, num_shared: int) -> int:
        """Return after how many iterations the window is back where it began: D / gcd(D, M).

        Examples
        --------
        >>> RoundRobin().mask_period(6, 4)
        3
        """
        return dimension // math.gcd(dimension, num_shared)

    def mask_given_offset(self, dimension: int, num_shared: int, offset: NDArray[np.int64], n: int = 0) -> FloatArray:
        """Return the mask of iteration `n` for each given offset; it is certain, so it is its own moment.

        Examples
        --------
        >>> RoundRobin().mask_given_offset(5, 2, np.array([0, 4]), n=1)
        array([[0., 0., 1., 1., 0.],
               [0., 1., 1., 0., 0.]])
        """
        place = (np.arange(dimension) - np.asarray(offset)[..., None] - n * num_shared) % dimension
        return (place < num_shared).astype(np.float64)
