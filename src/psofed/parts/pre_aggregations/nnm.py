"""Nearest-neighbour mixing."""

import math

from psofed.common.types import FloatArray
from psofed.parts import PreAggregation, option
from psofed.parts.contexts import AllUpdates
from psofed.parts.pre_aggregations._answered import has_answered
from psofed.parts.vectors import part_of, ranks, squared_distance


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

    kind = "nnm"

    tolerated: int = option(default=1, low=0, text="assumed number of Byzantine participants (f)")

    def weigh(self, updates: AllUpdates, out: FloatArray) -> None:
        """Weigh the nearest equally."""
        changes, shared, scratch = updates.changes, updates.shared, updates.scratch
        count = changes.shape[0]
        distances, order = part_of(scratch, 0, (count,)), part_of(scratch, count, (count,))
        answered = 0
        for p in range(count):
            if has_answered(shared[p]):
                answered += 1
        near = max(1, answered - self.tolerated)
        for p in range(count):
            if not has_answered(shared[p]):
                continue
            for other in range(count):
                distances[other] = (
                    squared_distance(changes[p], changes[other]) if has_answered(shared[other]) else math.inf
                )
            ranks(distances, updates.uniforms, order)
            for other in range(count):
                if order[other] < near:
                    out[p, other] = 1.0 / near
