"""Coordinate median: each entry moves towards the median of the numbers sent for it.

With q_i participants who sent entry i, w_i moves by q_i/|S_n| · (median − w_i); an entry that two sent goes towards
their mean, one that a single participant sent towards that number, as with the paper's mean.

References
----------
Yin, Chen, Ramchandran, Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates",
ICML 2018.
"""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import AGGREGATION
from psofed.engine.streams import Stream
from psofed.parts.aggregations._shared import LARGEST, RootData, move_by_trimmed_mean
from psofed.parts.options import Options
from psofed.scenario import Scenario


def options(scenario: Scenario, root_stream: Stream | None) -> FloatArray:
    """Return no numbers: the rule has no options."""
    return np.zeros(0)


@hook(AGGREGATION)
def aggregate(entries, sent, options, server):
    """Move each entry of ``server`` towards the median of what was sent for it."""
    move_by_trimmed_mean(entries, sent, sent.shape[0], server)


def combine(
    uploads: FloatArray, server: FloatArray, options: Options, root: RootData | None = None
) -> FloatArray:
    """Return the server's next model (see :func:`psofed.parts.aggregations.mean.combine`).

    Examples
    --------
    >>> from psofed.parts.options import make_options
    >>> uploads = np.array([[1.0, np.nan], [9.0, 4.0], [2.0, np.nan]])
    >>> combine(uploads, np.array([0.0, 1.0]), make_options("aggregations", "median", {}, ""))
    array([2., 2.])
    """
    following = server.copy()
    for i in range(len(server)):
        numbers = uploads[np.abs(uploads[:, i]) <= LARGEST, i]
        if len(numbers):
            following[i] += len(numbers) / len(uploads) * (np.median(numbers) - server[i])
    return following
