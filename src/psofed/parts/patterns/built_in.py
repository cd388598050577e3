"""The built-in patterns."""

import math

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.parts import Pattern
from psofed.parts.contexts import Mask

# Up to this number of entries, searching those already chosen is cheaper than shuffling all.
_FEW = 32


class Random(Pattern):
    """Random masks: in each iteration a fresh uniform choice of M of the D entries.

    S_{k,n} is independent over n, and over k unless coordinated.
    """

    def select(self, mask: Mask, out: NDArray[np.int64]) -> None:
        """Choose without repetition: Floyd's way for few entries, else a partial Fisher–Yates shuffle."""
        if mask.num_shared <= _FEW:
            for m in range(mask.num_shared):
                last = mask.dimension - mask.num_shared + m
                chosen = int(mask.uniforms[m] * (last + 1))
                for other in range(m):
                    if out[other] == chosen:
                        chosen = last
                        break
                out[m] = chosen
            return
        entries = np.empty(mask.dimension, np.int64)  # np.arange takes a quarter of a second to compile
        for i in range(mask.dimension):
            entries[i] = i
        for m in range(mask.num_shared):
            other = m + int(mask.uniforms[m] * (mask.dimension - m))
            out[m] = entries[other]
            entries[other] = entries[m]

    def mask_moments(self, dimension: int, num_shared: int) -> tuple[float, float]:
        """Return E[S(i)] = p_e = M/D and E[S(i) S(j)] = p_e (M − 1)/(D − 1), i ≠ j, of one mask (Appendix A).

        Examples
        --------
        >>> first, pair = Random().mask_moments(3, 2)
        >>> round(first, 3), round(pair, 3)
        (0.667, 0.333)
        """
        p = num_shared / dimension
        return p, p * (num_shared - 1) / (dimension - 1) if dimension > 1 else 0.0


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
