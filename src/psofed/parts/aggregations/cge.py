"""Comparative gradient elimination."""

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.aggregations._krum import length_key
from psofed.parts.contexts import Updates
from psofed.parts.vectors import add_scaled, part_of, ranks


class CGE(Aggregation):
    """Comparative gradient elimination: a mean of updates without the longest few.

    Of the P' participants who answered, the f with the longest updates are left out (at least one stays); the server
    moves by P'/|S_n| of the mean of the others. With f = 0 it is the mean. It holds against what is large, not against
    what is small and points the wrong way.

    References
    ----------
    Gupta, Liu, Vaidya, "Byzantine fault-tolerant distributed machine learning with norm-based comparative gradient
    elimination", DSN-W 2021. There gradients are added up; their mean is meant here, so that the stepsize keeps its
    meaning.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[1.0, 1.0], [1.0, 2.0], [9.0, 9.0], [1.0, 0.0]])
    >>> combine_uploads(CGE(tolerated=1), changes, np.zeros(2))
    array([1., 1.])
    """

    kind = "cge"
    over = "vectors"

    tolerated: int = option(default=1, low=0, text="number of longest updates left out (f)")

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Average the shorter updates."""
        changes, scratch = updates.changes, updates.scratch
        count = changes.shape[0]
        kept = max(1, count - self.tolerated)
        order, lengths = part_of(scratch, 0, (count,)), part_of(scratch, count, (count,))
        for p in range(count):
            lengths[p] = length_key(changes[p])
        ranks(lengths, lengths, order)
        for p in range(count):
            if order[p] < kept:
                add_scaled(1.0 / kept, changes[p], out)
