"""The paper's rule: the average over participants of (uploaded entry, or the server's own where not shared).

w_{n+1} = 1/|S_n| Σ_{k∈S_n} [S_{k,n+1} w'_{k,n+1} + (I − S_{k,n+1}) w_n]  (psoagg)
"""

import numpy as np

from psofed.compiled import hook
from psofed.data import FloatArray
from psofed.hooks import AGGREGATION
from psofed.scenario import Scenario


def options(scenario: Scenario) -> FloatArray:
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
                if np.isfinite(sent[p, m, lane]):
                    change[i, lane] += sent[p, m, lane] - server[i, lane]
    for i in range(server.shape[0]):
        for lane in range(lanes):
            server[i, lane] += change[i, lane] / participants
