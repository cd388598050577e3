"""Frame of defences: judges each upload and excludes suspicious clients.

The same as :class:`psofed.parts.watching.Watch`, for several trials.
"""

from math import inf, log, nan, sqrt
from typing import Any

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.hooks import Body, Frame, Hook, make_hook
from psofed.engine.signatures import DEFENCE, Uploads, Watching
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
    defence: Defence | None,
    plan: WatchPlan,
    *,
    clients: int,
    participants: int,
    numbers: int,
    dimension: int,
    trials: int,
) -> Watching:
    """Return a defence's memory and scratch, empty for no trials; an upload has at most `numbers` values."""
    if not trials:
        clients = participants = numbers = dimension = 0
    rows, whole = min(dimension, participants * numbers), (trials, clients)
    return Watching(
        threshold=plan.threshold,
        return_after=defence.return_after if defence is not None and defence.return_after else -1,
        by_server=defence is not None and defence.reference == "server",
        by_past=plan.by_past,
        variance=np.zeros((0, clients)) if plan.is_estimated else plan.variance.copy(),
        memory=np.zeros((*whole, 0 if defence is None else defence.memory_size)),
        usual_level=plan.usual_level,
        level=np.full(trials, 0.0 if plan.is_estimated else plan.usual_level),
        log_levels=np.zeros(trials),
        relative=np.full(whole, 0.0 if plan.by_past else 1.0),
        left=np.zeros(whole, np.int64),
        first=np.full(whole, -1, np.int64),
        since=np.zeros(whole, np.int64),
        exclusions=np.zeros(whole, np.int64),
        finished=np.zeros(whole, np.int64),
        peak=np.zeros(whole),
        peaks=np.zeros((trials, PEAK_BINS if plan.threshold == inf else 0), np.int64),
        numbers=np.empty(participants * (numbers + rows + 4) + numbers + 1 + clients),
        row_of=np.full(dimension, -1),
        entry_of=np.empty(rows, np.int64),
    )


def all_peaks(watching: Watching) -> NDArray[np.int64]:
    """Return the number of peaks in each bin.

    A peak counts once suspicion has fallen to half of it. What has not by the end of a run counts with the highest it
    came to: the suspicion of a client whose honest uploads always differ from the others' keeps climbing, and is what
    raises most alarms.
    """
    still = watching.peak.ravel()
    still = still[still >= LOWEST_PEAK]
    bins = np.minimum(np.log(still / LOWEST_PEAK) / log(PEAK_RATIO), PEAK_BINS - 1).astype(np.int64)
    counts: NDArray[np.int64] = watching.peaks.sum(axis=0) + np.bincount(bins, minlength=PEAK_BINS)
    return counts


@register_jitable
def _expect(
    p: int, participants: int, own: float, row: int, values: FloatArray, scratch: FloatArray
) -> float:
    """Return the median of the others' values for an entry and the server's value."""
    count = 1
    scratch[0] = own
    for q in range(participants):
        value = values[row * participants + q]
        if q != p and value == value:
            scratch[count] = value
            count += 1
    return middle(part_of(scratch, 0, (count,)))


@register_jitable
def _middle_of_others(p: int, participants: int, values: FloatArray, scratch: FloatArray) -> float:
    """Return the median of the finite values except one; NaN if there are none."""
    count = 0
    for q in range(participants):
        if q != p and values[q] == values[q]:
            scratch[count] = values[q]
            count += 1
    return middle(part_of(scratch, 0, (count,))) if count else nan


@register_jitable
def _upper_middle(count: int, values: FloatArray) -> float:
    """Return the median of the first `count` values without the lowest third; they are left in order."""
    part_of(values, 0, (count,)).sort()
    dropped = (count - 1) // 3
    return middle(part_of(values, dropped, (count - dropped,)))


@register_jitable
def _upper_variance(trial: int, watch: Watching, scratch: FloatArray) -> float:
    """Return the fleet's variance by the clients' pasts; 0 if none has one."""
    count = 0
    for variance in watch.relative[trial]:
        if variance > 0.0:
            scratch[count] = variance
            count += 1
    return _upper_middle(count, scratch) if count else 0.0


@register_jitable
def _begin_past(trial: int, clients: Any, squares: FloatArray, watch: Watching, scratch: FloatArray) -> None:
    """Let clients without a past begin with the fleet's variance, or with the squares of the first iteration."""
    fleet, count = _upper_variance(trial, watch, scratch), 0
    if fleet == 0.0:
        for square in squares:
            if square == square:
                scratch[count] = square / MEDIAN_SQUARE
                count += 1
        if count:
            fleet = _upper_middle(count, scratch)
    for p in range(squares.size):
        if squares[p] == squares[p] and watch.relative[trial, clients[trial, p]] == 0.0:
            watch.relative[trial, clients[trial, p]] = fleet


@register_jitable
def _learn_past(trial: int, clients: Any, squares: FloatArray, watch: Watching, scratch: FloatArray) -> None:
    """Move the variances of those who are in towards their squares, and hold all within a range of the fleet's."""
    relative = watch.relative[trial]
    for p in range(squares.size):
        k = clients[trial, p]
        if squares[p] == squares[p] and watch.left[trial, k] == 0:
            relative[k] += OWN_RATE * (min(squares[p], OWN_MOST * relative[k]) - relative[k])
    fleet = _upper_variance(trial, watch, scratch)
    for k in range(relative.size):
        if relative[k] > 0.0:
            relative[k] = min(max(relative[k], OWN_LOW * fleet), OWN_HIGH * fleet)


@register_jitable
def _group(trial: int, uploads: Uploads, watch: Watching, values: FloatArray) -> int:
    """Group the values of included clients by entry, one row per entry; return the number of entries."""
    entries, sent, row_of, participants = uploads.entries, uploads.sent, watch.row_of, uploads.rows[trial]
    met = 0
    for p in range(participants):
        if watch.left[trial, uploads.clients[trial, p]] != 0:
            continue
        for m in range(sent.shape[2]):
            number = sent[trial, p, m]
            if abs(number) <= LARGEST:
                i = entries[trial, p if entries.shape[1] > 1 else 0, m]
                row = row_of[i]
                if row < 0:
                    row = met
                    met += 1
                    row_of[i] = row
                    watch.entry_of[row] = i
                    for q in range(participants):
                        values[row * participants + q] = nan
                values[row * participants + p] = number
    return met


@register_jitable
def _follow(typical: float, trial: int, watch: Watching) -> None:
    """Update the fleet's level from the median of an iteration."""
    level = watch.level[trial]
    if level == 0.0:
        watch.level[trial] = typical
    elif typical > 0.0:
        ratio = min(max(typical / level, 1.0 / LEVEL_FACTOR), LEVEL_FACTOR)
        watch.level[trial] = level * ratio**LEVEL_RATE


@register_jitable
def _count_peak(suspicion: float, trial: int, k: int, watch: Watching) -> None:
    """Count the highest suspicion of an excursion once it has fallen to half of it."""
    peak = watch.peak[trial, k]
    if suspicion > peak:
        watch.peak[trial, k] = suspicion
    elif suspicion <= 0.5 * peak:
        if peak >= LOWEST_PEAK:
            b = int(np.log(peak / LOWEST_PEAK) / np.log(PEAK_RATIO))
            watch.peaks[trial, min(b, watch.peaks.shape[1] - 1)] += 1
        watch.peak[trial, k] = suspicion


@register_jitable
def _take_note(suspicion: float, n: int, trial: int, k: int, watch: Watching) -> None:
    """Exclude or readmit a client."""
    if watch.peaks.shape[1]:
        _count_peak(suspicion, trial, k, watch)
    if not suspicion <= watch.threshold:
        if watch.by_past and watch.left[trial, k] == 0:
            excluded = np.sum(watch.left[trial] != 0)
            if excluded >= (watch.left.shape[1] - 1) // 3:
                watch.memory[trial, k] = 0.0
                return
        if watch.left[trial, k] == 0:
            watch.exclusions[trial, k] += 1
            watch.since[trial, k] = n
            if watch.first[trial, k] < 0:
                watch.first[trial, k] = n
        watch.left[trial, k] = watch.return_after
        for j in range(watch.memory.shape[2]):
            watch.memory[trial, k, j] = 0.0
    elif watch.left[trial, k] > 0:
        watch.left[trial, k] -= 1
        if watch.left[trial, k] == 0:
            watch.finished[trial, k] += n - watch.since[trial, k]


def _make_frame(unpack: Body, body: Body) -> Frame:
    def frame(options: FloatArray, n: int, server: FloatArray, uploads: Uploads, watch: Watching) -> None:
        self = unpack(options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        trials, _, shared = sent.shape
        estimated, at = watch.variance.shape[0] == 0, min(n, watch.variance.shape[0] - 1)
        numbers, row_of = watch.numbers, watch.row_of
        for trial in range(trials):
            # Residuals by participant and number; their mean squares, scales, ratios; scratch for medians; scores.
            participants, met = uploads.rows[trial], 0
            offset = participants * shared
            residuals = part_of(numbers, 0, (participants, shared))
            squares = part_of(numbers, offset, (participants,))
            scales = part_of(numbers, offset + participants, (participants,))
            ratios = part_of(numbers, offset + 2 * participants, (participants,))
            space = participants + 1 + watch.left.shape[1]
            scratch = part_of(numbers, offset + 3 * participants, (space,))
            scores = part_of(numbers, offset + 3 * participants + space, (shared,))
            groups = offset + 3 * participants + space + shared
            values = part_of(numbers, groups, (numbers.size - groups,))
            if not watch.by_server:
                met = _group(trial, uploads, watch, values)
            for p in range(participants):
                count, square = 0, 0.0
                for m in range(shared):
                    number, i = sent[trial, p, m], entries[trial, p if entries.shape[1] > 1 else 0, m]
                    if number != number:
                        continue
                    expected = server[trial, i]
                    if not watch.by_server and row_of[i] >= 0:
                        expected = _expect(p, participants, expected, row_of[i], values, scratch)
                    # Errors have the other sign than models.
                    residual = min(max(expected - number, -LARGEST), LARGEST)
                    residuals[p, m] = residual
                    square += residual * residual
                    count += 1
                squares[p] = square / count if count else nan
            for row in range(met):
                row_of[watch.entry_of[row]] = -1
            if watch.by_past:
                _begin_past(trial, clients, squares, watch, scratch)
            for p in range(participants):
                k = clients[trial, p]
                scales[p] = watch.relative[trial, k] if estimated else max(watch.variance[at, k], 1e-300)
                ratios[p] = squares[p] / scales[p] if watch.left[trial, k] == 0 else nan
            typical = _middle_of_others(-1, participants, ratios, scratch)
            if typical == typical and not watch.by_past:
                _follow(typical / MEDIAN_SQUARE, trial, watch)
            level = 1.0 if watch.by_past else watch.level[trial]
            if not estimated:
                watch.log_levels[trial] += log(level)
                level = max(1.0, level / watch.usual_level)
            for p in range(participants):
                scales[p] = max(level * scales[p], 1e-300)
                counts = watch.by_past or watch.left[trial, clients[trial, p]] == 0
                ratios[p] = squares[p] / scales[p] if counts else nan
            for p in range(participants):
                if squares[p] != squares[p]:
                    continue
                client: Any = np.int64(clients[trial, p])
                calm = _middle_of_others(p, participants, ratios, scratch) / MEDIAN_SQUARE
                deviation = sqrt(scales[p] * (calm if calm > 1.0 else 1.0))
                count = 0
                for m in range(shared):
                    if sent[trial, p, m] == sent[trial, p, m]:
                        score = residuals[p, m] / deviation
                        scores[count] = min(max(score, -LARGEST_SCORE), LARGEST_SCORE)
                        count += 1
                evidence = Evidence(part_of(scores, 0, (count,)), client, n)
                _take_note(body(self, evidence, watch.memory[trial, client]), n, trial, client, watch)
            # After all notes: several delayed uploads of a client may arrive together.
            for p in range(participants):
                if squares[p] != squares[p]:
                    continue
                k = clients[trial, p]
                if watch.left[trial, k] != 0:
                    for m in range(shared):
                        sent[trial, p, m] = nan
                elif estimated and not watch.by_past and watch.level[trial] > 0.0:
                    own = watch.relative[trial, k]
                    own += OWN_RATE * (min(squares[p] / watch.level[trial], OWN_MOST * own) - own)
                    watch.relative[trial, k] = min(max(own, OWN_LOW), OWN_HIGH)
            if watch.by_past:
                _learn_past(trial, clients, squares, watch, scratch)

    return frame
