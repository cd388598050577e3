"""Uploads of one trial as vectors over the entries that anybody shares, which is what rules and attacks see."""

import numpy as np
from numba.extending import register_jitable

from psofed.common.types import BoolArray, FloatArray, IntArray
from psofed.engine.signatures import Uploads, Work
from psofed.engine.vocabulary import sort
from psofed.parts.contexts import scratch_size
from psofed.parts.plain import LARGEST
from psofed.parts.vectors import part_of


def make_work(participants: int, shared: int, dimension: int, over_vectors: bool = True) -> Work:
    """Return scratch for the frames of rules, pre-aggregations and defences."""
    most, numbers = min(dimension, participants * shared), dimension * participants
    if over_vectors:
        numbers += participants * participants + 4 * (most + participants) + scratch_size(participants, most)
    return Work(
        numbers=np.empty(numbers),
        flags=np.empty(participants * most if over_vectors else 0, np.bool_),
        row_of=np.full(dimension, -1),
        entry_of=np.empty(most, np.int64),
        counts=np.zeros(max(dimension, participants), np.int64),
    )


@register_jitable
def entry_at(uploads: Uploads, trial: int, p: int, m: int) -> int:
    """Return the entry of an upload's m-th number."""
    entry: int = uploads.entries[trial, p if uploads.entries.shape[1] > 1 else 0, m]
    return entry


@register_jitable
def gather(
    uploads: Uploads, trial: int, order: IntArray, count: int, base: FloatArray, work: Work
) -> tuple[FloatArray, BoolArray, IntArray]:
    """Return ``base`` (D,) less what the first `count` uploads in ``order`` hold, who shares what, and the entries.

    The first two have the shape (count, E), with 0 and False where an entry is not shared; entries ascend. Until
    :func:`release`, ``work.row_of`` has the place of each entry.
    """
    sent, row_of, entry_of, met = uploads.sent, work.row_of, work.entry_of, 0
    for q in range(count):
        for m in range(sent.shape[2]):
            i = entry_at(uploads, trial, order[q], m)
            if abs(sent[trial, order[q], m]) <= LARGEST and row_of[i] < 0:
                row_of[i] = 0
                entry_of[met] = i
                met += 1
    entries = part_of(entry_of, 0, (met,))
    sort(entries)
    for row in range(met):
        row_of[entries[row]] = row
    values, flags = part_of(work.numbers, 0, (count, met)), part_of(work.flags, 0, (count, met))
    for q in range(count):
        for row in range(met):
            values[q, row], flags[q, row] = 0.0, False
        for m in range(sent.shape[2]):
            i, number = entry_at(uploads, trial, order[q], m), sent[trial, order[q], m]
            if abs(number) <= LARGEST:
                values[q, row_of[i]], flags[q, row_of[i]] = base[i] - number, True
    return values, flags, entries


@register_jitable
def release(entries: IntArray, work: Work) -> None:
    """Forget the places of entries."""
    for i in entries:
        work.row_of[i] = -1
