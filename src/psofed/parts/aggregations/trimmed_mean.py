"""Trimmed mean."""

from psofed.parts import Aggregation, option
from psofed.parts.contexts import Numbers
from psofed.parts.vectors import mean_of_inner


class TrimmedMean(Aggregation):
    """Trimmed mean: each entry moves towards the mean of what was sent for it, without the lowest and highest few.

    With q_i participants who sent entry i, w_i moves by q_i/|S_n| of the way towards the mean without the `trim` lowest
    and highest. Where fewer than `quorum` numbers arrived, the server's own value stands in for the missing ones, as
    with the median; by default the quorum is 2 · trim + 1, the fewest that leave one when trimmed.

    References
    ----------
    Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates",
    ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> TrimmedMean(trim=1).combine(Numbers(np.array([1.0, 9.0, 2.0, 4.0]), server=0.0))
    3.0
    """

    trim: int = option(default=1, low=0, text="values dropped at each end")
    quorum: int = option(default=0, low=0, text="values an entry needs; 0: 2 · trim + 1")

    def combine(self, numbers: Numbers) -> float:
        """Return the mean of the inner numbers; at least one or two in the middle are left."""
        return mean_of_inner(numbers.values, min(self.trim, (numbers.values.size - 1) // 2))

    def fewest_numbers(self) -> int:
        """Return the quorum."""
        return self.quorum or 2 * self.trim + 1
