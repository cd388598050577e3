"""Who answered."""

import numpy as np
from numpy.typing import NDArray


def has_answered(shared: NDArray[np.bool_]) -> bool:
    """Return whether a participant sent anything, from the flags of the entries it shared.

    Examples
    --------
    >>> has_answered(np.array([False, True])), has_answered(np.array([False]))
    (True, False)
    """
    answered = False
    for i in range(shared.size):
        answered = answered or bool(shared[i])
    return answered
