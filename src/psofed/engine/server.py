"""The server: pre-aggregations and rules in the form that kernels take, and the frames around their methods."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.hooks import Body, Hooks, MakeFrame, options_of
from psofed.engine.normals import uniform_at
from psofed.engine.server_samples import NO_SERVER_SAMPLES, ServerSamples, draw_root_data, own_step
from psofed.engine.streams import WordArray
from psofed.engine.tables import KernelTable, Stage, call
from psofed.engine.uploads import Uploads, Work, gather, make_uploads, make_work, release
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.base import Aggregation
from psofed.parts.contexts import AllUpdates, Numbers, Updates
from psofed.parts.part import takes_memory
from psofed.parts.plain import LARGEST, check_size
from psofed.parts.vectors import part_of

if TYPE_CHECKING:
    from psofed.engine.state import Setup


class RuleSide(NamedTuple):
    """The aggregation rule, and the pre-aggregation before it.

    Attributes
    ----------
    address, mix_address : int array (1,)
        Of the rule's method, 0 for the mean, which the engine has itself; and of the pre-aggregation's, 0 without one.
    options, mix_options : array (any,)
        Their options; the last one of a rule's is the fewest numbers that it takes.
    num_clients : int
        K.
    target, server : arrays (any,), (L, any)
        What uploads are counted from, and the server's errors, which the rule changes.
    uploads, joined : Uploads
        What arrives, and what the rule joins: the same unless they are mixed.
    step : array (L, D)
        Scratch: the server's own step, or its change.
    memory, mix_memory : array (L, any)
        What rule and pre-aggregation remember.
    stream : array (2, L)
        Randomness of the pre-aggregation.
    after : int array (P + 1,)
        Number of mixed uploads, by number of participants.
    root : ServerSamples
        The server's own samples.
    work : Work
        Scratch.
    """

    address: IntArray
    mix_address: IntArray
    options: FloatArray
    mix_options: FloatArray
    num_clients: int
    target: FloatArray
    server: FloatArray
    uploads: Uploads
    joined: Uploads
    step: FloatArray
    memory: FloatArray
    mix_memory: FloatArray
    stream: WordArray
    after: IntArray
    root: ServerSamples
    work: Work


def make_rule_side(setup: "Setup", uploads: Uploads, server: FloatArray, target: FloatArray) -> RuleSide:
    """Return rule and pre-aggregation of several trials; ``server`` (L, any) is what they change."""
    scenario, pre, trials = setup.scenario, setup.scenario.pre_aggregation, len(setup.trials)
    side = make_rule(scenario.aggregation, uploads, server, target, scenario.num_clients, setup.work, setup.hooks)
    side = side._replace(root=draw_root_data(setup))
    if pre is not None:
        entries, joined = setup.most_numbers, scenario.most_uploads
        if scenario.algorithm.holds_models and (not setup.one_mask or scenario.delay is not None):
            entries = min(scenario.dimension, joined * entries)
        side = side._replace(
            mix_options=options_of(pre),
            joined=make_uploads(trials, pre.uploads_after(joined), entries),
            mix_memory=np.zeros((trials, pre.memory_size(scenario.num_clients, setup.work.row_of.size))),
            stream=np.array(setup.stream("pre_aggregation")),
            after=np.array([0, *(pre.uploads_after(count) for count in range(1, joined + 1))], np.int64),
        )
        side.mix_address[0] = setup.hooks.add(pre, "weigh", _make_mixing, side)
    return side


def make_rule(
    rule: Aggregation,
    uploads: Uploads,
    server: FloatArray,
    target: FloatArray,
    num_clients: int,
    work: Work,
    hooks: Hooks,
) -> RuleSide:
    """Return a rule without a pre-aggregation or root data."""
    trials, dimension = len(server), work.row_of.size
    remembered = rule.memory_size(num_clients, dimension)
    check_size(f'aggregation.kind = "{rule.kind}" with {num_clients} clients and {dimension} entries', remembered)
    side = RuleSide(
        np.zeros(1, np.int64), np.zeros(1, np.int64), options_of(rule, rule.fewest_numbers()), np.zeros(0), num_clients,
        target, server, uploads, uploads, np.zeros((trials, dimension)), np.zeros((trials, remembered)),
        np.zeros((trials, 0)), np.zeros((2, 0), np.uint64), np.zeros(1, np.int64), NO_SERVER_SAMPLES, work,
    )  # fmt: skip
    if type(rule) is not Mean:
        make_frame: MakeFrame = _make_over_entries
        if rule.over == "vectors":
            make_frame = _make_writing if rule.writes_change() else _make_returning
        side.address[0] = hooks.add(rule, "combine", make_frame, side)
    return side


@kernel_part
def aggregate(n: int, rule: RuleSide) -> None:
    """Update the server with the uploads of iteration n."""
    if rule.address[0] == 0:
        _move_by_mean(rule)
    else:
        call(rule.address[0], n, 0, 0, rule)


@kernel_part
def mix_and_aggregate(n: int, rule: RuleSide) -> None:
    """Update the server with the uploads of iteration n, mixed before, or compared with its own step."""
    if rule.mix_address[0] != 0:
        call(rule.mix_address[0], n, 0, 0, rule)
    if rule.root.rows.shape[1]:
        own_step(rule.root, rule.server, rule.step)
    aggregate(n, rule)


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
    total, hooks = participants if num_clients is None else num_clients, Hooks()
    messages = make_uploads(1, participants, size)
    # Kernels hold errors; counted from a target of zero an error is the model with the other sign.
    messages.sent[0], error = -uploads, -server.astype(np.float64)[None]
    if clients is not None:
        messages.clients[0] = clients
    side = make_rule(rule, messages, error, np.zeros(size), total, make_work(participants, size, size), hooks)
    if memory is not None:
        side = side._replace(memory=memory[None])
    table: Any = KernelTable(side)
    _combine(table)
    hooks.check()
    return np.asarray(-error[0])


@compiled
def _combine(rule: RuleSide) -> None:
    aggregate(0, rule)


@kernel_part
def _move_by_mean(rule: RuleSide) -> None:
    """Move each entry of the server by the mean over all participants of what they sent less its old value."""
    change, server = rule.step, rule.server  # the first is scratch that holds zeros
    entries, sent = rule.joined.entries, rule.joined.sent
    counts, all_asked = rule.joined.rows, rule.joined.asked
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


def _make_over_entries(unpack: Body, body: Body) -> Stage:
    """Return the frame of rules that join the numbers of each entry."""
    has_memory = takes_memory(body)

    def frame(n: int, k: int, g: int, rule: RuleSide) -> None:
        self, uploads, server, target = unpack(rule.options), rule.joined, rule.server, rule.target
        entries, sent, rows, all_asked = uploads.entries, uploads.sent, uploads.rows, uploads.asked
        counts, numbers, memory = rule.work.counts, rule.work.numbers, rule.memory
        trials, most, shared = sent.shape
        quorum, one_mask = int(rule.options[rule.options.size - 1]), entries.shape[1] == 1
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


def _make_writing(unpack: Body, body: Body) -> Stage:
    return _make_over_vectors(unpack, body, True)


def _make_returning(unpack: Body, body: Body) -> Stage:
    return _make_over_vectors(unpack, body, False)


def _make_over_vectors(unpack: Body, body: Body, writes: bool) -> Stage:
    """Return the frame of rules over vectors; a method that does not write its change returns it."""
    has_memory = takes_memory(body)

    def frame(n: int, k: int, g: int, rule: RuleSide) -> None:
        self, uploads = unpack(rule.options), rule.joined
        work, target, server = rule.work, rule.target, rule.server
        sent, numbers, who, memory, own_step = uploads.sent, work.numbers, work.counts, rule.memory, rule.step
        for trial in range(sent.shape[0]):
            answered = 0
            for p in range(uploads.rows[trial]):
                is_usable = False
                for m in range(sent.shape[2]):
                    is_usable = is_usable or abs(sent[trial, p, m]) <= LARGEST
                if is_usable:
                    who[answered] = p
                    answered += 1
            if answered == 0:
                continue
            changes, shared, entries = gather(uploads, trial, who, answered, server[trial], work)
            release(entries, work)
            size, met = changes.size, entries.size
            own, step = part_of(numbers, size, (met,)), part_of(numbers, size + met, (met,))
            out = part_of(numbers, size + 2 * met, (met,))
            for row in range(met):
                i = entries[row]
                own[row], step[row], out[row] = target[i] - server[trial, i], -own_step[trial, i], 0.0
            for q in range(answered):
                who[q] = uploads.clients[trial, who[q]]
            last = size + 3 * met
            updates = Updates(
                changes, shared, own, step, part_of(numbers, last, (numbers.size - last,)), entries,
                part_of(who, 0, (answered,)), rule.num_clients,
            )  # fmt: skip
            if writes and has_memory:
                body(self, updates, memory[trial], out)
            elif writes:
                body(self, updates, out)
            else:
                agreed = body(self, updates, memory[trial]) if has_memory else body(self, updates)
                for row in range(met):
                    out[row] = agreed[row]
            for q in range(answered):
                who[q] = 0
            for row in range(met):
                if abs(out[row]) <= LARGEST:
                    server[trial, entries[row]] -= answered / uploads.asked[trial] * out[row]

    return frame


def _make_mixing(unpack: Body, body: Body) -> Stage:
    """Return the frame of pre-aggregations: uploads become mixtures of uploads."""
    has_memory = takes_memory(body)

    def frame(n: int, k: int, g: int, rule: RuleSide) -> None:
        self, uploads, mixed, work = unpack(rule.mix_options), rule.uploads, rule.joined, rule.work
        target, server, memory = rule.target, rule.server, rule.mix_memory
        numbers, who, num_clients = work.numbers, work.counts, rule.num_clients
        for trial in range(uploads.sent.shape[0]):
            participants = min(uploads.asked[trial], uploads.rows[trial])
            count = mixed.rows[trial] = mixed.asked[trial] = rule.after[participants]
            for p in range(participants):
                who[p] = p
            changes, shared, entries = gather(uploads, trial, who, participants, server[trial], work)
            release(entries, work)
            first, met = changes.size + entries.size, entries.size
            start = first + participants
            last = start + count * participants
            own, uniforms = part_of(numbers, changes.size, (met,)), part_of(numbers, first, (participants,))
            weights = part_of(numbers, start, (count, participants))
            for row in range(met):
                own[row] = target[entries[row]] - server[trial, entries[row]]
            for p in range(participants):
                who[p] = 0
                client: Any = np.int64(uploads.clients[trial, p])
                uniforms[p] = uniform_at(rule.stream, trial, n * num_clients + client)
                for r in range(count):
                    weights[r, p] = 0.0
            updates = AllUpdates(changes, shared, own, uniforms, part_of(numbers, last, (numbers.size - last,)))
            if met > 0 and has_memory:
                body(self, updates, memory[trial], weights)
            elif met > 0:
                body(self, updates, weights)
            for row in range(mixed.sent.shape[2]):
                i = entries[row] if row < met else 0
                mixed.entries[trial, 0, row] = i
                for r in range(count):
                    mixed.clients[trial, r] = r
                    total, is_held = 0.0, False
                    for p in range(participants if row < met else 0):
                        if weights[r, p] != 0.0:
                            total += weights[r, p] * changes[p, row]
                            is_held = is_held or shared[p, row]
                    mixed.sent[trial, r, row] = server[trial, i] - total if is_held else math.nan

    return frame
