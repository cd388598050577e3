"""The frame of pre-aggregations: lane by lane, uploads become mixtures of uploads."""

import math

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.bodies import Body, Frame, Hook, Unpack, make_hook
from psofed.engine.hooks import MIX, MixMemory, Uploads
from psofed.engine.normals import unit_uniform_at
from psofed.engine.streams import Stream
from psofed.parts.base import PreAggregation
from psofed.parts.contexts import AllUpdates, scratch_size
from psofed.parts.plain import LARGEST
from psofed.parts.vectors import part_of


def mix_hook(pre: PreAggregation) -> Hook:
    """Return the hook of a pre-aggregation."""
    return make_hook(pre, "weigh", MIX, _make_frame)


def make_mix_memory(
    pre: PreAggregation | None, participants: int, entries: int, dimension: int, lanes: int
) -> MixMemory:
    """Return the scratch of the frame; nearly empty without a pre-aggregation.

    Parameters
    ----------
    pre : PreAggregation or None
        What is done.
    participants, entries, dimension : int
        How many upload, how many entries all of them together can share, and D.
    lanes : int
        How many trials there are.
    """
    if pre is None:
        participants = entries = dimension = lanes = 0
    uploads = 0 if pre is None else pre.uploads_after(participants)
    numbers = participants * (entries + 1 + uploads) + entries + scratch_size(participants, entries)
    mixed = Uploads(
        np.zeros((uploads, lanes), np.int32),
        np.zeros((uploads, entries, lanes), np.int32),
        np.full((uploads, entries, lanes), np.nan),
        np.zeros(lanes, np.int64),
    )
    after = [0 if pre is None else pre.uploads_after(count) for count in range(1, participants + 1)]
    return MixMemory(
        np.empty(numbers), np.empty(participants * entries, np.bool_), np.full(dimension, -1),
        np.empty(entries, np.int64), np.array([0, *after], np.int64), mixed,
    )  # fmt: skip


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int,
        n: int,
        num_clients: int,
        target: FloatArray,
        uploads: Uploads,
        options: FloatArray,
        stream: Stream,
        memory: MixMemory,
        server: FloatArray,
    ) -> None:
        self = unpack(options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        _, shared, lanes = sent.shape
        row_of, entry_of, numbers, flags = memory.row_of, memory.entry_of, memory.numbers, memory.flags
        mixed = memory.mixed
        rows, most = mixed.sent.shape[0], mixed.sent.shape[1]
        for lane in range(lanes):
            participants = uploads.counts[lane]
            # With fewer participants than there can be, there are fewer mixed uploads; the other places stay empty.
            count = memory.after[participants]
            mixed.counts[lane] = count
            met = 0
            for p in range(participants):
                for m in range(shared):
                    i = entries[p, m, lane]
                    if abs(sent[p, m, lane]) <= LARGEST and row_of[i] < 0:
                        row_of[i] = met
                        entry_of[met] = i
                        met += 1
            size = participants * met
            for j in range(size):
                numbers[j] = 0.0
                flags[j] = False
            for p in range(participants):
                for m in range(shared):
                    i = entries[p, m, lane]
                    if abs(sent[p, m, lane]) <= LARGEST:
                        numbers[p * met + row_of[i]] = server[i, lane] - sent[p, m, lane]
                        flags[p * met + row_of[i]] = True
            for row in range(met):
                i = entry_of[row]
                row_of[i] = -1
                numbers[size + row] = target[i] - server[i, lane]
            first = size + met
            for p in range(participants):
                word = n * num_clients + clients[p, lane]
                numbers[first + p] = unit_uniform_at(stream.key[lane], stream.gamma[lane], word)
            start = first + participants
            weights = part_of(numbers, start, (count, participants))
            for r in range(count):
                for p in range(participants):
                    weights[r, p] = 0.0
            last = start + count * participants
            changes, held = part_of(numbers, 0, (participants, met)), part_of(flags, 0, (participants, met))
            if met > 0:
                body(
                    self,
                    AllUpdates(
                        changes, held, part_of(numbers, size, (met,)), part_of(numbers, first, (participants,)),
                        part_of(numbers, last, (numbers.size - last,)),
                    ),
                    weights,
                )  # fmt: skip
            for r in range(rows):
                mixed.clients[r, lane] = r
                for row in range(most):
                    mixed.entries[r, row, lane] = 0
                    mixed.sent[r, row, lane] = math.nan
            for r in range(count):
                for row in range(met):
                    total, anyone = 0.0, False
                    for p in range(participants):
                        if weights[r, p] != 0.0:
                            total += weights[r, p] * changes[p, row]
                            anyone = anyone or held[p, row]
                    mixed.entries[r, row, lane] = entry_of[row]
                    if anyone:
                        mixed.sent[r, row, lane] = server[entry_of[row], lane] - total

    return frame
