"""Geometric median: the server moves towards the point whose distances to the participants' updates sum up least.

Smoothed Weiszfeld iteration from the server's own model, z = 0, on the updates u_k of those who answered:

    z ← Σ_k β_k u_k / Σ_k β_k,    β_k = 1 / max(smoothing, ‖u_k − z‖)

The server moves by P'/|S_n| · z. A smoothing far above all distances gives the mean.

References
----------
Pillutla, Kakade, Harchaoui, "Robust aggregation for federated learning", IEEE TSP 2022.
"""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled, hook
from psofed.engine.hooks import AGGREGATION
from psofed.engine.streams import Stream
from psofed.parts.aggregations._shared import (
    RootData,
    answered_updates,
    gather_updates,
    move_by_weighted_sum,
    norms_from,
)
from psofed.parts.options import Options
from psofed.scenario import Scenario

OPTIONS = {
    "smoothing": {"default": 1e-3, "low": 0.0, "open_low": True, "text": "least distance reckoned with"},
    "iterations": {"default": 8, "low": 1, "text": "of Weiszfeld"},
}


def options(scenario: Scenario, root_stream: Stream | None) -> FloatArray:
    """Return smoothing and number of iterations."""
    return np.array([scenario.aggregation_options[name] for name in OPTIONS], dtype=np.float64)


@hook(AGGREGATION)
def aggregate(entries, sent, options, server):
    """Move ``server`` by the geometric median of the updates."""
    updates, answered, number = gather_updates(entries, sent, server)
    centre = np.zeros(server.shape)
    weights = answered
    for t in range(np.int64(options[1])):
        weights = weights_about(updates, centre, answered, options[0])
        if t + 1 < options[1]:
            weighted_mean(updates, weights, centre)
    move_by_weighted_sum(updates, weights, number, server)


def combine(
    uploads: FloatArray, server: FloatArray, options: Options, root: RootData | None = None
) -> FloatArray:
    """Return the server's next model (see :func:`psofed.parts.aggregations.mean.combine`).

    Examples
    --------
    >>> from psofed.parts.options import make_options
    >>> uploads = np.array([[1.0, 1.0], [1.0, 1.0], [9.0, -9.0]])
    >>> combine(uploads, np.zeros(2), make_options("aggregations", "geometric-median", {}, "")).round(2)
    array([1., 1.])
    """
    updates, answered = answered_updates(uploads, server)
    if not len(updates):
        return server
    centre = np.zeros_like(server)
    for _ in range(int(options["iterations"])):
        weights = 1 / np.maximum(options["smoothing"], np.linalg.norm(updates - centre, axis=1))
        centre = weights @ updates / weights.sum()
    return np.asarray(server + answered.mean() * centre)


@compiled
def weights_about(updates, centre, answered, smoothing):
    """Return β (P, lanes), 0 for participants who did not answer."""
    norms = norms_from(updates, centre)
    participants, lanes = norms.shape
    for p in range(participants):
        for lane in range(lanes):
            norms[p, lane] = answered[p, lane] / max(smoothing, norms[p, lane])
    return norms


@compiled
def weighted_mean(updates, weights, out):
    """Write Σ_p β_p u_p / Σ_p β_p into ``out`` (D, lanes); 0 where nobody answered."""
    participants, dimension, lanes = updates.shape
    total = np.zeros(lanes)
    out[:] = 0.0
    for p in range(participants):
        for lane in range(lanes):
            total[lane] += weights[p, lane]
        for i in range(dimension):
            for lane in range(lanes):
                out[i, lane] += weights[p, lane] * updates[p, i, lane]
    for lane in range(lanes):
        total[lane] = 1.0 / total[lane] if total[lane] > 0 else 0.0
    for i in range(dimension):
        for lane in range(lanes):
            out[i, lane] *= total[lane]
