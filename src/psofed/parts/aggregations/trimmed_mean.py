"""Trimmed mean: each entry moves towards the mean of the numbers sent for it, without the lowest and highest few.

With q_i participants who sent entry i, min(trim, ⌊(q_i − 1)/2⌋) numbers are left out at either end, so an entry sent
by too few to trim goes towards their median; w_i moves by q_i/|S_n| of the way.

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

OPTIONS = {"trim": {"default": 1, "low": 0, "text": "how many numbers are left out at either end"}}


def options(scenario: Scenario, root_stream: Stream | None) -> FloatArray:
    """Return how many numbers are left out at either end."""
    return np.array([scenario.aggregation_options["trim"]], dtype=np.float64)


@hook(AGGREGATION)
def aggregate(entries, sent, options, server):
    """Move each entry of ``server`` towards the trimmed mean of what was sent for it."""
    move_by_trimmed_mean(entries, sent, np.int64(options[0]), server)


def combine(
    uploads: FloatArray, server: FloatArray, options: Options, root: RootData | None = None
) -> FloatArray:
    """Return the server's next model (see :func:`psofed.parts.aggregations.mean.combine`).

    Examples
    --------
    >>> from psofed.parts.options import make_options
    >>> uploads = np.array([[1.0, np.nan], [9.0, 4.0], [2.0, np.nan], [4.0, 1.0]])
    >>> combine(uploads, np.array([0.0, 1.0]), make_options("aggregations", "trimmed-mean", {"trim": 1}, ""))
    array([3.  , 1.75])
    """
    following = server.copy()
    for i in range(len(server)):
        numbers = np.sort(uploads[np.abs(uploads[:, i]) <= LARGEST, i])
        if len(numbers):
            cut = min(int(options["trim"]), (len(numbers) - 1) // 2)
            kept = numbers[cut : len(numbers) - cut]
            following[i] += len(numbers) / len(uploads) * (kept.mean() - server[i])
    return following
