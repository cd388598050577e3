"""Norm clipping: a mean of updates, none longer than a multiple of the participants' median update.

With norms ‖u_k‖ of the P' participants who answered and c = factor · median_k ‖u_k‖, the server moves by

    P'/|S_n| · 1/P' Σ_k u_k · min(1, c / ‖u_k‖)

Clipping at the median adapts to how far the learning has come, where a fixed radius would not. A large factor gives
the mean.

References
----------
Nguyen et al., "FLAME: taming backdoors in federated learning", USENIX Security 2022 (without its clustering and
noise).
"""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import hook
from psofed.engine.hooks import AGGREGATION
from psofed.engine.streams import Stream
from psofed.parts.aggregations._shared import (
    RootData,
    answered_updates,
    gather_updates,
    norms_from,
    sort_lanes,
)
from psofed.parts.options import Options
from psofed.scenario import Scenario

OPTIONS = {
    "factor": {"default": 1.0, "low": 0.0, "open_low": True, "text": "longest allowed update, in medians"}
}


def options(scenario: Scenario, root_stream: Stream | None) -> FloatArray:
    """Return the factor."""
    return np.array([scenario.aggregation_options["factor"]], dtype=np.float64)


@hook(AGGREGATION)
def aggregate(entries, sent, options, server):
    """Move ``server`` by the mean of the clipped updates."""
    updates, answered, number = gather_updates(entries, sent, server)
    participants, dimension, lanes = updates.shape
    norms = norms_from(updates, np.zeros(server.shape))
    sorted_norms = np.empty(norms.shape)
    for p in range(participants):
        for lane in range(lanes):
            sorted_norms[p, lane] = norms[p, lane] if answered[p, lane] > 0 else np.inf
    sort_lanes(sorted_norms)
    for lane in range(lanes):
        count = np.int64(number[lane])
        if count > 0:
            middle = (sorted_norms[(count - 1) // 2, lane] + sorted_norms[count // 2, lane]) / 2
            for p in range(participants):
                bound = options[0] * middle
                norms[p, lane] = 1.0 if norms[p, lane] <= bound else bound / norms[p, lane]
    for p in range(participants):
        for i in range(dimension):
            for lane in range(lanes):
                server[i, lane] += norms[p, lane] * updates[p, i, lane] / participants


def combine(
    uploads: FloatArray, server: FloatArray, options: Options, root: RootData | None = None
) -> FloatArray:
    """Return the server's next model (see :func:`psofed.parts.aggregations.mean.combine`).

    Examples
    --------
    >>> from psofed.parts.options import make_options
    >>> uploads = np.array([[1.0, 0.0], [0.0, 2.0], [0.0, -50.0]])
    >>> combine(3 * uploads, np.zeros(2), make_options("aggregations", "norm-clipping", {}, ""))
    array([1., 0.])
    """
    updates, _ = answered_updates(uploads, server)
    if not len(updates):
        return server
    norms = np.linalg.norm(updates, axis=1)
    bound = options["factor"] * np.median(norms)
    factors = np.array([1.0 if norm <= bound else bound / norm for norm in norms])
    return np.asarray(server + (factors[:, None] * updates).sum(axis=0) / len(uploads))
