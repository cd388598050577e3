"""The server: pre-aggregations and rules in the form that kernels take, and the frames around their methods."""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.delays import weigh_by_delay
from psofed.engine.hooks import NO_HOOK, Body, Frame, Hook, MakeFrame, make_hook, watch_hooks
from psofed.engine.normals import uniform_at
from psofed.engine.root_data import RootSet, draw_root, own_step
from psofed.engine.signatures import (
    AGGREGATION,
    MIX,
    Uploads,
    Work,
    take_aggregation,
    take_mix,
    taken,
    uploads_at,
)
from psofed.engine.streams import Stream, WordArray
from psofed.engine.tables import KernelTable
from psofed.parts.aggregations.mean import Mean
from psofed.parts.base import Aggregation
from psofed.parts.contexts import AllUpdates, Numbers, Updates, scratch_size
from psofed.parts.part import takes_memory
from psofed.parts.plain import LARGEST, check_size
from psofed.parts.vectors import part_of

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario


class RuleSide(NamedTuple):
    """The aggregation rule, and the pre-aggregation before it.

    Attributes
    ----------
    address, options
        The rule's hook; the address is 0 for the mean, which the engine has itself.
    memory : array (L, any)
        What the rule remembers.
    step : array (L, D)
        Scratch: the server's own step, or its change.
    mix, mix_options
        The pre-aggregation's hook; the address is 0 if there is none.
    mix_memory : array (L, any)
        What it remembers.
    stream : array (2, L)
        Its randomness.
    after : int array (P + 1,)
        Number of mixed uploads, by number of participants.
    work, mixed
        Scratch of the hooks, and the mixed uploads, with all entries that can be shared.
    """

    address: int
    options: FloatArray
    memory: FloatArray
    step: FloatArray
    mix: int
    mix_options: FloatArray
    mix_memory: FloatArray
    stream: WordArray
    after: IntArray
    work: Work
    mixed: Uploads


def make_rule_side(
    scenario: "Scenario", fleet: "Fleet", stream: Stream, root: Stream | None, numbers: int
) -> tuple[RuleSide, RootSet, tuple[Hook, ...]]:
    """Return the server's side of several trials: rules, root data, and the hooks.

    `stream` is the pre-aggregation's, `root` that of the server's samples, and an upload has up to `numbers` values.
    """
    rule, pre, trials = scenario.aggregation, scenario.pre_aggregation, stream.key.size
    joined, dimension = scenario.most_uploads, max(numbers, scenario.dimension)
    hook = NO_HOOK if type(rule) is Mean else rule_hook(rule)
    mix = NO_HOOK if pre is None else make_hook(pre, "weigh", MIX, _make_mixing)
    entries, mixed, after = 0, 0, [0]
    if pre is not None:
        entries, mixed = numbers, pre.uploads_after(joined)
        if scenario.algorithm.holds_models and not (
            scenario.selection.coordinated and scenario.delay is None
        ):
            entries = min(scenario.dimension, joined * numbers)
        after = [0, *(pre.uploads_after(count) for count in range(1, joined + 1))]
    clients = scenario.num_clients
    rule.check_mixing(pre)
    remembered = rule.memory_size(clients, dimension)
    check_size(f'aggregation.kind = "{rule.kind}" with {clients} clients and {dimension} entries', remembered)
    side = RuleSide(
        address=hook.address,
        options=hook.options,
        memory=np.zeros((trials, remembered)),
        step=np.zeros((trials, dimension)),
        mix=mix.address,
        mix_options=mix.options,
        mix_memory=np.zeros((trials, 0 if pre is None else pre.memory_size(clients, dimension))),
        stream=np.array(stream),
        after=np.array(after, np.int64),
        work=make_work(joined, numbers, dimension, pre is not None or rule.over == "vectors"),
        mixed=Uploads(
            np.zeros((trials, mixed), np.int32), np.zeros((trials, 1, entries), np.int32),
            np.full((trials, mixed, entries), np.nan), np.zeros(trials, np.int64), np.zeros(trials, np.int64),
        ),
    )  # fmt: skip
    return side, draw_root(scenario, fleet, root), (hook, mix)


def rule_hook(rule: Aggregation) -> Hook:
    """Return the hook of a rule."""
    make_frame: MakeFrame = _make_over_entries
    if rule.over == "vectors":
        make_frame = _make_writing if rule.writes_change() else _make_returning
    return make_hook(rule, "combine", AGGREGATION, make_frame, rule.fewest_numbers())


def make_work(participants: int, shared: int, dimension: int, over_vectors: bool = True) -> Work:
    """Return scratch for the frames of rules and pre-aggregations."""
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
def aggregate(n: int, block: "TrialBlock", target: FloatArray, uploads: Uploads, server: FloatArray) -> None:
    """Update the server with the uploads of iteration n."""
    rule = block.rule
    if rule.address == 0:
        _move_by_mean(uploads, rule.step, server)
    else:
        take_aggregation(rule.address)(
            rule.options, n, block.layout.clients, target, uploads, rule.step, rule.memory, rule.work, server
        )


@kernel_part
def mix_and_aggregate(
    n: int, block: "TrialBlock", target: FloatArray, uploads: Uploads, server: FloatArray
) -> None:
    """Update the server with the uploads of iteration n, mixed before, or compared with its own step."""
    rule, root = block.rule, block.root
    if rule.mix != 0:
        mixed = taken(rule.mixed)
        take_mix(rule.mix)(
            rule.mix_options, n, block.layout.clients, rule.stream, target, server, uploads, rule.mix_memory, rule.work,
            rule.after, mixed,
        )  # fmt: skip
        uploads = mixed
    if root.rows.shape[1]:
        own_step(root, server, rule.step)
    aggregate(n, block, target, uploads, server)


def aggregate_in_general(n: int, t: int, block: "TrialBlock") -> None:
    """Stage: update the server with uploads that are weighed by delay, mixed, or compared with its own step."""
    uploads, server = uploads_at(t, block), block.state.server
    if block.delay.by_delay:
        weigh_by_delay(block.delay, server, uploads)
    mix_and_aggregate(n, block, block.state.base, uploads, server)


@kernel_part
def _move_by_mean(uploads: Uploads, change: FloatArray, server: FloatArray) -> None:
    """Move each entry of ``server`` by the mean over all participants of what they sent less its old value.

    ``change`` (L, D) is scratch that holds zeros.
    """
    entries, sent, counts, all_asked = uploads.entries, uploads.sent, uploads.rows, uploads.asked
    trials, rows, shared = sent.shape[0], entries.shape[1], sent.shape[2]
    for trial in range(trials):
        participants, asked = counts[trial], max(all_asked[trial], 1)
        # One mask for all: entry by entry. Else upload by upload.
        for r in range(min(rows, participants)):
            for m in range(shared):
                i = entries[trial, r, m]
                total, own = change[trial, i], server[trial, i]
                for p in range(r, participants if rows == 1 else r + 1):
                    number = sent[trial, p, m]
                    if abs(number) <= LARGEST:
                        total += number - own
                change[trial, i] = total
        for r in range(min(rows, participants)):
            for m in range(shared):
                i = entries[trial, r, m]
                server[trial, i] += change[trial, i] / asked
                change[trial, i] = 0.0


def _make_over_entries(unpack: Body, body: Body) -> Frame:
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, n: int, num_clients: int, target: FloatArray, uploads: Uploads, own_step: FloatArray,
        memory: FloatArray, work: Work, server: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        entries, sent, counts, numbers = uploads.entries, uploads.sent, work.counts, work.numbers
        trials, most, shared = sent.shape
        quorum, one_mask = int(options[options.size - 1]), entries.shape[1] == 1
        rows, all_asked = uploads.rows, uploads.asked
        for trial in range(trials):
            asked = all_asked[trial]
            fewest = min(quorum, asked)
            for p in range(rows[trial]):
                for m in range(shared):
                    number = sent[trial, p, m]
                    if abs(number) <= LARGEST:
                        i = entries[trial, 0 if one_mask else p, m]
                        numbers[i * most + counts[i]] = target[i] - number
                        counts[i] += 1
            for i in range(server.shape[1]):
                arrived = counts[i]
                if arrived == 0:
                    continue
                counts[i] = 0
                own = target[i] - server[trial, i]
                for j in range(arrived, fewest):
                    numbers[i * most + j] = own
                seen = Numbers(part_of(numbers, i * most, (max(arrived, fewest),)), own, i)
                agreed = body(self, seen, memory[trial]) if has_memory else body(self, seen)
                if abs(agreed) <= LARGEST:
                    server[trial, i] -= arrived / asked * (agreed - own)

    return frame


def _make_writing(unpack: Body, body: Body) -> Frame:
    return _make_over_vectors(unpack, body, True)


def _make_returning(unpack: Body, body: Body) -> Frame:
    return _make_over_vectors(unpack, body, False)


def _make_over_vectors(unpack: Body, body: Body, writes: bool) -> Frame:
    """Return the frame of rules over vectors; a method that does not write its change returns it."""
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, n: int, num_clients: int, target: FloatArray, uploads: Uploads, own_step: FloatArray,
        memory: FloatArray, work: Work, server: FloatArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        row_of, entry_of, rank, numbers, flags = (
            work.row_of,
            work.entry_of,
            work.counts,
            work.numbers,
            work.flags,
        )
        trials, _, shared = sent.shape
        one_mask = entries.shape[1] == 1
        for trial in range(trials):
            participants, met, answered = uploads.rows[trial], 0, 0
            for p in range(participants):
                has_answered = False
                for m in range(shared):
                    if abs(sent[trial, p, m]) <= LARGEST:
                        i = entries[trial, 0 if one_mask else p, m]
                        has_answered = True
                        if row_of[i] < 0:
                            row_of[i] = met
                            entry_of[met] = i
                            met += 1
                if has_answered:
                    rank[answered] = p
                    answered += 1
            if answered == 0:
                continue
            size = answered * met
            for j in range(size):
                numbers[j] = 0.0
                flags[j] = False
            for q in range(answered):
                p = rank[q]
                rank[q] = clients[trial, p]
                for m in range(shared):
                    if abs(sent[trial, p, m]) <= LARGEST:
                        i = entries[trial, 0 if one_mask else p, m]
                        numbers[q * met + row_of[i]] = server[trial, i] - sent[trial, p, m]
                        flags[q * met + row_of[i]] = True
            for row in range(met):
                i = entry_of[row]
                row_of[i] = -1
                numbers[size + row] = target[i] - server[trial, i]
                numbers[size + met + row] = -own_step[trial, i]
                numbers[size + 2 * met + row] = 0.0
            last = size + 3 * met
            out = part_of(numbers, size + 2 * met, (met,))
            updates = Updates(
                part_of(numbers, 0, (answered, met)), part_of(flags, 0, (answered, met)),
                part_of(numbers, size, (met,)), part_of(numbers, size + met, (met,)),
                part_of(numbers, last, (numbers.size - last,)), part_of(entry_of, 0, (met,)),
                part_of(rank, 0, (answered,)), num_clients,
            )  # fmt: skip
            if writes and has_memory:
                body(self, updates, memory[trial], out)
            elif writes:
                body(self, updates, out)
            elif has_memory:
                agreed = body(self, updates, memory[trial])
                for row in range(met):
                    out[row] = agreed[row]
            else:
                agreed = body(self, updates)
                for row in range(met):
                    out[row] = agreed[row]
            for q in range(answered):
                rank[q] = 0
            for row in range(met):
                if abs(out[row]) <= LARGEST:
                    server[trial, entry_of[row]] -= answered / uploads.asked[trial] * out[row]

    return frame


def _make_mixing(unpack: Body, body: Body) -> Frame:
    """Return the frame of pre-aggregations: uploads become mixtures of uploads."""
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, n: int, num_clients: int, stream: WordArray, target: FloatArray, server: FloatArray,
        uploads: Uploads, memory: FloatArray, work: Work, after: IntArray, mixed: Uploads,
    ) -> None:  # fmt: skip
        self = unpack(options)
        clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
        row_of, entry_of, numbers, flags = work.row_of, work.entry_of, work.numbers, work.flags
        trials, _, shared = sent.shape
        most, one_mask = mixed.sent.shape[2], entries.shape[1] == 1
        for trial in range(trials):
            participants, met = min(uploads.asked[trial], uploads.rows[trial]), 0
            count = after[participants]
            mixed.rows[trial] = mixed.asked[trial] = count
            for p in range(participants):
                for m in range(shared):
                    i = entries[trial, 0 if one_mask else p, m]
                    if abs(sent[trial, p, m]) <= LARGEST and row_of[i] < 0:
                        row_of[i] = met
                        entry_of[met] = i
                        met += 1
            size = participants * met
            for j in range(size):
                numbers[j] = 0.0
                flags[j] = False
            for p in range(participants):
                for m in range(shared):
                    i = entries[trial, 0 if one_mask else p, m]
                    if abs(sent[trial, p, m]) <= LARGEST:
                        numbers[p * met + row_of[i]] = server[trial, i] - sent[trial, p, m]
                        flags[p * met + row_of[i]] = True
            for row in range(met):
                i = entry_of[row]
                row_of[i] = -1
                numbers[size + row] = target[i] - server[trial, i]
            first = size + met
            for p in range(participants):
                numbers[first + p] = uniform_at(stream, trial, n * num_clients + np.int64(clients[trial, p]))
            start = first + participants
            weights = part_of(numbers, start, (count, participants))
            for r in range(count):
                for p in range(participants):
                    weights[r, p] = 0.0
            last = start + count * participants
            changes, held = part_of(numbers, 0, (participants, met)), part_of(flags, 0, (participants, met))
            if met > 0:
                updates = AllUpdates(
                    changes, held, part_of(numbers, size, (met,)), part_of(numbers, first, (participants,)),
                    part_of(numbers, last, (numbers.size - last,)),
                )  # fmt: skip
                if has_memory:
                    body(self, updates, memory[trial], weights)
                else:
                    body(self, updates, weights)
            for row in range(most):
                mixed.entries[trial, 0, row] = entry_of[row] if row < met else 0
            for r in range(count):
                mixed.clients[trial, r] = r
                for row in range(most):
                    total, anyone = 0.0, False
                    if row < met:
                        for p in range(participants):
                            if weights[r, p] != 0.0:
                                total += weights[r, p] * changes[p, row]
                                anyone = anyone or held[p, row]
                    mixed.sent[trial, r, row] = server[trial, entry_of[row]] - total if anyone else math.nan

    return frame


class _Owner:
    """Holds the hook of a single call."""


def combine_compiled(
    rule: Aggregation,
    uploads: FloatArray,
    server: FloatArray,
    memory: FloatArray | None = None,
    clients: IntArray | None = None,
    num_clients: int | None = None,
) -> FloatArray:
    """Return the server's next model, as :func:`psofed.parts.plain.combine_uploads` does, for large models.

    Examples
    --------
    >>> from psofed.parts.aggregations import Median
    >>> combine_compiled(Median(), np.array([[1.0, np.nan], [3.0, 2.0], [9.0, 4.0]]), np.array([0.0, 1.0]))
    array([3.        , 1.66666667])
    """
    participants, size = uploads.shape
    total = participants if num_clients is None else num_clients
    kept = np.zeros(rule.memory_size(total, size)) if memory is None else memory
    senders = np.arange(participants) if clients is None else clients
    hook, owner = rule_hook(rule), _Owner()
    check = watch_hooks(owner, (hook,))
    # Kernels hold errors; counted from a target of zero an error is the model with the other sign.
    every, counts = np.arange(size, dtype=np.int32)[None, None], np.full(1, participants)
    given = Uploads(senders.astype(np.int32)[None], every, -uploads[None], counts, counts)
    error, nothing = -server.astype(np.float64)[None], np.zeros((1, size))
    _call(
        hook.address, hook.options, total, np.zeros(size), given, nothing, kept[None],
        KernelTable(make_work(participants, size, size)), error,
    )  # fmt: skip
    check()
    return np.asarray(-error[0])


@compiled
def _call(
    address: int, options: FloatArray, num_clients: int, target: FloatArray, uploads: Uploads, own_step: FloatArray,
    memory: FloatArray, work: KernelTable, server: FloatArray,
) -> None:  # fmt: skip
    take_aggregation(address)(options, 0, num_clients, target, uploads, own_step, memory, work, server)
