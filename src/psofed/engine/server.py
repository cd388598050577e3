"""The server: pre-aggregations and rules in the form that kernels take, and the frames around their methods."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba.extending import register_jitable

from psofed.common.types import FloatArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.delays import weigh_by_delay
from psofed.engine.dense import entry_at, gather, make_work, release
from psofed.engine.hooks import NO_HOOK, Body, Frame, Hook, MakeFrame, make_hook, teach, watch_hooks
from psofed.engine.normals import uniform_at
from psofed.engine.root_data import RootSet, draw_root, own_step
from psofed.engine.signatures import (
    AGGREGATION,
    DEFENCE,
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
from psofed.parts.base import Aggregation, Defence
from psofed.parts.contexts import AllUpdates, Evidence, Numbers, Updates
from psofed.parts.part import takes_memory
from psofed.parts.plain import LARGEST, check_size
from psofed.parts.vectors import middle, part_of
from psofed.parts.watching import (
    LARGEST_SCORE,
    Watching,
    find_deviations,
    learn_variances,
    take_note,
)

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario


class RuleSide(NamedTuple):
    """The aggregation rule, and the pre-aggregation before it.

    Attributes
    ----------
    rule : Hook
        Of the rule; none for the mean, which the engine has itself.
    memory : array (L, any)
        What the rule remembers.
    step : array (L, D)
        Scratch: the server's own step, or its change.
    mix : Hook
        Of the pre-aggregation.
    mix_memory : array (L, any)
        What it remembers.
    stream : array (2, L)
        Its randomness.
    after : int array (P + 1,)
        Number of mixed uploads, by number of participants.
    work, mixed
        Scratch of the hooks, and the mixed uploads, with all entries that can be shared.
    """

    rule: Hook
    memory: FloatArray
    step: FloatArray
    mix: Hook
    mix_memory: FloatArray
    stream: WordArray
    after: IntArray
    work: Work
    mixed: Uploads


def make_rule_side(
    scenario: "Scenario", fleet: "Fleet", stream: Stream, root: Stream | None, numbers: int
) -> tuple[RuleSide, RootSet]:
    """Return the server's side of several trials: rules and root data.

    `stream` is the pre-aggregation's, `root` that of the server's samples, and an upload has up to `numbers` values.
    """
    rule, pre, trials = scenario.aggregation, scenario.pre_aggregation, stream.key.size
    joined, dimension = scenario.most_uploads, max(numbers, scenario.dimension)
    entries, mixed, after = 0, 0, [0]
    if pre is not None:
        entries, mixed = numbers, pre.uploads_after(joined)
        if scenario.algorithm.holds_models and not (
            scenario.selection.coordinated and scenario.delay is None
        ):
            entries = min(scenario.dimension, joined * numbers)
        after = [0, *(pre.uploads_after(count) for count in range(1, joined + 1))]
    clients = scenario.num_clients
    over_vectors = pre is not None or rule.over == "vectors" or scenario.defence is not None
    remembered = rule.memory_size(clients, dimension)
    check_size(f'aggregation.kind = "{rule.kind}" with {clients} clients and {dimension} entries', remembered)
    side = RuleSide(
        rule=NO_HOOK if type(rule) is Mean else rule_hook(rule),
        memory=np.zeros((trials, remembered)),
        step=np.zeros((trials, dimension)),
        mix=NO_HOOK if pre is None else make_hook(pre, "weigh", MIX, _make_mixing),
        mix_memory=np.zeros((trials, 0 if pre is None else pre.memory_size(clients, dimension))),
        stream=np.array(stream),
        after=np.array(after, np.int64),
        work=make_work(joined, numbers, dimension, over_vectors),
        mixed=Uploads(
            np.zeros((trials, mixed), np.int32), np.zeros((trials, 1, entries), np.int32),
            np.full((trials, mixed, entries), np.nan), np.zeros(trials, np.int64), np.zeros(trials, np.int64),
        ),
    )  # fmt: skip
    return side, draw_root(scenario, fleet, root)


def defence_hook(defence: Defence | None) -> Hook:
    """Return the hook of a defence."""
    functions: Any = (find_deviations, take_note, learn_variances)
    for function in functions:
        teach(function)
    return NO_HOOK if defence is None else make_hook(defence, "suspicion", DEFENCE, _make_judging)


def rule_hook(rule: Aggregation) -> Hook:
    """Return the hook of a rule."""
    make_frame: MakeFrame = _make_over_entries
    if rule.over == "vectors":
        make_frame = _make_writing if rule.writes_change() else _make_returning
    return make_hook(rule, "combine", AGGREGATION, make_frame, rule.fewest_numbers())


@kernel_part
def aggregate(n: int, block: "TrialBlock", target: FloatArray, uploads: Uploads, server: FloatArray) -> None:
    """Update the server with the uploads of iteration n."""
    rule = block.rule
    if rule.rule.address == 0:
        _move_by_mean(uploads, rule.step, server)
    else:
        take_aggregation(rule.rule.address)(
            rule.rule.options,
            n,
            block.layout.clients,
            target,
            uploads,
            rule.step,
            rule.memory,
            rule.work,
            server,
        )


@kernel_part
def mix_and_aggregate(
    n: int, block: "TrialBlock", target: FloatArray, uploads: Uploads, server: FloatArray
) -> None:
    """Update the server with the uploads of iteration n, mixed before, or compared with its own step."""
    rule, root = block.rule, block.root
    if rule.mix.address != 0:
        mixed = taken(rule.mixed)
        take_mix(rule.mix.address)(
            rule.mix.options, n, block.layout.clients, rule.stream, target, server, uploads, rule.mix_memory, rule.work,
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
        sent, numbers, who = uploads.sent, work.numbers, work.counts
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
                part_of(who, 0, (answered,)), num_clients,
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


def _make_mixing(unpack: Body, body: Body) -> Frame:
    """Return the frame of pre-aggregations: uploads become mixtures of uploads."""
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, n: int, num_clients: int, stream: WordArray, target: FloatArray, server: FloatArray,
        uploads: Uploads, memory: FloatArray, work: Work, after: IntArray, mixed: Uploads,
    ) -> None:  # fmt: skip
        self = unpack(options)
        numbers, who = work.numbers, work.counts
        for trial in range(uploads.sent.shape[0]):
            participants = min(uploads.asked[trial], uploads.rows[trial])
            count = mixed.rows[trial] = mixed.asked[trial] = after[participants]
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
                uniforms[p] = uniform_at(stream, trial, n * num_clients + client)
                for r in range(count):
                    weights[r, p] = 0.0
            updates = AllUpdates(
                changes, shared, own, uniforms, part_of(numbers, last, (numbers.size - last,))
            )
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


def _make_judging(unpack: Body, body: Body) -> Frame:
    """Return the frame of defences (:mod:`psofed.parts.watching`): what suspects sent becomes NaN."""

    def frame(
        options: FloatArray, n: int, server: FloatArray, uploads: Uploads, watch: Watching, work: Work
    ) -> None:
        self = unpack(options)
        sent, scores = uploads.sent, np.empty(uploads.sent.shape[2])
        for trial in range(sent.shape[0]):
            clients = uploads.clients[trial, : uploads.rows[trial]]
            residuals = _find_residuals(trial, server[trial], uploads, watch, work)
            squares, deviations = find_deviations(n, trial, clients, residuals, watch)
            for p in range(clients.size):
                if squares[p] == squares[p]:
                    client: Any = np.int64(clients[p])
                    count = 0
                    for residual in residuals[p]:
                        if residual == residual:
                            score = residual / deviations[p]
                            scores[count] = min(max(score, -LARGEST_SCORE), LARGEST_SCORE)
                            count += 1
                    evidence = Evidence(part_of(scores, 0, (count,)), client, n)
                    suspicion = body(self, evidence, watch.memory[trial, client])
                    take_note(suspicion, n, trial, client, watch)
            learn_variances(trial, clients, squares, watch)
            # After all notes: several delayed uploads of a client may arrive together.
            for p in range(clients.size):
                if watch.left[trial, clients[p]] != 0:
                    sent[trial, p] = math.nan

    return frame


@register_jitable
def _find_residuals(
    trial: int, server: FloatArray, uploads: Uploads, watch: Watching, work: Work
) -> FloatArray:
    """Return uploads less the server's values, or the median of that and the others', (P, M); NaN if not sent."""
    sent, included, count = uploads.sent, work.counts, 0
    participants, shared = uploads.rows[trial], sent.shape[2]
    residuals, others = np.full((participants, shared), math.nan), np.empty(participants + 1)
    for p in range(participants):
        if not watch.by_server and watch.left[trial, uploads.clients[trial, p]] == 0:
            included[count] = p
            count += 1
    changes, is_shared, entries = gather(uploads, trial, included, count, server, work)
    for p in range(participants):
        for m in range(shared):
            number, i = sent[trial, p, m], entry_at(uploads, trial, p, m)
            if number != number:
                continue
            others[0], size, row = 0.0, 1, work.row_of[i]
            for q in range(count if row >= 0 else 0):
                if included[q] != p and is_shared[q, row]:
                    others[size] = changes[q, row]
                    size += 1
            # Errors have the other sign than models.
            residual = server[i] - number - middle(part_of(others, 0, (size,)))
            residuals[p, m] = min(max(residual, -LARGEST), LARGEST)
    release(entries, work)
    for q in range(count):
        included[q] = 0
    return residuals


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
