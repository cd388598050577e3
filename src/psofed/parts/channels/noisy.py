"""A link that adds noise."""

import math

from psofed.common.types import FloatArray
from psofed.parts import Channel, option
from psofed.parts.contexts import Transmission


class Noisy(Channel):
    """Noisy: the link adds N(0, σ²) to every value, with σ² the `variance`.

    Examples
    --------
    >>> import numpy as np
    >>> none = np.zeros(0)
    >>> out = np.empty(1)
    >>> Noisy(variance=0.25).transmit(
    ...     Transmission(np.ones(1), none, none, 0, 0, np.array([2.0]), none, 0.0), out)
    >>> out
    array([2.])
    """

    draws = "normals"

    variance: float = option(low=0.0, text="variance of the noise on each value")

    def transmit(self, transmission: Transmission, out: FloatArray) -> None:
        """Add the noise."""
        deviation = math.sqrt(self.variance)
        for i in range(out.size):
            out[i] = transmission.values[i] + deviation * transmission.normals[i]

    def added_variance(self) -> float:
        """Return `variance`."""
        return self.variance
