"""Multi-Krum."""

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.aggregations._krum import write_krum_ranks
from psofed.parts.contexts import Updates
from psofed.parts.vectors import add_scaled


class MultiKrum(Aggregation):
    """Multi-Krum: the server averages the updates of the participants with the closest neighbours.

    Scores are Krum's. The server moves by P'/|S_n| of the mean of the updates with the lowest scores: `selected` of
    them, or all but f of the P' who answered; at least one, at most P'.

    References
    ----------
    Blanchard, El Mhamdi, Guerraoui, Stainer, "Machine learning with adversaries: Byzantine tolerant gradient
    descent", NeurIPS 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[1.0, 1.0], [1.0, 2.0], [9.0, 9.0], [1.0, 1.5]])
    >>> combine_uploads(MultiKrum(tolerated=1), changes, np.zeros(2))
    array([1. , 1.5])
    """

    over = "vectors"

    tolerated: int = option(default=1, low=0, text="assumed number of Byzantine participants (f)")
    selected: int = option(default=0, low=0, text="number of updates averaged; 0: all received but f")

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Average the updates with the lowest scores."""
        changes = updates.changes
        count = changes.shape[0]
        wanted = self.selected if self.selected > 0 else count - self.tolerated
        selected = min(max(1, wanted), count)
        write_krum_ranks(changes, self.tolerated, updates.scratch)
        for p in range(count):
            if updates.scratch[p] < selected:
                add_scaled(1.0 / selected, changes[p], out)
