"""Centred clipping: a mean of updates, none of which counts for more than a radius around the running estimate.

From the server's own model, v = 0, on the updates u_k of the P' participants who answered:

    v ← v + 1/P' Σ_k (u_k − v) · min(1, radius / ‖u_k − v‖)          `iterations` times

The server moves by P'/|S_n| · v. An infinite radius would give the mean.

References
----------
Karimireddy, He, Jaggi, "Learning from history for Byzantine robust optimization", ICML 2021.
"""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled, hook
from psofed.engine.hooks import AGGREGATION
from psofed.engine.streams import Stream
from psofed.parts.aggregations._shared import RootData, answered_updates, gather_updates, norms_from
from psofed.parts.options import Options
from psofed.scenario import Scenario

OPTIONS = {
    "radius": {
        "default": 0.1,
        "low": 0.0,
        "open_low": True,
        "text": "how far an update may reach from the centre",
    },
    "iterations": {"default": 3, "low": 1, "text": "how often the centre is moved"},
}


def options(scenario: Scenario, root_stream: Stream | None) -> FloatArray:
    """Return radius and number of iterations."""
    return np.array([scenario.aggregation_options[name] for name in OPTIONS], dtype=np.float64)


@hook(AGGREGATION)
def aggregate(entries, sent, options, server):
    """Move ``server`` by the centre of the clipped updates."""
    updates, answered, number = gather_updates(entries, sent, server)
    centre = np.zeros(server.shape)
    for _ in range(np.int64(options[1])):
        move_centre(updates, answered, number, options[0], centre)
    participants, dimension, lanes = updates.shape
    for i in range(dimension):
        for lane in range(lanes):
            server[i, lane] += number[lane] / participants * centre[i, lane]


def combine(
    uploads: FloatArray, server: FloatArray, options: Options, root: RootData | None = None
) -> FloatArray:
    """Return the server's next model (see :func:`psofed.parts.aggregations.mean.combine`).

    Examples
    --------
    >>> from psofed.parts.options import make_options
    >>> uploads = np.array([[0.5, 0.0], [0.0, 40.0]])
    >>> options = make_options("aggregations", "centred-clipping", {"radius": 1.0, "iterations": 1}, "")
    >>> combine(uploads, np.zeros(2), options)
    array([0.25, 0.5 ])
    """
    updates, answered = answered_updates(uploads, server)
    if not len(updates):
        return server
    centre = np.zeros_like(server)
    for _ in range(int(options["iterations"])):
        norms = np.linalg.norm(updates - centre, axis=1)
        factors = np.array([1.0 if norm <= options["radius"] else options["radius"] / norm for norm in norms])
        centre = centre + (factors[:, None] * (updates - centre)).mean(axis=0)
    return np.asarray(server + answered.mean() * centre)


@compiled
def move_centre(updates, answered, number, radius, centre):
    """Move ``centre`` (D, lanes) by the mean of the clipped differences to it."""
    participants, dimension, lanes = updates.shape
    factors = norms_from(updates, centre)
    for p in range(participants):
        for lane in range(lanes):
            factor = radius / max(radius, factors[p, lane])
            factors[p, lane] = answered[p, lane] * factor / max(number[lane], 1.0)
    for i in range(dimension):
        for lane in range(lanes):
            old = centre[i, lane]
            for p in range(participants):
                centre[i, lane] += factors[p, lane] * (updates[p, i, lane] - old)
