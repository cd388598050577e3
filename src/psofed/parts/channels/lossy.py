"""A link that loses messages."""

from psofed.common.types import FloatArray
from psofed.parts import Channel, option
from psofed.parts.contexts import Transmission


class Lossy(Channel):
    """Lossy: a message is lost as a whole with a given probability.

    The client then counts as not available for that direction: it keeps its model if the download is lost, and the
    mean counts a lost upload as the server's own values.

    Examples
    --------
    >>> import numpy as np
    >>> none = np.zeros(0)
    >>> out = np.empty(2)
    >>> Lossy(probability=0.1).transmit(Transmission(np.ones(2), none, none, 0, 0, none, none, 0.05), out)
    >>> out
    array([nan, nan])
    """

    probability: float = option(low=0.0, high=1.0, text="probability that a message is lost")

    def transmit(self, transmission: Transmission, out: FloatArray) -> None:
        """Lose all values, or none."""
        lost = transmission.message_uniform < self.probability
        for i in range(out.size):
            out[i] = float("nan") if lost else transmission.values[i]

    def loss_probability(self) -> float:
        """Return `probability`."""
        return self.probability
