"""Coordinate median."""

from psofed.parts import Aggregation, option
from psofed.parts.contexts import Numbers
from psofed.parts.vectors import middle


class Median(Aggregation):
    """Coordinate median: each entry moves towards the median of the numbers sent for it.

    With q_i participants who sent entry i, w_i moves by q_i/|S_n| · (median − w_i). One number alone cannot outvote
    anybody, so where fewer than `quorum` arrived, the server's own value stands in for the missing ones. With the
    default of 3, of two numbers the one nearer to the server counts if both lie on the same side of it, and a single
    one does not count. A larger quorum is safer and learns more slowly. (With fewer participants than the quorum in
    all, nobody is missing.)

    References
    ----------
    Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates",
    ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> Median().combine(Numbers(np.array([1.0, 9.0, 2.0]), server=0.0))
    2.0
    """

    quorum: int = option(default=3, low=1, text="values an entry needs; the server's own value replaces missing ones")

    def combine(self, numbers: Numbers) -> float:
        """Return the median."""
        return middle(numbers.values)

    def fewest_numbers(self) -> int:
        """Return the quorum."""
        return self.quorum
