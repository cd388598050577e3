"""Phocas."""

from psofed.parts import Aggregation, option
from psofed.parts.contexts import Numbers
from psofed.parts.vectors import mean_near, mean_of_inner


class Phocas(Aggregation):
    """Phocas: each entry moves towards the mean of the numbers nearest to their trimmed mean.

    With q_i participants who sent entry i, w_i moves by q_i/|S_n| of the way towards the mean of the q_i − f numbers
    that are nearest to the mean without the f lowest and highest (more than half of them always count). Where fewer
    than `quorum` numbers arrived, the server's own value stands in for the missing ones, as with the trimmed mean; by
    default the quorum is 2 f + 1. With f = 0 it is the mean.

    References
    ----------
    Xie, Koyejo, Gupta, "Phocas: dimensional Byzantine-resilient stochastic gradient descent", arXiv:1805.09682, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> Phocas(tolerated=1).combine(Numbers(np.array([1.0, 9.0, 2.0, 3.0]), server=0.0))
    2.0
    """

    tolerated: int = option(default=1, low=0, text="number of farthest values left out (f)")
    quorum: int = option(default=0, low=0, text="values an entry needs; 0: 2 · tolerated + 1")

    def combine(self, numbers: Numbers) -> float:
        """Average what is nearest to the trimmed mean."""
        values = numbers.values
        left_out = min(self.tolerated, (values.size - 1) // 2)
        return mean_near(values, mean_of_inner(values, left_out), values.size - left_out)

    def fewest_numbers(self) -> int:
        """Return the quorum."""
        return self.quorum or 2 * self.tolerated + 1
