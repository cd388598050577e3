"""Feature maps z(x): inputs as they are, or cosines of them."""

from dataclasses import dataclass

import numpy as np

from psofed.common.types import FloatArray


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """z_i(x) = scale · cos(2π(frequencies_i · x + phases_i)), or z(x) = x if there are no frequencies.

    Attributes
    ----------
    frequencies : array (D, d), or (0, d) for the identity
        In turns per unit of x.
    phases : array (D,)
        In turns.
    scale : float
        √(2/D).
    """

    frequencies: FloatArray
    phases: FloatArray
    scale: float

    def __call__(self, inputs: FloatArray) -> FloatArray:
        """Return z of inputs (…, d), shape (…, D).

        Examples
        --------
        >>> identity(2)(np.array([[1.0, 2.0]]))
        array([[1., 2.]])
        """
        if not self.frequencies.size:
            return inputs
        return np.asarray(self.scale * np.cos(2 * np.pi * (inputs @ self.frequencies.T + self.phases)))


def identity(dimension: int) -> FeatureMap:
    """Return z(x) = x."""
    return FeatureMap(np.zeros((0, dimension)), np.zeros(0), 1.0)
