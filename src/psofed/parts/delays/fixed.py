"""A constant delay."""

from psofed.parts import Delay, option
from psofed.parts.contexts import Departure


class Fixed(Delay):
    """Fixed: every upload arrives after the same number of iterations.

    Examples
    --------
    >>> Fixed(iterations=3).duration(Departure(client=0, iteration=0, uniform=0.5))
    3
    """

    iterations: int = option(low=0, text="iterations between an upload and its arrival")

    def duration(self, departure: Departure) -> int:
        """Return `iterations`."""
        return self.iterations

    def longest_delay(self) -> int:
        """Return `iterations`."""
        return self.iterations

    def chances(self) -> tuple[float, ...]:
        """Return 1 for a delay of `iterations`."""
        return (*(0.0,) * self.iterations, 1.0)

    def most_at_once(self) -> int:
        """Return 1: uploads arrive in the order in which they were made."""
        return 1
