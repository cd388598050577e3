"""Krum: the server takes the update of the one participant who has the closest neighbours.

Of the P' participants who answered, each is scored by the sum of the squared distances of its update to the
max(1, P' − f − 2) nearest others; the lowest score wins, and of equal scores the update nearest to the server's own
model. The server moves by P'/|S_n| of that update. The guarantee of the paper needs P' ≥ 2f + 3.

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
    }
}


def options(scenario: Scenario, root_stream: Stream | None) -> FloatArray:
    """Return f."""
    return np.array([scenario.aggregation_options["tolerated"]], dtype=np.float64)


@hook(AGGREGATION)
def aggregate(entries, sent, options, server):
    """Move ``server`` by the update with the lowest score."""
    updates, answered, number = gather_updates(entries, sent, server)
    scores, norms = krum_scores(updates, answered, number, np.int64(options[0]))
    weights = select_lowest(scores, norms, answered, np.ones(number.size, np.int64))
    move_by_weighted_sum(updates, weights, number, server)


def combine(
    uploads: FloatArray, server: FloatArray, options: Options, root: RootData | None = None
) -> FloatArray:
    """Return the server's next model (see :func:`psofed.parts.aggregations.mean.combine`).

    Examples
    --------
    >>> from psofed.parts.options import make_options
    >>> uploads = np.array([[1.0, 1.0], [1.0, 2.0], [9.0, 9.0], [1.0, 1.5]])
    >>> combine(uploads, np.zeros(2), make_options("aggregations", "krum", {"tolerated": 0}, ""))
    array([1. , 1.5])
    """
    updates, answered = answered_updates(uploads, server)
    if not len(updates):
        return server
    chosen = lowest_scores(updates, int(options["tolerated"]))[0]
    return np.asarray(server + answered.mean() * updates[chosen])
