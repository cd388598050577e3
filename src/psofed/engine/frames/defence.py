"""Frame of defences: calls the body for each upload and excludes suspicious clients.

What :class:`psofed.parts.watching.Watch` does, in loops over trials.
"""

from math import inf, log, nan, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.bodies import Body, Frame, Hook, Unpack, make_hook
from psofed.engine.compiling import jitable
from psofed.engine.hooks import DEFENCE, Uploads, Watching
from psofed.parts.base import Defence
from psofed.parts.contexts import Evidence
from psofed.parts.plain import LARGEST
from psofed.parts.vectors import middle, part_of
from psofed.parts.watching import (
    LARGEST_SCORE,
    LEVEL_FACTOR,
    LEVEL_RATE,
    MEDIAN_SQUARE,
    OWN_HIGH,
    OWN_LOW,
    OWN_MOST,
    OWN_RATE,
    WatchPlan,
)

# Peaks of honest suspicion are counted in bins: LOWEST_PEAK · PEAK_RATIO^b is the lower end of bin b.
LOWEST_PEAK, PEAK_RATIO, PEAK_BINS = 0.01, 1.02, 1400


def defence_hook(defence: Defence) -> Hook:
    """Return the hook of a defence."""
    return make_hook(defence, "suspicion", DEFENCE, _make_frame)


def make_watching(
    defence: Defence,
    plan: WatchPlan,
    *,
    clients: int,
    participants: int,
    numbers: int,
    dimension: int,
    lanes: int,
) -> Watching:
    """Return a defence's memory and scratch; `numbers` is the largest number of values in an upload."""
    rows = min(dimension, participants * numbers)
    counts_peaks = plan.threshold == inf
    whole, real = (clients, lanes), participants * (numbers + rows + 4) + numbers + 1 + clients
    return Watching(
        threshold=plan.threshold,
        return_after=defence.return_after if defence.return_after else -1,
        by_server=defence.reference == "server",
        by_past=plan.by_past,
        variance=np.zeros((0, clients)) if plan.is_estimated else plan.variance.copy(),
        memory=np.zeros((clients, lanes, defence.memory_size)),
        usual_level=plan.usual_level,
        level=np.full(lanes, 0.0 if plan.is_estimated else plan.usual_level),
        log_levels=np.zeros(lanes),
        relative=np.full(whole, 0.0 if plan.by_past else 1.0),
        left=np.zeros(whole, np.int64),
        first=np.full(whole, -1, np.int64),
        since=np.zeros(whole, np.int64),
        exclusions=np.zeros(whole, np.int64),
        finished=np.zeros(whole, np.int64),
        peak=np.zeros(whole),
        peaks=np.zeros((PEAK_BINS if counts_peaks else 0, lanes), np.int64),
        numbers=np.empty(real),
        row_of=np.full(dimension, -1, np.int64),
        entry_of=np.empty(rows, np.int64),
    )


def all_peaks(watching: Watching, lanes: int) -> NDArray[np.int64]:
    """Return the number of peaks of the first trials in each bin.

    A peak counts once suspicion has fallen to half of it. What has not by the end of a run counts with the highest it
    came to: the suspicion of a client whose honest uploads always differ from the others' keeps climbing, and is what
    raises most alarms.
    """
    still = watching.peak[:, :lanes].ravel()
    still = still[still >= LOWEST_PEAK]
    bins = np.minimum(np.log(still / LOWEST_PEAK) / log(PEAK_RATIO), PEAK_BINS - 1).astype(np.int64)
    counts: NDArray[np.int64] = watching.peaks[:, :lanes].sum(axis=1) + np.bincount(bins, minlength=PEAK_BINS)
    return counts


@jitable
def _expect(
    p: int, i: int, participants: int, own: float, row: int, values: FloatArray, scratch: FloatArray
) -> float:
    """Return the median of the others' values for entry i and the server's value."""
    count = 1
    scratch[0] = own
    for q in range(participants):
        value = values[row * participants + q]
        if q != p and value == value:
            scratch[count] = value
            count += 1
    return middle(part_of(scratch, 0, (count,)))


@jitable
def _middle_of_others(p: int, participants: int, values: FloatArray, scratch: FloatArray) -> float:
    """Return the median of the finite values except one; NaN if there are none."""
    count = 0
    for q in range(participants):
        if q != p and values[q] == values[q]:
            scratch[count] = values[q]
            count += 1
    return middle(part_of(scratch, 0, (count,))) if count else nan


@jitable
def _upper_middle(count: int, dropped: int, values: FloatArray) -> float:
    """Return the median of the first values without the lowest; they are left in order."""
    part_of(values, 0, (count,)).sort()
    return middle(part_of(values, dropped, (count - dropped,)))


@jitable
def _upper_variance(lane: int, watch: Watching, scratch: FloatArray) -> float:
    """Return the fleet's variance by the clients' pasts; 0 if none has one."""
    count = 0
    for k in range(watch.left.shape[0]):
        if watch.relative[k, lane] > 0.0:
            scratch[count] = watch.relative[k, lane]
            count += 1
    return _upper_middle(count, (count - 1) // 3, scratch) if count else 0.0


@jitable
def _begin_past(lane: int, clients: Any, squares: FloatArray, watch: Watching, scratch: FloatArray) -> None:
    """Let clients without a past begin with the fleet's variance, or with the squares of the first iteration."""
    fleet, count = _upper_variance(lane, watch, scratch), 0
    if fleet == 0.0:
        for p in range(squares.size):
            if squares[p] == squares[p]:
                scratch[count] = squares[p] / MEDIAN_SQUARE
                count += 1
        if count:
            fleet = _upper_middle(count, (count - 1) // 3, scratch)
    for p in range(squares.size):
        if squares[p] == squares[p] and watch.relative[clients[p, lane], lane] == 0.0:
            watch.relative[clients[p, lane], lane] = fleet


@jitable
def _learn_past(lane: int, clients: Any, squares: FloatArray, watch: Watching, scratch: FloatArray) -> None:
    """Move the variances of those who are in towards their squares, and hold all within a range of the fleet's."""
    for p in range(squares.size):
        k = clients[p, lane]
        if squares[p] == squares[p] and watch.left[k, lane] == 0:
            own = watch.relative[k, lane]
            watch.relative[k, lane] = own + OWN_RATE * (min(squares[p], OWN_MOST * own) - own)
    fleet = _upper_variance(lane, watch, scratch)
    for k in range(watch.left.shape[0]):
        if watch.relative[k, lane] > 0.0:
            watch.relative[k, lane] = min(max(watch.relative[k, lane], OWN_LOW * fleet), OWN_HIGH * fleet)


@jitable
def _excludes_enough(lane: int, watch: Watching) -> bool:
    """Tell whether a third of the clients is excluded."""
    clients, count = watch.left.shape[0], 0
    for k in range(clients):
        if watch.left[k, lane] != 0:
            count += 1
    return bool(count >= (clients - 1) // 3)


@jitable
def _group(lane: int, uploads: Uploads, watch: Watching, values: FloatArray) -> int:
    """Group the values of included clients by entry, one row per entry; return the number of entries."""
    entries, sent, clients = uploads.entries, uploads.sent, uploads.clients
    participants, shared, _ = sent.shape
    met = 0
    for p in range(participants):
        if watch.left[clients[p, lane], lane] != 0:
            continue
        for m in range(shared):
            number = sent[p, m, lane]
            if abs(number) <= LARGEST:
                i = entries[p, m, lane]
                row = watch.row_of[i]
                if row < 0:
                    row = met
                    met += 1
                    watch.row_of[i] = row
                    watch.entry_of[row] = i
                    for q in range(participants):
                        values[row * participants + q] = nan
                values[row * participants + p] = number
    return met


@jitable
def _follow(typical: float, lane: int, watch: Watching) -> None:
    """Update the fleet's level from the median of an iteration."""
    level = watch.level[lane]
    if level == 0.0:
        watch.level[lane] = typical
    elif typical > 0.0:
        ratio = min(max(typical / level, 1.0 / LEVEL_FACTOR), LEVEL_FACTOR)
        watch.level[lane] = level * ratio**LEVEL_RATE


@jitable
def _count_peak(suspicion: float, k: int, lane: int, watch: Watching) -> None:
    """Count the highest suspicion of an excursion once it has fallen to half of it."""
    peak = watch.peak[k, lane]
    if suspicion > peak:
        watch.peak[k, lane] = suspicion
    elif suspicion <= 0.5 * peak:
        if peak >= LOWEST_PEAK:
            b = int(np.log(peak / LOWEST_PEAK) / np.log(PEAK_RATIO))
            watch.peaks[min(b, watch.peaks.shape[0] - 1), lane] += 1
        watch.peak[k, lane] = suspicion


@jitable
def _take_note(suspicion: float, n: int, k: int, lane: int, watch: Watching) -> None:
    """Exclude or readmit a client."""
    if watch.peaks.shape[0]:
        _count_peak(suspicion, k, lane, watch)
    if not suspicion <= watch.threshold:
        if watch.by_past and watch.left[k, lane] == 0 and _excludes_enough(lane, watch):
            for j in range(watch.memory.shape[2]):
                watch.memory[k, lane, j] = 0.0
            return
        if watch.left[k, lane] == 0:
            watch.exclusions[k, lane] += 1
            watch.since[k, lane] = n
            if watch.first[k, lane] < 0:
                watch.first[k, lane] = n
        watch.left[k, lane] = watch.return_after
        for j in range(watch.memory.shape[2]):
            watch.memory[k, lane, j] = 0.0
    elif watch.left[k, lane] > 0:
        watch.left[k, lane] -= 1
        if watch.left[k, lane] == 0:
            watch.finished[k, lane] += n - watch.since[k, lane]


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int, n: int, server: FloatArray, uploads: Uploads, options: FloatArray, watch: Watching
    ) -> None:
        self = unpack(options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        size, memory_size = watch.left.shape[0] * lanes, watch.memory.shape[2]
        estimated = watch.variance.shape[0] == 0
        at = min(n, watch.variance.shape[0] - 1)
        # Residuals by participant and number; their mean squares, scales, ratios; scratch for medians; scores; groups.
        numbers, offset = watch.numbers, participants * shared
        residuals = part_of(numbers, 0, (participants, shared))
        squares = part_of(numbers, offset, (participants,))
        scales = part_of(numbers, offset + participants, (participants,))
        ratios = part_of(numbers, offset + 2 * participants, (participants,))
        all_clients = watch.left.shape[0]
        scratch = part_of(numbers, offset + 3 * participants, (participants + 1 + all_clients,))
        scores = part_of(numbers, offset + 4 * participants + 1 + all_clients, (shared,))
        groups = offset + 4 * participants + 1 + all_clients + shared
        values = part_of(numbers, groups, (numbers.size - groups,))
        memories = watch.memory.reshape(size * memory_size)
        for lane in range(lanes):
            met = 0
            if not watch.by_server:
                met = _group(lane, uploads, watch, values)
            for p in range(participants):
                count, square = 0, 0.0
                for m in range(shared):
                    number, i = sent[p, m, lane], entries[p, m, lane]
                    if number != number:
                        continue
                    expected = server[i, lane]
                    if not watch.by_server and watch.row_of[i] >= 0:
                        expected = _expect(p, i, participants, expected, watch.row_of[i], values, scratch)
                    # Errors have the other sign than models.
                    residual = min(max(expected - number, -LARGEST), LARGEST)
                    residuals[p, m] = residual
                    square += residual * residual
                    count += 1
                squares[p] = square / count if count else nan
            for row in range(met):
                watch.row_of[watch.entry_of[row]] = -1
            if watch.by_past:
                _begin_past(lane, clients, squares, watch, scratch)
            for p in range(participants):
                k = clients[p, lane]
                scales[p] = watch.relative[k, lane] if estimated else max(watch.variance[at, k], 1e-300)
                ratios[p] = squares[p] / scales[p] if watch.left[k, lane] == 0 else nan
            typical = _middle_of_others(-1, participants, ratios, scratch)
            if typical == typical and not watch.by_past:
                _follow(typical / MEDIAN_SQUARE, lane, watch)
            level = 1.0 if watch.by_past else watch.level[lane]
            if not estimated:
                watch.log_levels[lane] += log(level)
                level = max(1.0, level / watch.usual_level)
            for p in range(participants):
                k = clients[p, lane]
                scales[p] = max(level * scales[p], 1e-300)
                ratios[p] = squares[p] / scales[p] if watch.by_past or watch.left[k, lane] == 0 else nan
            for p in range(participants):
                if squares[p] != squares[p]:
                    continue
                k = clients[p, lane]
                calm = _middle_of_others(p, participants, ratios, scratch) / MEDIAN_SQUARE
                deviation = sqrt(scales[p] * (calm if calm > 1.0 else 1.0))
                count = 0
                for m in range(shared):
                    if sent[p, m, lane] == sent[p, m, lane]:
                        score = residuals[p, m] / deviation
                        scores[count] = min(max(score, -LARGEST_SCORE), LARGEST_SCORE)
                        count += 1
                memory = part_of(memories, (k * lanes + lane) * memory_size, (memory_size,))
                client: Any = np.int64(k)
                evidence = Evidence(part_of(scores, 0, (count,)), client, n)
                _take_note(body(self, evidence, memory), n, k, lane, watch)
            # After all notes: several delayed uploads of a client may arrive together.
            for p in range(participants):
                if squares[p] != squares[p]:
                    continue
                k = clients[p, lane]
                if watch.left[k, lane] != 0:
                    for m in range(shared):
                        sent[p, m, lane] = nan
                elif estimated and not watch.by_past and watch.level[lane] > 0.0:
                    own = watch.relative[k, lane]
                    own += OWN_RATE * (min(squares[p] / watch.level[lane], OWN_MOST * own) - own)
                    watch.relative[k, lane] = min(max(own, OWN_LOW), OWN_HIGH)
            if watch.by_past:
                _learn_past(lane, clients, squares, watch, scratch)

    return frame
