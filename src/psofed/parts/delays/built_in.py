"""The built-in delays."""

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


class Geometric(Delay):
    """Geometric: P(l ≥ j) = r^j for the delay l; uploads that would take longer than `longest` are lost.

    References
    ----------
    Gauthier, Gogineni, Werner, Huang, Kuh, "Asynchronous online federated learning with reduced communication
    requirements", IEEE Internet of Things Journal 2023 (PAO-Fed).

    Examples
    --------
    With r = ½ a delay of at least 2 has probability ¼.

    >>> delay = Geometric(ratio=0.5, longest=2)
    >>> [delay.duration(Departure(client=0, iteration=0, uniform=u)) for u in (0.9, 0.3, 0.2, 0.1)]
    [0, 1, 2, -1]
    """

    ratio: float = option(low=0.0, high=1.0, open_high=True, text="r in P(l ≥ j) = r^j")
    longest: int = option(low=0, text="longest delay of an upload that is not lost")

    def duration(self, departure: Departure) -> int:
        """Return the largest l with u < r^l; negative if that is more than `longest`."""
        delay, chance = 0, self.ratio
        while departure.uniform < chance and delay <= self.longest:
            delay += 1
            chance *= self.ratio
        return delay if delay <= self.longest else -1

    def longest_delay(self) -> int:
        """Return `longest`."""
        return self.longest

    def chances(self) -> tuple[float, ...]:
        """Return r^l (1 − r) for each delay l."""
        return tuple(self.ratio**delay * (1.0 - self.ratio) for delay in range(self.longest + 1))
