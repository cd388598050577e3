"""Multi-Krum."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts.aggregations._krum import krum_order
from psofed.parts.base import Aggregation
from psofed.parts.contexts import Updates
from psofed.parts.options import option
from psofed.parts.vectors import add_scaled


class MultiKrum(Aggregation):
    """Multi-Krum: the server averages the updates of the participants who have the closest neighbours.

    Scores are Krum's. The server moves by P'/|S_n| of the mean of the updates with the lowest scores: `selected` of
    them, or all but f of the P' who answered; at least one, at most P'.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries: Byzantine tolerant gradient
    descent", NeurIPS 2017.

    Examples
    --------
    >>> changes = np.array([[1.0, 1.0], [1.0, 2.0], [9.0, 9.0], [1.0, 1.5]])
    >>> MultiKrum(tolerated=1).combine(Updates(changes, changes != 0, np.zeros(2), np.zeros(2)))
    array([1. , 1.5])
    """

    over = "vectors"

    tolerated: int = option(default=1, low=0, text="f: how many attackers among the participants are assumed")
    selected: int = option(default=0, low=0, text="how many updates are averaged; 0: all who answered but f")

    def combine(self, updates: Updates) -> FloatArray:
        """Return the mean of the updates with the lowest scores."""
        changes = updates.changes
        wanted = self.selected if self.selected > 0 else changes.shape[0] - self.tolerated
        order = krum_order(changes, self.tolerated, max(1, wanted))
        mean = np.zeros(changes.shape[1])
        for p in order:
            add_scaled(1.0 / order.size, changes[p], mean)
        return mean
