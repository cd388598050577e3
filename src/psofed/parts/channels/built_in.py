"""The built-in channels."""

import math

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.parts import Channel, option
from psofed.parts.contexts import Transmission
from psofed.parts.traffic import BITS_PER_NUMBER


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


class Quantised(Channel):
    """Quantised: every value is rounded to one of 2^bits levels on [−reach, reach].

    The levels are mid-rise, (j + ½) Δ with Δ = 2 · reach / 2^bits; values beyond the outermost levels become these,
    and what is not finite is lost.
    With d uniform on [−Δ/2, Δ/2) and Q the nearest level,

    - ``rounding = "dithered"`` receives Q(v + d) − d (subtractive dither, d shared by seed): where nothing is clipped
      the error is uniform with variance Δ²/12 and independent of v;
    - ``rounding = "stochastic"`` receives Q(v + d): a neighbouring level at random, with mean v.

    Examples
    --------
    Two bits on [−1, 1]: the levels are ±0.25 and ±0.75.

    >>> import numpy as np
    >>> none = np.zeros(0)
    >>> out = np.empty(2)
    >>> message = Transmission(np.array([0.4, 9.0]), none, none, 0, 0, none, np.array([0.5, 0.5]), 0.0)
    >>> Quantised(bits=2, reach=1.0).transmit(message, out)
    >>> out
    array([0.25, 0.75])
    """

    draws = "uniforms"

    bits: int = option(low=1, high=32, text="bits per value")
    reach: float = option(low=0.0, open_low=True, text="largest value that can be represented")
    rounding: str = option(
        default="dithered",
        choices=("dithered", "stochastic"),
        text="subtractive dither shared by seed, or rounding at random",
    )

    def transmit(self, transmission: Transmission, out: FloatArray) -> None:
        """Round each value to a level; values that are not finite are lost."""
        step = 2.0 * self.reach * math.ldexp(1.0, -self.bits)
        is_subtracted = self.rounding == "dithered"
        for i in range(out.size):
            dither = (transmission.uniforms[i] - 0.5) * step
            value = transmission.values[i] + dither
            level = math.nan
            if math.isfinite(value):
                inside = max(min(value, self.reach - 0.5 * step), 0.5 * step - self.reach)
                level = (math.floor(inside / step) + 0.5) * step
            out[i] = level - dither if is_subtracted else level

    def bits_after(self, bits: int) -> int:
        """Return `bits`."""
        return self.bits

    def added_variance(self) -> float | None:
        """Return Δ²/12 with dither, which holds where no value is clipped."""
        if self.rounding != "dithered":
            return None
        return (2.0 * self.reach / 2.0**self.bits) ** 2 / 12.0


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
