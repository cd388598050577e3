"""Rules that combine the numbers of each entry on their own."""

import numpy as np

from psofed.parts import Aggregation, option
from psofed.parts.contexts import Numbers
from psofed.parts.vectors import mean_near, mean_of_inner, middle


class Mean(Aggregation):
    """The paper's rule: the average over participants of (uploaded entry, or the server's own where not shared).

    w_{n+1} = 1/|S_n| Σ_{k∈S_n} [S_{k,n+1} w'_{k,n+1} + (I − S_{k,n+1}) w_n]  (psoagg)

    Examples
    --------
    >>> Mean().combine(Numbers(np.array([1.0, 3.0]), server=0.0))
    2.0
    """

    def combine(self, numbers: Numbers) -> float:
        """Average what arrived; the engine lets the server's own value count for the others."""
        return float(np.mean(numbers.values))


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


class _Nearest(Aggregation):
    """Options of rules that leave out the values farthest from a centre."""

    tolerated: int = option(default=1, low=0, text="number of farthest values left out (f)")
    quorum: int = option(default=0, low=0, text="values an entry needs; 0: 2 · tolerated + 1")

    def fewest_numbers(self) -> int:
        """Return the quorum."""
        return self.quorum or 2 * self.tolerated + 1


class MeaMed(_Nearest):
    """Mean around the median: each entry moves towards the mean of the numbers nearest to their median.

    With q_i participants who sent entry i, w_i moves by q_i/|S_n| of the way towards the mean of the q_i − f numbers
    that are nearest to the median of all (more than half of them always count). Where fewer than `quorum` numbers
    arrived, the server's own value stands in for the missing ones, as with the median; by default the quorum is
    2 f + 1. With f = 0 it is the mean.

    References
    ----------
    Xie, Koyejo, Gupta, "Generalized Byzantine-tolerant SGD", arXiv:1802.10116, 2018.

    Examples
    --------
    >>> import numpy as np
    >>> MeaMed(tolerated=1).combine(Numbers(np.array([1.0, 9.0, 2.0, 3.0]), server=0.0))
    2.0
    """

    kind = "meamed"

    def combine(self, numbers: Numbers) -> float:
        """Average what is nearest to the median."""
        values = numbers.values
        left_out = min(self.tolerated, (values.size - 1) // 2)
        return mean_near(values, middle(values), values.size - left_out)


class Phocas(_Nearest):
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

    def combine(self, numbers: Numbers) -> float:
        """Average what is nearest to the trimmed mean."""
        values = numbers.values
        left_out = min(self.tolerated, (values.size - 1) // 2)
        return mean_near(values, mean_of_inner(values, left_out), values.size - left_out)
