"""The built-in pre-aggregations."""

import math

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts import PreAggregation, option
from psofed.parts.contexts import AllUpdates
from psofed.parts.vectors import TINY, length, part_of, ranks, squared_distance


class NNM(PreAggregation):
    """Nearest-neighbour mixing: every update is replaced by the mean of the updates nearest to it.

    Of the P' participants who answered, each one's update becomes the mean of the P' − f updates nearest to it, its
    own included (at least that); of equally near ones, chance decides. Then the rule is applied. Honest updates come
    closer together, so that a rule can tell better who stands apart. With f = 0 all become the mean.

    References
    ----------
    Allouah, Farhadkhani, Guerraoui, Gupta, Pinot, Stephan, "Fixing by mixing: a recipe for optimal Byzantine ML under
    heterogeneity", AISTATS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import mix_uploads
    >>> mix_uploads(NNM(tolerated=1), np.array([[1.0], [2.0], [9.0]]), np.zeros(1), uniforms=np.zeros(3))
    array([[1.5],
           [1.5],
           [5.5]])
    """

    tolerated: int = option(default=1, low=0, text="assumed number of Byzantine participants (f)")

    def weigh(self, updates: AllUpdates, out: FloatArray) -> None:
        """Weigh the nearest equally."""
        changes, shared, scratch = updates.changes, updates.shared, updates.scratch
        count = changes.shape[0]
        distances, order = part_of(scratch, 0, (count,)), part_of(scratch, count, (count,))
        answered = 0
        for p in range(count):
            if np.any(shared[p]):
                answered += 1
        near = max(1, answered - self.tolerated)
        for p in range(count):
            if not np.any(shared[p]):
                continue
            for other in range(count):
                distances[other] = squared_distance(changes[p], changes[other]) if np.any(shared[other]) else math.inf
            ranks(distances, updates.uniforms, order)
            for other in range(count):
                if order[other] < near:
                    out[p, other] = 1.0 / near


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
            if np.any(shared[p]):
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


class Bucketing(PreAggregation):
    """Bucketing: participants are shuffled and put into buckets of a few; each bucket sends one mean update.

    In each iteration a fresh random order of all P participants is cut into ⌈P/size⌉ buckets of `size` (the last may
    be smaller), and the rule is applied to the buckets' means. Means differ less than their members, so a rule that
    picks or votes does less harm where clients differ; but one attacker spoils a bucket. With size = 1 nothing
    changes. A member that sent nothing counts with the server's own value, so where the buckets are equally large the
    mean of the buckets is the mean of all.

    References
    ----------
    Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR 2022.

    Examples
    --------
    The third participant's random number is the lowest, then the first's.

    >>> import numpy as np
    >>> from psofed.parts.plain import mix_uploads
    >>> uploads, uniforms = np.array([[1.0], [2.0], [9.0]]), np.array([0.4, 0.8, 0.1])
    >>> mix_uploads(Bucketing(size=2), uploads, np.zeros(1), uniforms=uniforms)
    array([[5.],
           [2.]])
    """

    size: int = option(default=2, low=1, text="number of updates averaged in a bucket (s)")

    def uploads_after(self, participants: int) -> int:
        """Return the number of buckets."""
        return -(-participants // self.size)

    def weigh(self, updates: AllUpdates, out: FloatArray) -> None:
        """Weigh the members of a bucket equally."""
        count = updates.changes.shape[0]
        order = part_of(updates.scratch, 0, (count,))
        ranks(updates.uniforms, updates.uniforms, order)
        for p in range(count):
            bucket = int(order[p]) // self.size
            out[bucket, p] = 1.0 / min(self.size, count - bucket * self.size)
