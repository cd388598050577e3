"""The paper's rule."""

import numpy as np

from psofed.parts import Aggregation
from psofed.parts.contexts import Numbers


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
