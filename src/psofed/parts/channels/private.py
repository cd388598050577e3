"""A link that hides what a client has learned."""

import math

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.parts import Channel, option
from psofed.parts.contexts import Transmission
from psofed.parts.traffic import BITS_PER_NUMBER


class Private(Channel):
    """Private: clips the norm of an update and adds Gaussian noise (the Gaussian mechanism), on the way up only.

    With z = u − g the update of the entries that are shared, u the upload and g the server's values, the server
    receives

        g + z · min(1, C / ‖z‖) + N(0, (m C)² I),   C = `clip`, m = `multiplier`.

    The result states the (ε, δ) that the run has spent (`docs/attacks.md`).

    References
    ----------
    Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, appendix A.

    Examples
    --------
    >>> import numpy as np
    >>> none = np.zeros(0)
    >>> out = np.empty(2)
    >>> message = Transmission(np.array([3.0, 4.0]), np.zeros(2), none, 0, 0, np.zeros(2), none, 0.0)
    >>> Private(clip=1.0).transmit(message, out)
    >>> out
    array([0.6, 0.8])
    """

    draws = "normals"

    clip: float = option(low=0.0, open_low=True, text="largest norm of an update (C)")
    multiplier: float = option(
        default=1.0, low=0.0, open_low=True, text="standard deviation of the noise, in units of the clip (m)"
    )
    delta: float = option(
        default=1e-5,
        low=0.0,
        high=1.0,
        open_low=True,
        open_high=True,
        text="δ for which the privacy spent, ε, is stated",
    )

    def transmit(self, transmission: Transmission, out: FloatArray) -> None:
        """Clip the update and add noise; entries that are not finite are lost."""
        total = 0.0
        for i in range(out.size):
            change = transmission.values[i] - transmission.receiver[i]
            if math.isfinite(change):
                total += change * change
        norm = math.sqrt(total)
        factor = self.clip / norm if norm > self.clip else 1.0
        for i in range(out.size):
            change = transmission.values[i] - transmission.receiver[i]
            noise = self.multiplier * self.clip * transmission.normals[i]
            out[i] = transmission.receiver[i] + factor * change + noise

    def bits_after(self, bits: int) -> int:
        """Return the bits of a float64: noise takes values to any number."""
        return BITS_PER_NUMBER

    def check(self, direction: str) -> None:
        """Refuse the way down."""
        if direction == "down":
            allowed = "absent: it protects what clients upload, so it belongs in [channel.up]"
            raise InvalidValueError("channel.down", self.kind, allowed)
