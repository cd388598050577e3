"""One iteration, from top to bottom as in the paper: download, learn, corrupt, upload, deliver, defend, aggregate.

Only learning is done for sixteen columns at a time (:mod:`psofed.engine.step`). Everything else handles one trial after
another, and each step here loops over the trials of a block. The server's model is held as an error too, w − w_n.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.attackers import ON_UPLOADS, AttackSide, set_byzantine
from psofed.engine.channels import ChannelSide
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.delays import DelaySide
from psofed.engine.hooks import Hook
from psofed.engine.inputs import InputModel
from psofed.engine.lanes import WIDTH, fma, load, spread, store
from psofed.engine.learning import Learning, Sampling
from psofed.engine.rivals import RivalSide
from psofed.engine.root_data import RootSet
from psofed.engine.server import RuleSide, aggregate
from psofed.engine.signatures import (
    AttackState,
    Uploads,
    sent_at,
    take_attack,
    take_defence,
    take_remember,
    uploads_at,
)
from psofed.engine.step import Layout, StepScratch, Tally, WordSource
from psofed.engine.tables import call_stage
from psofed.engine.test_set import TestSet, measure
from psofed.parts.watching import Watching

# What a call of the kernel does: what precedes learning, learning, what follows; threads may share the second.
BEFORE, LEARN, AFTER = 1, 2, 4
WHOLE = BEFORE | LEARN | AFTER


class Exchanges(NamedTuple):
    """Participants and masks of T iterations.

    Attributes
    ----------
    participants, uploaders : int array (T, L, P)
        Clients that download, and clients that upload.
    downloaded, uploaded : int array (T, L, P or 1, M)
        The entries each of them exchanges.
    downloads, uploads : bool array (T, L, P), or empty
        Whether each is reached; all are if it is empty.
    asked : int array (T, L)
        Number of clients that were asked to upload.
    learns, all_learn : uint8 arrays (T, V, 16), or empty, and (0, 0)
        1 for each column that learns; all do if it is empty. What stands for all.
    """

    participants: IndexArray
    downloaded: IndexArray
    uploaders: IndexArray
    uploaded: IndexArray
    downloads: BoolArray
    uploads: BoolArray
    asked: IntArray
    learns: NDArray[np.uint8]
    all_learn: NDArray[np.uint8]


class DefenceSide(NamedTuple):
    """The defence.

    Attributes
    ----------
    hook : Hook
        Of its method.
    excluded_download : bool
        Whether excluded clients still download.
    """

    hook: Hook
    excluded_download: bool


class State(NamedTuple):
    """State that the kernel advances, and scratch.

    Attributes
    ----------
    target, base : array (D,)
        w, and what uploads are counted from: w, or zeros where no models are sent.
    models : array (V, D, 16)
        Errors w − w_{k,n} of all columns.
    server : array (L, D)
        Errors w − w_n.
    server_lanes : array (1, D, 16)
        Scratch: the server's errors with trials as lanes.
    sent, rows, asked : arrays (L, P, M), (L,) and (L,)
        What is uploaded, how many uploads there are, and how many were asked for.
    received, every : arrays (L, P, M or D) and (L, 1, M or D)
        Scratch for downloads; all entries, for clients that hold no model.
    nothing : array (L, M)
        Zeros: what attacks and defences take for the server's errors where no models are sent.
    path, measured : arrays (L, D, 16) and (2, 16)
        Scratch: the server's errors of sixteen iterations, and their metrics.
    """

    target: FloatArray
    base: FloatArray
    models: FloatArray
    server: FloatArray
    server_lanes: FloatArray
    sent: FloatArray
    rows: IntArray
    asked: IntArray
    received: FloatArray
    every: IndexArray
    nothing: FloatArray
    path: FloatArray
    measured: FloatArray


class TrialBlock(NamedTuple):
    """Everything that a block of trials needs for some iterations.

    Kernels take it as a :class:`psofed.engine.tables.KernelTable`.
    """

    layout: Layout
    source: WordSource
    inputs: InputModel
    learning: Learning
    sampling: Sampling
    exchange: Exchanges
    attack: AttackSide
    attackers: AttackState
    up: ChannelSide
    down: ChannelSide
    delay: DelaySide
    arrived: Uploads
    defence: DefenceSide
    watching: Watching
    rule: RuleSide
    root: RootSet
    rival: RivalSide
    tests: TestSet
    state: State
    scratch: StepScratch
    tally: Tally


class Stages(NamedTuple):
    """Addresses of what differs between scenarios, each compiled when first used; 0 for what the kernel does itself."""

    download: int
    learn: int
    upload: int
    deliver: int
    aggregate: int


@compiled
def advance(
    phase: int, first: int, start: int, stop: int, stages: Stages, block: TrialBlock, metrics: FloatArray
) -> None:
    """Run iterations `start` to `stop` of a chunk that begins with iteration `first`; write ``metrics[t, q, l]``."""
    layout, exchange, sets = block.layout, block.exchange, block.attack.sets
    defence, rival, tests, state = block.defence, block.rival, block.tests, block.state
    server, is_rival, is_late = state.server, rival.is_on, block.delay.is_on
    known = server if not is_rival or rival.sends_model else state.nothing
    for t in range(start, stop):
        n = first + t
        exchanges = not is_rival or rival.exchanges[t] > 0
        if phase & BEFORE:
            _note_server(t - start, t, block.sampling.moves, state)
            if sets.size:
                set_byzantine(sets, t, block.attackers)
            if stages.download == 0:
                _download(t, layout, exchange, state)
            elif exchanges:
                call_stage(stages.download, n, t, block)
        if phase & LEARN:
            call_stage(stages.learn, n, t, block)
        if phase & AFTER:
            _note_errors(t, layout.clients, block.sampling.tests_on_next, block.tally, metrics)
            if block.tally.errors.size and block.attackers.is_byzantine.size:
                _note_honest(t, layout, block.attackers, block.tally, metrics)
            if exchanges or is_late:  # uploads of earlier iterations may arrive
                if stages.upload != 0:
                    call_stage(stages.upload, n, t, block)
                else:
                    _remember(n, block)
                    _upload(t, layout, exchange, state)
                uploads = sent_at(t, block)
                _corrupt(n, block, known, uploads)
                if stages.deliver != 0:
                    call_stage(stages.deliver, n, t, block)
                    uploads = uploads_at(t, block)
                if defence.hook.address != 0:
                    take_defence(defence.hook.address)(
                        defence.hook.options, n, known, uploads, block.watching, block.rule.work
                    )
                if stages.aggregate != 0:
                    call_stage(stages.aggregate, n, t, block)
                else:
                    aggregate(n, block, state.base, uploads, server)
        done = (t - start) % WIDTH + 1
        if phase & BEFORE and (done == WIDTH or t == stop - 1):
            for trial in range(server.shape[0]):
                measure(state.path, state.measured, tests, trial, done, t + 1 - done, metrics)


@kernel_part
def _note_server(step: int, t: int, moves: FloatArray, state: State) -> None:
    """Note the server's errors, for the metrics of sixteen iterations at once, and where lanes are needed."""
    server, path, lanes = state.server, state.path, state.server_lanes
    for trial in range(server.shape[0]):
        for i in range(server.shape[1]):
            move = moves[t, i, trial] if moves.size else 0.0
            path[trial, i, step % WIDTH] = server[trial, i] + move
            lanes[0, i, trial] = server[trial, i]


@kernel_part
def _note_errors(t: int, num_clients: int, tests_on_next: bool, tally: Tally, metrics: FloatArray) -> None:
    """Write the network MSE, and the test MSE where tests are the clients' next samples."""
    sums, tests, share = tally.sums, tally.tests, 1.0 / num_clients
    for trial in range(metrics.shape[2]):
        total = 0.0
        for b in range(sums.shape[0]):
            total += sums[b, trial]
        metrics[t, 0, trial] = share * total
        if tests_on_next:
            metrics[t, 2, trial] = share * tests[trial]


@kernel_part
def _note_honest(t: int, layout: Layout, attackers: AttackState, tally: Tally, metrics: FloatArray) -> None:
    """Write the MSE of the clients that are not Byzantine in this iteration."""
    errors, is_byzantine, trials = tally.errors, attackers.is_byzantine, metrics.shape[2]
    if layout.mask == 0 and not attackers.is_redrawn:  # the same clients in all trials, which are lanes
        lanes, count = spread(0.0), 0
        for k in range(layout.clients):
            if not _is_byzantine(is_byzantine, trials, 0, k):
                error = load(errors, k * WIDTH)
                lanes, count = fma(error, error, lanes), count + 1
        store(tally.tests, 0, lanes)
        for trial in range(trials):
            metrics[t, 3, trial] = tally.tests[trial] / count if count else np.nan
        return
    for trial in range(trials):
        total, count = 0.0, 0
        for k in range(layout.clients):
            if not _is_byzantine(is_byzantine, trials, trial, k):
                own = errors[k >> layout.shift, trial + (k & layout.mask)]
                total, count = fma(own, own, total), count + 1
        metrics[t, 3, trial] = total / count if count else np.nan


@kernel_part
def _is_byzantine(is_byzantine: BoolArray, trials: int, trial: int, client: int) -> bool:
    """Tell whether a client belongs to a group of Byzantine clients in a trial."""
    found = False
    for row in range(trial, is_byzantine.shape[0], trials):
        found = found or is_byzantine[row, client]
    return found


@kernel_part
def _remember(n: int, block: TrialBlock) -> None:
    """Let attackers that remember models see those of their clients, after the local step."""
    remember, layout, state = block.attack.remember, block.layout, block.state
    for g in range(remember.size):
        if remember[g] != 0:
            take_remember(remember[g])(
                block.attack.options[g], n, g, block.attackers, state.target, layout.shift, layout.mask, state.models
            )  # fmt: skip


@kernel_part
def _download(t: int, layout: Layout, exchange: Exchanges, state: State) -> None:
    """Let all participants download their entries."""
    participants, entries = exchange.participants, exchange.downloaded
    server, models, shift, mask = state.server, state.models, layout.shift, layout.mask
    rows, shared, count = entries.shape[2], entries.shape[3], participants.shape[2]
    for trial in range(server.shape[0]):
        for r in range(rows):
            for m in range(shared):
                i = entries[t, trial, r, m]
                own = server[trial, i]
                for p in range(r, count if rows == 1 else r + 1):
                    k = np.int64(participants[t, trial, p])
                    models[k >> shift, i, trial + (k & mask)] = own


@kernel_part
def _upload(t: int, layout: Layout, exchange: Exchanges, state: State) -> None:
    """Let the uploaders send their entries; NaN where a client is not reached."""
    uploaders, entries, reached = exchange.uploaders, exchange.uploaded, exchange.uploads
    sent, models, shift, mask = state.sent, state.models, layout.shift, layout.mask
    asked, all_asked, rows = state.asked, exchange.asked, entries.shape[2]
    trials, count, shared = sent.shape
    for trial in range(trials):
        asked[trial] = all_asked[t, trial]
        for p in range(count):
            k, r = np.int64(uploaders[t, trial, p]), p if rows > 1 else 0
            for m in range(shared):
                sent[trial, p, m] = models[k >> shift, entries[t, trial, r, m], trial + (k & mask)]
    if reached.size:
        for trial in range(trials):
            for p in range(count):
                for m in range(shared):
                    if not reached[t, trial, p]:
                        sent[trial, p, m] = np.nan


@kernel_part
def _corrupt(n: int, block: TrialBlock, server: FloatArray, uploads: Uploads) -> None:
    """Let attackers change uploads in place; each of several groups sees those that nobody has changed yet."""
    attack, attackers = block.attack, block.attackers
    kinds, sent, clean, changed, rows = attack.kinds, uploads.sent, attack.clean, attack.changed, uploads.rows
    several = kinds.size > 1
    trials, _, shared = sent.shape
    if several:
        for trial in range(trials):
            for p in range(rows[trial]):
                for m in range(shared):
                    clean[trial, p, m] = changed[trial, p, m] = sent[trial, p, m]
    for g in range(kinds.size):
        if kinds[g] != ON_UPLOADS:
            continue
        take_attack(attack.addresses[g])(
            attack.options[g], n, g, attackers, block.state.base, server, uploads
        )
        if several:
            is_byzantine, clients = attackers.is_byzantine, uploads.clients
            for trial in range(trials):
                for p in range(rows[trial]):
                    for m in range(shared):
                        if is_byzantine[g * trials + trial, clients[trial, p]]:
                            changed[trial, p, m] = sent[trial, p, m]
                        sent[trial, p, m] = clean[trial, p, m]
    if several:
        for trial in range(trials):
            for p in range(rows[trial]):
                for m in range(shared):
                    sent[trial, p, m] = changed[trial, p, m]
