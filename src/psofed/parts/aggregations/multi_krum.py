"""Multi-Krum: the server averages the updates of the participants who have the closest neighbours.

Scores are Krum's (:mod:`psofed.parts.aggregations.krum`). The server moves by P'/|S_n| of the mean of the updates with the
lowest scores: `selected` of them, or all but f of the P' who answered; at least one, at most P'.

References
----------
Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries: Byzantine tolerant gradient
descent", NeurIPS 2017.
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
    krum_scores,
    lowest_scores,
    move_by_weighted_sum,
    select_lowest,
)
from psofed.parts.options import Options
from psofed.scenario import Scenario

OPTIONS = {
    "tolerated": {
        "default": 1,
        "low": 0,
        "text": "f: how many attackers among the participants are reckoned with",
    },
    "selected": {"default": 0, "low": 0, "text": "how many updates are averaged; 0: all who answered but f"},
}


def options(scenario: Scenario, root_stream: Stream | None) -> FloatArray:
    """Return f and how many are selected."""
    return np.array([scenario.aggregation_options[name] for name in OPTIONS], dtype=np.float64)


@hook(AGGREGATION)
def aggregate(entries, sent, options, server):
    """Move ``server`` by the mean of the updates with the lowest scores."""
    updates, answered, number = gather_updates(entries, sent, server)
    scores, norms = krum_scores(updates, answered, number, np.int64(options[0]))
    selected = np.empty(number.size, np.int64)
    for lane in range(number.size):
        wanted = options[1] if options[1] > 0 else number[lane] - options[0]
        selected[lane] = max(1, np.int64(wanted))
    weights = select_lowest(scores, norms, answered, selected)
    move_by_weighted_sum(updates, weights, number, server)


def combine(
    uploads: FloatArray, server: FloatArray, options: Options, root: RootData | None = None
) -> FloatArray:
    """Return the server's next model (see :func:`psofed.parts.aggregations.mean.combine`).

    Examples
    --------
    >>> from psofed.parts.options import make_options
    >>> uploads = np.array([[1.0, 1.0], [1.0, 2.0], [9.0, 9.0], [1.0, 1.5]])
    >>> combine(uploads, np.zeros(2), make_options("aggregations", "multi-krum", {"tolerated": 1}, ""))
    array([1. , 1.5])
    """
    updates, answered = answered_updates(uploads, server)
    if not len(updates):
        return server
    f, selected = int(options["tolerated"]), int(options["selected"])
    chosen = lowest_scores(updates, f)[: max(1, selected or len(updates) - f)]
    return np.asarray(server + answered.mean() * updates[chosen].mean(axis=0))
