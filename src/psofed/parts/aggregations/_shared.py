"""What aggregation rules share: which numbers count, gathering them by entry or by participant, sorting lanes."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled

# Beyond this the sum of squares of two numbers and more overflows; such a number counts as not sent.
LARGEST = 1e150


@dataclass(frozen=True, eq=False)
class RootData:
    """The server's own samples, for rules that have some.

    Attributes
    ----------
    inputs : array (N, D)
        x of each sample.
    outputs : array (N,)
        y = wᵀx + ν.
    stepsize : float
        μ of the server's step on them.
    """

    inputs: FloatArray
    outputs: FloatArray
    stepsize: float


@compiled(inline=True)
def is_usable(number):
    """Whether a number counts as sent; false for NaN and infinity."""
    return abs(number) <= LARGEST


@compiled
def sort_lanes(values):
    """Sort ``values`` (rows, lanes) along the rows, every lane for itself, in place."""
    rows, lanes = values.shape
    # Comparing neighbours in the same order in all lanes makes vector code; few rows are the rule here.
    for last in range(rows - 1, 0, -1):
        for r in range(last):
            for lane in range(lanes):
                x, y = values[r, lane], values[r + 1, lane]
                values[r, lane] = min(x, y)
                values[r + 1, lane] = max(x, y)


@compiled
def move_by_trimmed_mean(entries, sent, trim, server):
    """Move each entry of ``server`` by q/P times the mean of its q changes without the `trim` lowest and highest.

    Where that would leave nothing, as many are left out as leave one or two in the middle: the median.
    """
    participants, shared, lanes = sent.shape
    dimension = server.shape[0]
    # Which lanes share what differs, so each lane numbers the entries it meets; few rows mean little sorting.
    row_of = np.full((dimension, lanes), -1, np.int32)
    most = min(dimension, participants * shared)
    entry_of = np.empty((most, lanes), np.int32)
    met = np.zeros(lanes, np.int32)
    count = np.zeros((most, lanes), np.int32)
    changes = np.full((most, participants, lanes), np.inf)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if is_usable(sent[p, m, lane]):
                    i = entries[p, m, lane]
                    row = row_of[i, lane]
                    if row < 0:
                        row = met[lane]
                        met[lane] += 1
                        row_of[i, lane] = row
                        entry_of[row, lane] = i
                    changes[row, count[row, lane], lane] = sent[p, m, lane] - server[i, lane]
                    count[row, lane] += 1
    for row in range(met.max()):
        sort_lanes(changes[row])
        for lane in range(lanes):
            if row < met[lane]:
                q = count[row, lane]
                cut = min(trim, (q - 1) // 2)
                total = 0.0
                for j in range(cut, q - cut):
                    total += changes[row, j, lane]
                server[entry_of[row, lane], lane] += total / (q - 2 * cut) * (q / participants)


@compiled
def gather_updates(entries, sent, server):
    """Return each participant's change of the server's error (P, D, lanes), who answered, and how many.

    Changes are 0 in entries a participant did not send. Who answered (P, lanes) is 1 for all who sent a usable
    number, else 0; their number is (lanes,).
    """
    participants, shared, lanes = sent.shape
    updates = np.zeros((participants, server.shape[0], lanes))
    answered = np.zeros((participants, lanes))
    number = np.zeros(lanes)
    for p in range(participants):
        for m in range(shared):
            for lane in range(lanes):
                if is_usable(sent[p, m, lane]):
                    i = entries[p, m, lane]
                    updates[p, i, lane] = sent[p, m, lane] - server[i, lane]
                    answered[p, lane] = 1.0
        for lane in range(lanes):
            number[lane] += answered[p, lane]
    return updates, answered, number


@compiled
def norms_from(updates, centre):
    """Return ‖u_p − c‖, shape (P, lanes), for ``updates`` (P, D, lanes) and ``centre`` (D, lanes)."""
    participants, dimension, lanes = updates.shape
    norms = np.zeros((participants, lanes))
    for p in range(participants):
        for i in range(dimension):
            for lane in range(lanes):
                difference = updates[p, i, lane] - centre[i, lane]
                norms[p, lane] += difference * difference
        for lane in range(lanes):
            norms[p, lane] = np.sqrt(norms[p, lane])
    return norms


@compiled
def move_by_weighted_sum(updates, weights, number, server):
    """Move ``server`` by P'/P times Σ_p weight_p u_p / Σ_p weight_p; not at all where all weights are 0."""
    participants, dimension, lanes = updates.shape
    scale = np.zeros(lanes)
    for p in range(participants):
        for lane in range(lanes):
            scale[lane] += weights[p, lane]
    for lane in range(lanes):
        if scale[lane] > 0:
            scale[lane] = number[lane] / participants / scale[lane]
    for p in range(participants):
        for i in range(dimension):
            for lane in range(lanes):
                server[i, lane] += scale[lane] * weights[p, lane] * updates[p, i, lane]


def answered_updates(uploads: FloatArray, server: FloatArray) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return w'_k − w_n of those participants who answered, zero where not sent; and who they are.

    Parameters
    ----------
    uploads : array (P, D)
        NaN where an entry was not sent.
    server : array (D,)
        w_n.
    """
    sent = np.abs(uploads) <= LARGEST
    answered = np.asarray(sent.any(axis=1))
    return np.where(sent, uploads - server, 0.0)[answered], answered


@compiled
def krum_scores(updates, answered, number, tolerated):
    """Return Krum's scores and the norms of all updates, both (P, lanes); infinite for who did not answer."""
    participants, dimension, lanes = updates.shape
    distances = np.empty((participants, participants, lanes))
    norms = norms_from(updates, np.zeros((dimension, lanes)))
    for p in range(participants):
        for other in range(p):
            squares = distances[p, other]
            squares[:] = 0.0
            for i in range(dimension):
                for lane in range(lanes):
                    difference = updates[p, i, lane] - updates[other, i, lane]
                    squares[lane] += difference * difference
            for lane in range(lanes):
                if answered[p, lane] * answered[other, lane] == 0.0:
                    squares[lane] = np.inf
                distances[other, p, lane] = squares[lane]
    scores = np.zeros((participants, lanes))
    for p in range(participants):
        distances[p, p] = np.inf
        sort_lanes(distances[p])
        for lane in range(lanes):
            if answered[p, lane] == 0.0:
                scores[p, lane] = np.inf
                continue
            others = np.int64(number[lane]) - 1
            for j in range(min(max(1, others - tolerated - 1), others)):
                scores[p, lane] += distances[p, j, lane]
    return scores, norms


@compiled
def select_lowest(scores, norms, answered, selected):
    """Return weights (P, lanes): 1 for the ``selected[lane]`` lowest scores of those who answered, else 0.

    Of equal scores the lower norm comes first.
    """
    participants, lanes = scores.shape
    weights = np.zeros((participants, lanes))
    for lane in range(lanes):
        for _ in range(min(selected[lane], participants)):
            best = -1
            for p in range(participants):
                if answered[p, lane] > 0 and weights[p, lane] == 0.0:
                    lower = best < 0 or scores[p, lane] < scores[best, lane]
                    if lower or (
                        scores[p, lane] == scores[best, lane] and norms[p, lane] < norms[best, lane]
                    ):
                        best = p
            if best >= 0:
                weights[best, lane] = 1.0
    return weights


def lowest_scores(updates: FloatArray, tolerated: int) -> list[int]:
    """Return the numbers of the `updates` (P', D) in the order of their Krum scores, of equal ones by norm."""
    count = len(updates)
    distances = ((updates[:, None] - updates[None]) ** 2).sum(axis=2)
    neighbours = min(max(1, count - tolerated - 2), count - 1)
    scores = [np.sort(np.delete(distances[k], k))[:neighbours].sum() for k in range(count)]
    return sorted(range(count), key=lambda k: (scores[k], np.linalg.norm(updates[k])))
