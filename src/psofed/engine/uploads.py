"""Uploads of an iteration, and those of one trial as vectors over the entries that anybody shares.

L is the number of trials in a block, K of clients, D of entries, P of uploads, M of numbers in each. Kernels hold
errors, w − model; a model's entry i is ``target[i]`` less that.
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.vocabulary import sort
from psofed.parts.contexts import scratch_size
from psofed.parts.plain import LARGEST
from psofed.parts.vectors import part_of


class Uploads(NamedTuple):
    """Messages of an iteration.

    Attributes
    ----------
    clients : int array (L, P)
        Which client each upload is from, or each download for.
    entries : int array (L, P or 1, M)
        Which entry each number belongs to; one row where all clients exchange the same entries.
    sent : array (L, P, M)
        The numbers, as errors; NaN for one that is not sent. Attacks, channels and defences change them in place.
    rows : int array (L,)
        How many of the P uploads there are.
    asked : int array (L,)
        How many clients were asked to upload: what the mean divides by.
    """

    clients: IndexArray
    entries: IndexArray
    sent: FloatArray
    rows: IntArray
    asked: IntArray


class Work(NamedTuple):
    """Scratch of those who see uploads as vectors, sized for the largest case.

    Attributes
    ----------
    numbers, flags : array (any,)
        Numbers by upload or entry, and which of them were sent.
    row_of, entry_of, counts : int array (D,), (any,), (any,)
        Where each entry stands among those shared, −1 between calls, and back; how many numbers there are of each, or
        which uploads: 0 between calls.
    """

    numbers: FloatArray
    flags: BoolArray
    row_of: IntArray
    entry_of: IntArray
    counts: IntArray


def make_uploads(trials: int, most: int, numbers: int, one_mask: bool = True) -> Uploads:
    """Return space for `most` messages of `numbers` numbers each; entries are the first ones until they are written."""
    entries = np.arange(numbers, dtype=np.int32)
    return Uploads(
        clients=np.repeat(np.arange(most, dtype=np.int32)[None], trials, axis=0),
        entries=np.broadcast_to(entries, (trials, 1 if one_mask else most, numbers)).copy(),
        sent=np.full((trials, most, numbers), np.nan),
        rows=np.full(trials, most),
        asked=np.full(trials, most),
    )


def make_work(participants: int, shared: int, dimension: int, over_vectors: bool = True) -> Work:
    """Return scratch for up to `participants` uploads of `shared` numbers."""
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


@kernel_part
def copy(source: NDArray[Any], out: NDArray[Any]) -> None:
    """Copy an array of the same shape; assigning it takes Numba seconds to compile."""
    numbers, copies = part_of(source, 0, (source.size,)), part_of(out, 0, (out.size,))
    for i in range(numbers.size):
        copies[i] = numbers[i]


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
    entries, sent, row_of, entry_of, met = uploads.entries, uploads.sent, work.row_of, work.entry_of, 0
    one_mask = entries.shape[1] == 1
    for q in range(count):
        p = order[q]
        for m in range(sent.shape[2]):
            i = entries[trial, 0 if one_mask else p, m]
            if abs(sent[trial, p, m]) <= LARGEST and row_of[i] < 0:
                row_of[i] = 0
                entry_of[met] = i
                met += 1
    shared_entries = part_of(entry_of, 0, (met,))
    sort(shared_entries)
    for row in range(met):
        row_of[shared_entries[row]] = row
    values, flags = part_of(work.numbers, 0, (count, met)), part_of(work.flags, 0, (count, met))
    for q in range(count):
        p = order[q]
        for row in range(met):
            values[q, row], flags[q, row] = 0.0, False
        for m in range(sent.shape[2]):
            i, number = entries[trial, 0 if one_mask else p, m], sent[trial, p, m]
            if abs(number) <= LARGEST:
                values[q, row_of[i]], flags[q, row_of[i]] = base[i] - number, True
    return values, flags, shared_entries


@register_jitable
def release(entries: IntArray, work: Work) -> None:
    """Forget the places of entries."""
    for i in entries:
        work.row_of[i] = -1
