"""Rules that choose some of the updates and average them."""

import math

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.parts import Aggregation, option
from psofed.parts.contexts import Updates
from psofed.parts.vectors import add_scaled, clear, length, part_of, ranks, squared_distance, sum_of_lowest


def length_key(vector: FloatArray) -> float:
    """Return ‖vector‖ to about seven digits; of equally long vectors the one with the lower sum comes first.

    Clipping makes vectors equally long but for rounding. Which of them is preferred must not hang on that, nor on the
    order of the participants.

    Examples
    --------
    >>> import numpy as np
    >>> length_key(np.array([3.0, -4.0])) < length_key(np.array([-3.0, 4.0])) < length_key(np.array([0.0, 5.01]))
    True
    """
    size = length(vector)
    spread = 536870913.0 * size  # 2²⁹ + 1: leaves 24 of the 53 bits
    total = 0.0
    for i in range(vector.size):
        total += vector[i]
    return float(spread - (spread - size) + 1e-7 * total)


def write_krum_ranks(changes: FloatArray, tolerated: int, scratch: FloatArray) -> None:
    """Write each participant's rank, from 0: by score, of equal scores by the update's length.

    A score is the sum of squared distances to the max(1, P' − f − 2) nearest others. Ranks are written to the front of
    ``scratch``, which is that of :class:`psofed.parts.contexts.Updates`.

    Examples
    --------
    Scores are 1.25, 1.25, 105.25 and 0.5.

    >>> import numpy as np
    >>> scratch = np.empty(26)
    >>> write_krum_ranks(np.array([[1.0], [2.0], [9.0], [1.5]]), 0, scratch)
    >>> scratch[:4]
    array([1., 2., 3., 0.])
    """
    count = changes.shape[0]
    scores, lengths = part_of(scratch, count, (count,)), part_of(scratch, 2 * count, (count,))
    # From each participant to the others.
    distances = part_of(scratch, 3 * count, (count, count - 1))
    for p in range(count):
        for other in range(p):
            distances[p, other] = squared_distance(changes[p], changes[other])
            distances[other, p - 1] = distances[p, other]
    neighbours = min(max(1, count - tolerated - 2), count - 1)
    for p in range(count):
        scores[p] = sum_of_lowest(distances[p], neighbours)
        lengths[p] = length_key(changes[p])
    ranks(scores, lengths, part_of(scratch, 0, (count,)))


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
        _average_lowest(updates, self.tolerated, 1, out)


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
        count = updates.changes.shape[0]
        wanted = self.selected if self.selected > 0 else count - self.tolerated
        _average_lowest(updates, self.tolerated, min(max(1, wanted), count), out)


def _average_lowest(updates: Updates, tolerated: int, selected: int, out: FloatArray) -> None:
    """Write the mean of the `selected` updates with the lowest of Krum's scores."""
    write_krum_ranks(updates.changes, tolerated, updates.scratch)
    for p in range(updates.changes.shape[0]):
        if updates.scratch[p] < selected:
            add_scaled(1.0 / selected, updates.changes[p], out)


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
        # Who is left out, in ascending order, now and in the best way so far; both together are less than half of all.
        now = part_of(scratch, count * count, (left_out,))
        best = part_of(scratch, count * count + left_out, (left_out,))
        is_out = part_of(scratch, count * count + count, (count,))
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
            _mark(now, is_out)
            diameter = total = 0.0
            for p in range(count):
                for other in range(0 if is_out[p] else p):
                    if not is_out[other]:
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
        _mark(best, is_out)
        for p in range(count):
            if not is_out[p]:
                add_scaled(1.0 / (count - left_out), changes[p], out)


def _mark(places: FloatArray, out: FloatArray) -> None:
    """Write 1 into `places` of ``out``, and 0 elsewhere."""
    clear(out)
    for j in range(places.size):
        out[int(places[j])] = 1.0
