"""Norm clipping."""

from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.contexts import Updates
from psofed.parts.vectors import TINY, add_scaled, length, middle, part_of


class NormClipping(Aggregation):
    """Norm clipping: a mean of updates, none longer than a multiple of the participants' median update.

    With norms ‖u_k‖ of the P' participants who answered and c = factor · median_k ‖u_k‖, the server moves by

        P'/|S_n| · 1/P' Σ_k u_k · min(1, c / ‖u_k‖)

    Clipping at the median adapts to how far the learning has come, where a fixed radius would not. A large factor
    gives the mean.

    References
    ----------
    Nguyen et al., "FLAME: taming backdoors in federated learning", USENIX Security 2022 (without its clustering and
    noise).

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[3.0, 0.0], [0.0, 6.0], [0.0, -150.0]])
    >>> combine_uploads(NormClipping(), changes, np.zeros(2))
    array([1., 0.])
    """

    over = "vectors"

    factor: float = option(default=1.0, low=0.0, open_low=True, text="longest update, in median lengths")

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Average the clipped updates."""
        changes = updates.changes
        count = changes.shape[0]
        lengths, ordered = part_of(updates.scratch, 0, (count,)), part_of(updates.scratch, count, (count,))
        for p in range(count):
            lengths[p] = ordered[p] = length(changes[p])
        bound = self.factor * middle(ordered)
        for p in range(count):
            # 1 or bound / length, of the count-th part.
            add_scaled(bound / count / max(lengths[p], bound, TINY), changes[p], out)
