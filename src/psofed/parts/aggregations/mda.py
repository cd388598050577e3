"""Minimum-diameter averaging."""

import math

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.contexts import Updates
from psofed.parts.vectors import add_scaled, part_of, squared_distance

# All ways to leave out f of P are tried, in every iteration.
MOST_SUBSETS = 10_000


class MDA(Aggregation):
    """Minimum-diameter averaging: the mean of the P' − f updates that lie closest together.

    Of all ways to leave out f of the P' participants who answered (more than half always stay), the one is taken whose
    remaining updates have the smallest diameter, the largest distance between two of them; of equal diameters, which
    are common, the one with the smallest sum of squared distances. Diameters and sums count as equal if they differ by
    a rounding error, 10⁻¹² of the smaller. The server moves by P'/|S_n| of their mean. With f = 0 it is the mean. All
    ways are tried, so only small cases are allowed: at most 10,000 ways, for example P = 16 with f = 5, or P = 30 with
    f = 3.

    References
    ----------
    Rousseeuw, "Multivariate estimation with high breakdown point", 1985; El Mhamdi, Guerraoui, Guirguis, Hoang,
    Rouault, "Genuinely distributed Byzantine machine learning", PODC 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from psofed.parts.plain import combine_uploads
    >>> changes = np.array([[1.0, 1.0], [1.0, 2.0], [9.0, 9.0], [1.0, 0.0]])
    >>> combine_uploads(MDA(tolerated=1), changes, np.zeros(2))
    array([1., 1.])
    """

    kind = "mda"
    over = "vectors"

    tolerated: int = option(default=1, low=0, text="number of updates left out (f)")

    def check_participants(self, participants: int) -> None:
        """Refuse more ways to leave out f of the participants than can be tried."""
        ways = math.comb(participants, min(self.tolerated, (participants - 1) // 2))
        if ways > MOST_SUBSETS:
            allowed = (
                f'small enough for "mda" to try all subsets: {participants} participants have {ways:,} of that size, '
                f"and at most {MOST_SUBSETS:,} are tried"
            )
            raise InvalidValueError("aggregation_options.tolerated", self.tolerated, allowed)

    def combine(self, updates: Updates, out: FloatArray) -> None:
        """Try all subsets."""
        changes, scratch = updates.changes, updates.scratch
        count = changes.shape[0]
        left_out = min(self.tolerated, (count - 1) // 2)
        distances = part_of(scratch, 0, (count, count))
        # Who is left out, in ascending order, now and in the best way so far; then a flag for each.
        now, best = (part_of(scratch, count * count, (count,)), part_of(scratch, count * count + count, (count,)))
        for p in range(count):
            for other in range(p):
                distances[p, other] = squared_distance(changes[p], changes[other])
        for j in range(left_out):
            now[j] = best[j] = j
        smallest = least = math.inf
        # Clipped updates that share no entry are equally far apart but for rounding, which must not decide. The margins
        # are relative to the smallest values: one distant Byzantine update must not make all others count as equal.
        below, above = 1.0 - 1e-12, 1.0 + 1e-12
        while True:
            diameter = total = 0.0
            next_out = 0
            for p in range(count):
                if next_out < left_out and now[next_out] == p:
                    next_out += 1
                    continue
                other_out = 0
                for other in range(p):
                    if other_out < left_out and now[other_out] == other:
                        other_out += 1
                        continue
                    diameter = max(diameter, distances[p, other])
                    total += distances[p, other]
                if diameter > above * smallest:
                    break
            if diameter < below * smallest or (diameter <= above * smallest and total < below * least):
                smallest, least = min(smallest, diameter), total
                for j in range(left_out):
                    best[j] = now[j]
            # The next way, in lexicographic order.
            j = left_out - 1
            while j >= 0 and now[j] == count - left_out + j:
                j -= 1
            if j < 0:
                break
            now[j] += 1.0
            for later in range(j + 1, left_out):
                now[later] = now[later - 1] + 1.0
        next_out = 0
        for p in range(count):
            if next_out < left_out and best[next_out] == p:
                next_out += 1
            else:
                add_scaled(1.0 / (count - left_out), changes[p], out)
