"""A pattern that shares neighbouring entries, with its moments for the theory."""

# ruff: noqa: D102  (the base class documents these methods)
import numpy as np

from psofed.parts import Pattern


class Blocks(Pattern):
    """Shares a run of M neighbouring entries that begins anywhere."""

    def select(self, mask, out):
        first = int(mask.uniforms[0] * mask.dimension)
        for m in range(mask.num_shared):
            out[m] = (first + m) % mask.dimension

    def mask_moments(self, dimension, num_shared):
        second = np.zeros((dimension, dimension))
        for first in range(dimension):
            mask = np.zeros(dimension)
            mask[(first + np.arange(num_shared)) % dimension] = 1.0
            second += np.outer(mask, mask) / dimension
        return num_shared / dimension, second
