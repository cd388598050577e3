"""The paper's rule: the average over participants of (uploaded entry, or the server's own where not shared).

w_{n+1} = 1/|S_n| Σ_{k∈S_n} [S_{k,n+1} w'_{k,n+1} + (I − S_{k,n+1}) w_n]  (psoagg)
"""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import AGGREGATION
from psofed.engine.streams import Stream
from psofed.parts.aggregations._shared import LARGEST, RootData, is_usable
from psofed.parts.options import Options
from psofed.scenario import Scenario


def options(scenario: Scenario, root_stream: Stream | None) -> FloatArray:
    """Return no numbers: the rule has no options."""
    return np.zeros(0)


@hook(AGGREGATION)
def aggregate(entries, sent, options, server):
    """Move each entry of ``server`` by the mean over all participants of what they sent less its old value."""
    participants, shared, lanes = sent.shape
    change = np.zeros(server.shape)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                i = entries[p, m, lane]
                if is_usable(sent[p, m, lane]):
                    change[i, lane] += sent[p, m, lane] - server[i, lane]
    for i in range(server.shape[0]):
        for lane in range(lanes):
            server[i, lane] += change[i, lane] / participants


def combine(
    uploads: FloatArray, server: FloatArray, options: Options, root: RootData | None = None
) -> FloatArray:
    """Return the server's next model.

    Parameters
    ----------
    uploads : array (P, D)
        Models of the participants; NaN where an entry was not sent.
    server : array (D,)
        w_n.
    options : Options
        Of the rule.
    root : RootData, optional
        The server's own samples, where the rule has some.

    Examples
    --------
    >>> from psofed.parts.options import make_options
    >>> uploads = np.array([[1.0, np.nan], [3.0, 2.0]])
    >>> combine(uploads, np.array([0.0, 1.0]), make_options("aggregations", "mean", {}, ""))
    array([2. , 1.5])
    """
    return np.asarray(np.where(np.abs(uploads) <= LARGEST, uploads, server).mean(axis=0))
