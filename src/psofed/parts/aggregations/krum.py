"""Krum."""

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.aggregations._krum import write_krum_ranks
from psofed.parts.contexts import Updates
from psofed.parts.vectors import add_scaled


class Krum(Aggregation):
    """Krum: the server takes the update of the participant with the closest neighbours.

    Of the P' participants who answered, each is scored by the sum of the squared distances of its update to the
    max(1, P' − f − 2) nearest others; the lowest score wins, and of equal scores the shortest update. The server moves
    by P'/|S_n| of that update. The guarantee of the paper needs P' ≥ 2f + 3.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries: Byzantine tolerant gradient
    descent", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[1.0, 1.0], [1.0, 2.0], [9.0, 9.0], [1.0, 1.5]])
    >>> combine_uploads(Krum(tolerated=0), changes, np.zeros(2))
    array([1. , 1.5])
    """

    over = "vectors"

    tolerated: int = option(default=1, low=0, text="assumed number of Byzantine participants (f)")

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Take the update with the lowest score."""
        changes = updates.changes
        write_krum_ranks(changes, self.tolerated, updates.scratch)
        best = 0
        for p in range(changes.shape[0]):
            best = p if updates.scratch[p] == 0.0 else best
        add_scaled(1.0, changes[best], out)
