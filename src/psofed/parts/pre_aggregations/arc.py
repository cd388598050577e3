"""Adaptive robust clipping."""

from psofed.common.types import FloatArray
from psofed.parts import PreAggregation, option
from psofed.parts.contexts import AllUpdates
from psofed.parts.pre_aggregations._answered import has_answered
from psofed.parts.vectors import TINY, length, part_of, ranks


class ARC(PreAggregation):
    """Adaptive robust clipping: the longest updates are cut to the length of the longest of the others.

    Of the P' participants who answered, the k = ⌊2 (f/P') (P' − f)⌋ longest updates are shortened to the length of
    the (k + 1)-th longest. Then the rule is applied. With f = 0 nothing changes.

    References
    ----------
    Allouah, Guerraoui, Gupta, Jellouli, Rizk, Stephan, "Adaptive gradient clipping for robust federated learning",
    ICLR 2025.

    Examples
    --------
    Of four, k = ⌊2 · ¼ · 3⌋ = 1 is shortened.

    >>> import numpy as np
    >>> from psofed.parts.plain import mix_uploads
    >>> uploads = np.array([[1.0], [2.0], [-9.0], [3.0]])
    >>> mix_uploads(ARC(tolerated=1), uploads, np.zeros(1), uniforms=np.zeros(4))
    array([[ 1.],
           [ 2.],
           [-3.],
           [ 3.]])
    """

    kind = "arc"

    tolerated: int = option(default=1, low=0, text="assumed number of Byzantine participants (f)")

    def weigh(self, updates: AllUpdates, out: FloatArray) -> None:
        """Shorten the longest."""
        changes, shared, scratch = updates.changes, updates.shared, updates.scratch
        count = changes.shape[0]
        lengths, order = part_of(scratch, 0, (count,)), part_of(scratch, count, (count,))
        answered = 0
        for p in range(count):
            # The silent stand before all others.
            lengths[p] = -1.0
            if has_answered(shared[p]):
                lengths[p] = length(changes[p])
                answered += 1
        if answered == 0:
            return
        tolerated = min(self.tolerated, answered)
        shortened = 2 * tolerated * (answered - tolerated) // answered
        ranks(lengths, lengths, order)
        longest = 0.0
        for p in range(count):
            if order[p] == count - shortened - 1:
                longest = lengths[p]
        for p in range(count):
            if lengths[p] > longest:
                # Not 0, for it is sent, however short.
                out[p, p] = max(longest / lengths[p], TINY)
            elif lengths[p] >= 0.0:
                out[p, p] = 1.0
