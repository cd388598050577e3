"""The frames of aggregation rules: over one entry's numbers, or over the uploads as vectors."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.bodies import Body, Frame, Hook, MakeFrame, Unpack, make_hook
from psofed.engine.compiling import jitable
from psofed.engine.hooks import AGGREGATION, RuleMemory, Uploads
from psofed.parts.base import Aggregation
from psofed.parts.contexts import Numbers, Updates, scratch_size
from psofed.parts.plain import LARGEST
from psofed.parts.vectors import part_of


def aggregation_hook(rule: Aggregation) -> Hook:
    """Return the hook of a rule."""
    return make_hook(rule, "combine", AGGREGATION, _frame_of(type(rule)), rule.fewest_numbers())


def make_memory(participants: int, shared: int, dimension: int) -> RuleMemory:
    """Return the scratch of a rule's frame."""
    most = min(dimension, participants * shared)
    numbers = participants * most + 3 * most + scratch_size(participants, most) + max(participants, 1)
    return RuleMemory(
        numbers=np.empty(numbers),
        flags=np.empty(participants * most, np.bool_),
        row_of=np.full(dimension, -1),
        entry_of=np.empty(most, np.int64),
        counts=np.empty(max(most, participants), np.int64),
    )


def _frame_of(rule: type[Aggregation]) -> MakeFrame:
    if rule.over == "entries":
        return _make_frame_over_entries
    return _frame_that_writes if rule.writes_change() else _frame_that_returns


def _make_frame_over_entries(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int,
        target: FloatArray,
        uploads: Uploads,
        options: FloatArray,
        own_step: FloatArray,
        memory: RuleMemory,
        server: FloatArray,
    ) -> None:
        self = unpack(options)
        entries, sent = uploads.entries, uploads.sent
        participants, shared, lanes = sent.shape
        quorum = int(options[options.size - 1])
        # Entries are numbered as they are met, which is cheap where few of many are shared.
        row_of, entry_of, count, values = memory.row_of, memory.entry_of, memory.counts, memory.numbers
        for lane in range(lanes):
            met, asked = 0, uploads.counts[lane]
            fewest = min(quorum, asked)
            for p in range(participants):
                for m in range(shared):
                    number = sent[p, m, lane]
                    if abs(number) <= LARGEST:
                        i = entries[p, m, lane]
                        row = row_of[i]
                        if row < 0:
                            row = met
                            met += 1
                            row_of[i] = row
                            entry_of[row] = i
                            count[row] = 0
                        values[row * participants + count[row]] = target[i] - number
                        count[row] += 1
            for row in range(met):
                i, arrived, first = entry_of[row], count[row], row * participants
                row_of[i] = -1
                own = target[i] - server[i, lane]
                for j in range(arrived, fewest):
                    values[first + j] = own
                agreed = body(self, Numbers(values[first : first + max(arrived, fewest)], own))
                if abs(agreed) <= LARGEST:
                    server[i, lane] -= arrived / asked * (agreed - own)

    return frame


@jitable
def _share_all(uploads: Uploads) -> bool:
    """Tell whether all participants upload the same entries, in every lane."""
    entries = uploads.entries
    participants, shared, lanes = entries.shape
    same = True
    for p in range(1, participants):
        for m in range(shared):
            for lane in range(lanes):
                same &= entries[p, m, lane] == entries[0, m, lane]
    return same


@jitable
def _gather_all(
    target: FloatArray,
    uploads: Uploads,
    own_step: FloatArray,
    lane: int,
    memory: RuleMemory,
    server: FloatArray,
) -> bool:
    """Do what :func:`_gather` does where all upload the same entries; return whether each number was sent."""
    entries, sent = uploads.entries, uploads.sent
    participants, shared, _ = sent.shape
    size = participants * shared
    numbers, flags = memory.numbers, memory.flags
    complete = True
    for m in range(shared):
        i = entries[0, m, lane]
        own = server[i, lane]
        for p in range(participants):
            number = sent[p, m, lane]
            complete &= abs(number) <= LARGEST
            numbers[p * shared + m] = own - number
            flags[p * shared + m] = True
        memory.entry_of[m] = i
        numbers[size + m] = target[i] - own
        numbers[size + shared + m] = -own_step[i, lane]
        numbers[size + 2 * shared + m] = 0.0
    return complete


@jitable
def _gather(
    target: FloatArray,
    uploads: Uploads,
    own_step: FloatArray,
    lane: int,
    memory: RuleMemory,
    server: FloatArray,
) -> tuple[int, int]:
    """Gather the uploads of one lane as vectors; also return the number of participants and of entries."""
    entries, sent = uploads.entries, uploads.sent
    participants, shared, _ = sent.shape
    row_of, entry_of, rank, numbers = memory.row_of, memory.entry_of, memory.counts, memory.numbers
    met = answered = 0
    for p in range(participants):
        rank[p] = -1
        for m in range(shared):
            if abs(sent[p, m, lane]) <= LARGEST:
                i = entries[p, m, lane]
                if row_of[i] < 0:
                    row_of[i] = met
                    entry_of[met] = i
                    met += 1
                if rank[p] < 0:
                    rank[p] = answered
                    answered += 1
    size = answered * met
    for j in range(size):
        numbers[j] = 0.0
        memory.flags[j] = False
    for p in range(participants):
        for m in range(shared):
            if abs(sent[p, m, lane]) <= LARGEST:
                i = entries[p, m, lane]
                place = rank[p] * met + row_of[i]
                numbers[place] = server[i, lane] - sent[p, m, lane]
                memory.flags[place] = True
    for row in range(met):
        i = entry_of[row]
        row_of[i] = -1
        numbers[size + row] = target[i] - server[i, lane]
        numbers[size + met + row] = -own_step[i, lane]
        numbers[size + 2 * met + row] = 0.0
    return answered, met


def _frame_that_writes(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_over_vectors(unpack, body, True)


def _frame_that_returns(unpack: Unpack, body: Body) -> Frame:
    return _make_frame_over_vectors(unpack, body, False)


def _make_frame_over_vectors(unpack: Unpack, body: Body, writes: bool) -> Frame:
    """Return the frame of rules over vectors; a body that does not write its change returns it."""

    def frame(
        token: int,
        target: FloatArray,
        uploads: Uploads,
        options: FloatArray,
        own_step: FloatArray,
        memory: RuleMemory,
        server: FloatArray,
    ) -> None:
        self = unpack(options)
        participants, shared, lanes = uploads.sent.shape
        numbers, flags = memory.numbers, memory.flags
        together = _share_all(uploads)
        for lane in range(lanes):
            if together and _gather_all(target, uploads, own_step, lane, memory, server):
                answered, met = participants, shared
            else:
                answered, met = _gather(target, uploads, own_step, lane, memory, server)
            if answered == 0:
                continue
            first, step, last = answered * met, (answered + 1) * met, (answered + 2) * met
            scratch = part_of(numbers, last + met, (numbers.size - last - met,))
            if not writes:
                agreed = body(
                    self,
                    Updates(
                        part_of(numbers, 0, (answered, met)), part_of(flags, 0, (answered, met)),
                        part_of(numbers, first, (met,)), part_of(numbers, step, (met,)), scratch,
                    ),
                )  # fmt: skip
                for row in range(met):
                    numbers[last + row] = agreed[row]
            # Compiled twice: with one entry, all vectors are numbers.
            elif met == 1:
                body(
                    self,
                    Updates(
                        part_of(numbers, 0, (answered, 1)), part_of(flags, 0, (answered, 1)),
                        part_of(numbers, first, (1,)), part_of(numbers, step, (1,)), scratch,
                    ),
                    part_of(numbers, last, (1,)),
                )  # fmt: skip
            else:
                body(
                    self,
                    Updates(
                        part_of(numbers, 0, (answered, met)), part_of(flags, 0, (answered, met)),
                        part_of(numbers, first, (met,)), part_of(numbers, step, (met,)), scratch,
                    ),
                    part_of(numbers, last, (met,)),
                )  # fmt: skip
            for row in range(met):
                change = numbers[last + row]
                if abs(change) <= LARGEST:
                    server[memory.entry_of[row], lane] -= answered / uploads.counts[lane] * change

    return frame
