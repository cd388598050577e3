"""A link of few bits."""

import math

from psofed.common.types import FloatArray
from psofed.parts import Channel, option
from psofed.parts.contexts import Transmission


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
            level = _nearest_level(transmission.values[i] + dither, step, self.reach)
            out[i] = level - dither if is_subtracted else level

    def bits_after(self, bits: int) -> int:
        """Return `bits`."""
        return self.bits

    def added_variance(self) -> float | None:
        """Return Δ²/12 with dither, which holds where no value is clipped."""
        if self.rounding != "dithered":
            return None
        return (2.0 * self.reach / 2.0**self.bits) ** 2 / 12.0


def _nearest_level(value: float, step: float, reach: float) -> float:
    """Return the level (j + ½) Δ nearest to a value; NaN if it is not finite."""
    if not math.isfinite(value):
        return math.nan
    inside = max(min(value, reach - 0.5 * step), 0.5 * step - reach)
    return (math.floor(inside / step) + 0.5) * step
