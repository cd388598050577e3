"""Which clients' errors stand out from the others'."""

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray

# A client stands out if its error is this many robust deviations from the others', and at least this factor.
_DEVIATIONS, _FACTOR = 3.0, 1.5
_FEWEST = 5


def stands_out(scores: FloatArray, times: FloatArray) -> NDArray[np.bool_]:
    """Return which clients stand out: three robust deviations from the median, and a factor of 1.5."""
    return np.asarray((np.abs(scores) > _DEVIATIONS) & (np.abs(np.log(times)) > np.log(_FACTOR)))


def robust_scores(errors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return how far each error is from the others' in robust deviations of its logarithm, and its ratio to the median.

    Examples
    --------
    >>> scores, times = robust_scores(np.array([0.40, 0.42, 0.38, 0.41, 0.39, 1.56]))
    >>> bool(scores[-1] > 10), round(float(times[-1]), 1), bool(abs(scores[:-1]).max() < 3)
    (True, 3.9, True)
    """
    fit = np.isfinite(errors) & (errors > 0)
    scores, times = np.zeros(errors.shape), np.ones(errors.shape)
    if fit.sum() < _FEWEST:
        return scores, times
    logs = np.log(errors[fit])
    middle = np.median(logs)
    spread = 1.4826 * np.median(np.abs(logs - middle))
    # Errors that agree to the last digit would make any other stand out; a hundredth is a difference of no interest.
    scores[fit] = (logs - middle) / max(spread, 0.01)
    times[fit] = np.exp(logs - middle)
    return scores, times
