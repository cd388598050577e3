"""The server: what a defence drops, pre-aggregations, and rules, each in the form that kernels take.

Defences judge uploads as :mod:`psofed.parts.watching` says.
"""

import math
from typing import Any

import numpy as np
from numba.extending import register_jitable

from psofed.common.types import FloatArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.hooks import Frame, Hooks, Method, options_of, teach
from psofed.engine.normals import uniform_at
from psofed.engine.samples import NO_SERVER_SAMPLES, draw_root_data, own_step
from psofed.engine.state import Setup, Uploads, Work, entry_at, gather, has_arrived, release
from psofed.engine.tables import KernelTable, TableData, call
from psofed.parts.aggregations.by_entry import Mean
from psofed.parts.base import Aggregation
from psofed.parts.contexts import AllUpdates, Evidence, Numbers, Updates
from psofed.parts.plain import LARGEST, check_size
from psofed.parts.vectors import middle, part_of
from psofed.parts.watching import LARGEST_SCORE, Watching, WatchPlan, find_deviations, learn_variances, take_note

_NOT_WATCHED = WatchPlan(0.0, np.zeros((0, 0)))


class DefenceSide(TableData):
    """The defence, with what it needs to know before a run.

    Attributes
    ----------
    address : int
        Of its method; 0 without a defence.
    options : array (any,)
        Its options.
    excludes_downloads : bool
        Whether excluded clients do not download either.
    server : array (L, any)
        The server's errors.
    uploads : Uploads
        What arrives; what excluded clients sent becomes NaN.
    watching : Watching
        Its memory.
    work : Work
        Scratch.
    """

    def __init__(self, setup: Setup, plan: WatchPlan | None) -> None:
        defence, clients = setup.scenario.defence, setup.scenario.num_clients
        assert (plan is None) == (defence is None), "a defence needs its plan"
        self.address, self.options = 0, np.zeros(0) if defence is None else options_of(defence)
        self.excludes_downloads = defence is not None and not defence.excluded_download
        self.server, self.uploads, self.work = setup.state.known, setup.uploads, setup.work
        self.watching = Watching(defence, plan or _NOT_WATCHED, clients, len(setup.trials) if plan else 0)
        if defence is not None:
            functions: Any = (find_deviations, take_note, learn_variances)
            for function in functions:
                teach(function)
            self.address = setup.hooks.add(defence, "suspicion", _watch, self)


def _watch(method: Method, n: int, k: int, g: int, defence: DefenceSide) -> None:
    """Frame of a defence: judge uploads, and drop what excluded clients sent."""
    uploads, watch = defence.uploads, defence.watching
    sent, left = uploads.sent, watch.left
    scores = np.empty(sent.shape[2])
    for trial in range(sent.shape[0]):
        clients = uploads.clients[trial, : uploads.rows[trial]]
        residuals = _find_residuals(trial, defence)
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
                take_note(method(defence.options, watch.memory[trial, client], evidence), n, trial, client, watch)
        learn_variances(trial, clients, squares, watch)
        # After all notes: several delayed uploads of a client may arrive together.
        for p in range(clients.size):
            if left[trial, clients[p]] != 0:
                sent[trial, p] = math.nan


@register_jitable
def _find_residuals(trial: int, defence: DefenceSide) -> FloatArray:
    """Return uploads less the server's values, or the median of that and the others', (P, M); NaN if not sent."""
    uploads, watch, work, server = defence.uploads, defence.watching, defence.work, defence.server[trial]
    sent, included, count = uploads.sent, work.order, 0
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
    return residuals


class RuleSide(TableData):
    """The aggregation rule, and the pre-aggregation before it.

    Parameters
    ----------
    rule : Aggregation
    uploads : Uploads
        What arrives.
    server, target : arrays (L, any), (any,)
        The server's errors, which the rule changes, and what uploads are counted from.
    num_clients : int
        K.
    work : Work
        Scratch.
    hooks : Hooks
        Where the rule's method is collected.

    Attributes
    ----------
    address, mix_address : int
        Of the rule's method, 0 for the mean, which the engine has itself; and of the pre-aggregation's, 0 without one.
    options, mix_options : array (any,)
        Their options; the last one of a rule's is the fewest numbers that it takes.
    joined : Uploads
        What the rule joins: what arrives, unless that is mixed.
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
    """

    def __init__(
        self,
        rule: Aggregation,
        uploads: Uploads,
        server: FloatArray,
        target: FloatArray,
        num_clients: int,
        work: Work,
        hooks: Hooks,
    ) -> None:
        trials, dimension = len(server), work.row_of.size
        remembered = rule.memory_size(num_clients, dimension)
        check_size(f'aggregation.kind = "{rule.kind}" with {num_clients} clients and {dimension} entries', remembered)
        self.address, self.options = 0, options_of(rule, rule.fewest_numbers())
        self.num_clients, self.target, self.server, self.work = num_clients, target, server, work
        self.uploads = self.joined = uploads
        self.step, self.memory = np.zeros((trials, dimension)), np.zeros((trials, remembered))
        self.mix_address, self.mix_options, self.mix_memory = 0, np.zeros(0), np.zeros((trials, 0))
        self.stream, self.after = np.zeros((2, 0), np.uint64), np.zeros(1, np.int64)
        self.root = NO_SERVER_SAMPLES
        if type(rule) is not Mean:
            frame: Frame = _join_entries
            if rule.over == "vectors":
                frame = _join_vectors if rule.writes_change() else _join_returned_vectors
            self.address = hooks.add(rule, "combine", frame, self)


def make_rule_side(setup: Setup, uploads: Uploads, server: FloatArray, target: FloatArray) -> RuleSide:
    """Return rule and pre-aggregation of several trials; ``server`` (L, any) is what they change."""
    scenario, pre, joined = setup.scenario, setup.scenario.pre_aggregation, setup.scenario.most_uploads
    side = RuleSide(scenario.aggregation, uploads, server, target, scenario.num_clients, setup.work, setup.hooks)
    side.root = draw_root_data(setup)
    if pre is not None:
        entries = setup.most_numbers
        if scenario.algorithm.holds_models and (not setup.one_mask or scenario.delay is not None):
            entries = min(scenario.dimension, joined * entries)
        side.joined = Uploads(len(server), pre.uploads_after(joined), entries)
        side.mix_options = options_of(pre)
        side.mix_memory = np.zeros((len(server), pre.memory_size(scenario.num_clients, setup.work.row_of.size)))
        side.stream = np.array(setup.stream("pre_aggregation"))
        side.after = np.array([0, *(pre.uploads_after(count) for count in range(1, joined + 1))], np.int64)
        side.mix_address = setup.hooks.add(pre, "weigh", _mix, side)
    return side


@kernel_part
def aggregate(n: int, rule: RuleSide) -> None:
    """Update the server with the uploads of iteration n."""
    if rule.address == 0:
        _move_by_mean(rule)
    else:
        call(rule.address, n, 0, 0, rule)


@kernel_part
def mix_and_aggregate(n: int, rule: RuleSide) -> None:
    """Update the server with the uploads of iteration n, mixed before, or compared with its own step."""
    if rule.mix_address != 0:
        call(rule.mix_address, n, 0, 0, rule)
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
    messages = Uploads(1, participants, size)
    # Kernels hold errors; counted from a target of zero an error is the model with the other sign.
    messages.sent[0], error = -uploads, -server.astype(np.float64)[None]
    if clients is not None:
        messages.clients[0] = clients
    side = RuleSide(rule, messages, error, np.zeros(size), total, Work(participants, size, size), hooks)
    if memory is not None:
        side.memory = memory[None]
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
    trials, rows, shared = sent.shape[0], entries.shape[1], sent.shape[2]
    for trial in range(trials):
        participants, asked = rule.joined.rows[trial], max(rule.joined.asked[trial], 1)
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


def _join_entries(method: Method, n: int, k: int, g: int, rule: RuleSide) -> None:
    """Frame of rules that join the numbers of each entry."""
    uploads, server, target, options = rule.joined, rule.server, rule.target, rule.options
    counts, numbers = rule.work.counts, rule.work.numbers
    trials, most, shared = uploads.sent.shape
    quorum = int(options[options.size - 1])
    for trial in range(trials):
        asked = uploads.asked[trial]
        fewest = min(quorum, asked)
        for p in range(uploads.rows[trial]):
            for m in range(shared):
                number = uploads.sent[trial, p, m]
                if abs(number) <= LARGEST:
                    i = entry_at(uploads, trial, p, m)
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
            agreed = method(options, rule.memory[trial], seen)
            if abs(agreed) <= LARGEST:
                server[trial, i] -= arrived / asked * (agreed - own)


@register_jitable
def _write_change(method: Method, options: FloatArray, memory: FloatArray, seen: Updates, out: FloatArray) -> None:
    method(options, memory, seen, out)


@register_jitable
def _write_returned(method: Method, options: FloatArray, memory: FloatArray, seen: Updates, out: FloatArray) -> None:
    change = method(options, memory, seen)
    for row in range(out.size):
        out[row] = change[row] if row < len(change) else math.nan  # too short: nothing is changed there


def _join_vectors(method: Method, n: int, k: int, g: int, rule: RuleSide) -> None:
    """Frame of rules over vectors that write their change."""
    _join_changes(_write_change, method, rule)


def _join_returned_vectors(method: Method, n: int, k: int, g: int, rule: RuleSide) -> None:
    """Frame of rules over vectors that return their change."""
    _join_changes(_write_returned, method, rule)


@register_jitable
def _join_changes(write: Method, method: Method, rule: RuleSide) -> None:
    uploads, work, server, who = rule.joined, rule.work, rule.server, rule.work.order
    for trial in range(server.shape[0]):
        answered = 0
        for p in range(uploads.rows[trial]):
            if has_arrived(uploads.sent[trial, p]):
                who[answered] = p
                answered += 1
        if answered == 0:
            continue
        changes, shared, entries = gather(uploads, trial, who, answered, server[trial], work)
        release(entries, work)
        vectors = np.zeros((3, entries.size))
        own, step, out = vectors[0], vectors[1], vectors[2]
        for row in range(entries.size):
            own[row] = rule.target[entries[row]] - server[trial, entries[row]]
            step[row] = -rule.step[trial, entries[row]]
        for q in range(answered):
            who[q] = uploads.clients[trial, who[q]]
        scratch = part_of(work.numbers, changes.size, (work.numbers.size - changes.size,))
        clients = part_of(who, 0, (answered,))
        updates = Updates(changes, shared, own, step, scratch, entries, clients, rule.num_clients)
        write(method, rule.options, rule.memory[trial], updates, out)
        for row in range(entries.size):
            if abs(out[row]) <= LARGEST:
                server[trial, entries[row]] -= answered / uploads.asked[trial] * out[row]


def _mix(method: Method, n: int, k: int, g: int, rule: RuleSide) -> None:
    """Frame of pre-aggregations: uploads become mixtures of uploads."""
    uploads, mixed, work, server, who = rule.uploads, rule.joined, rule.work, rule.server, rule.work.order
    for trial in range(uploads.sent.shape[0]):
        participants = min(uploads.asked[trial], uploads.rows[trial])
        count = mixed.rows[trial] = mixed.asked[trial] = rule.after[participants]
        for p in range(participants):
            who[p] = p
        changes, shared, entries = gather(uploads, trial, who, participants, server[trial], work)
        release(entries, work)
        met, weights = entries.size, np.zeros((count, participants))
        own, uniforms = np.empty(met), np.empty(participants)
        for row in range(met):
            own[row] = rule.target[entries[row]] - server[trial, entries[row]]
        for p in range(participants):
            client: Any = np.int64(uploads.clients[trial, p])
            uniforms[p] = uniform_at(rule.stream, trial, n * rule.num_clients + client)
        scratch = part_of(work.numbers, changes.size, (work.numbers.size - changes.size,))
        updates = AllUpdates(changes, shared, own, uniforms, scratch)
        if met > 0:
            method(rule.mix_options, rule.mix_memory[trial], updates, weights)
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
