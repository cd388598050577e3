"""One iteration, from top to bottom as in the paper: download, learn, corrupt, upload, deliver, defend, aggregate.

Only learning is done for sixteen columns at a time (:mod:`psofed.engine.step`). Everything else handles one trial after
another, and each step here loops over the trials of a block. The server's model is held as an error too, w − w_n.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.attackers import ON_SAMPLES, ON_UPLOADS, AttackSide, set_byzantine
from psofed.engine.channels import ChannelSide, transmit
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.delays import DelaySide, pass_time, weigh_by_delay
from psofed.engine.inputs import InputModel
from psofed.engine.lanes import WIDTH
from psofed.engine.learning import Learning, Sampling
from psofed.engine.rivals import (
    RivalMemory,
    RivalSide,
    apply_uploads,
    draw_shared,
    encode_updates,
    form_updates,
)
from psofed.engine.root_data import RootSet
from psofed.engine.server import RuleScratch, RuleSide, aggregate
from psofed.engine.signatures import (
    AttackState,
    Uploads,
    Watching,
    take_attack,
    take_defence,
    take_remember,
    taken,
)
from psofed.engine.step import (
    Layout,
    StepScratch,
    Tally,
    WordSource,
    learn_clients,
    learn_in_general,
    learn_trials,
)
from psofed.engine.test_set import TestSet, measure

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
    address, options
        Its hook; the address is 0 if there is none.
    excluded_download : bool
        Whether excluded clients still download.
    """

    address: int
    options: FloatArray
    excluded_download: bool


class State(NamedTuple):
    """State that the kernel advances, and scratch.

    Attributes
    ----------
    is_plain : bool
        Whether clients make LMS steps on independent white samples of one fixed target.
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

    is_plain: bool
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

    Tuples are not nested further, and each is taken out once: a kernel copies all of a tuple to read one of its fields.
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
    rule_scratch: RuleScratch
    rival: RivalSide
    rival_memory: RivalMemory
    tests: TestSet
    state: State
    scratch: StepScratch
    tally: Tally


@compiled
def advance(phase: int, first: int, start: int, stop: int, block: TrialBlock, metrics: FloatArray) -> None:
    """Run iterations `start` to `stop` of a chunk that begins with iteration `first`; write ``metrics[t, q, l]``."""
    layout, source, inputs, learning, sampling = (
        block.layout, block.source, block.inputs, block.learning, block.sampling,
    )  # fmt: skip
    exchange, attack, attackers, up, down = (
        block.exchange,
        block.attack,
        block.attackers,
        block.up,
        block.down,
    )
    delay, arrived, defence, watching = block.delay, taken(block.arrived), block.defence, block.watching
    rule, root, rival, tests, state = block.rule, block.root, block.rival, block.tests, block.state
    work, mixed = block.rule_scratch.work, taken(block.rule_scratch.mixed)
    client_momenta, server_momenta, read = (
        block.rival_memory.clients, block.rival_memory.server, taken(block.rival_memory.read),
    )  # fmt: skip
    scratch, tally = block.scratch, block.tally
    is_plain, target, base, models, server = (
        state.is_plain,
        state.target,
        state.base,
        state.models,
        state.server,
    )
    is_rival, sends_models, is_late = rival.is_on, not rival.is_on or rival.sends_model, delay.is_on
    known = server if sends_models else state.nothing
    poisons = False
    for kind in attack.kinds:
        poisons = poisons or kind == ON_SAMPLES
    if is_rival and not rival.fresh:
        draw_shared(rival, 0)
    for t in range(start, stop):
        n = first + t
        count = rival.exchanges[t] if is_rival else state.sent.shape[1]
        if phase & BEFORE:
            _note_server(t - start, t, sampling.moves, state)
            if attack.sets.size:
                set_byzantine(attack.sets, t, attackers)
            if not is_rival:
                _download(n, t, layout, exchange, down, defence, watching.left, state)
            elif count:
                _receive(n, t, layout.clients, exchange, down, state)
        if phase & LEARN:
            learns = exchange.learns[t] if exchange.learns.size else exchange.all_learn
            if is_plain and layout.mask:
                learn_clients(
                    n,
                    0,
                    models.shape[0],
                    layout,
                    source,
                    inputs,
                    learning.stepsizes,
                    learns,
                    models,
                    scratch,
                    tally,
                )
            elif is_plain:
                learn_trials(
                    n,
                    0,
                    models.shape[0],
                    layout,
                    source,
                    inputs,
                    learning.stepsizes,
                    learns,
                    models,
                    scratch,
                    tally,
                )
            else:
                learn_in_general(
                    n, t, source, inputs, learning, sampling, attack, attackers, poisons and count > 0, target,
                    state.server_lanes, learns, models, scratch, tally,
                )  # fmt: skip
        if phase & AFTER:
            _note_errors(t, layout.clients, sampling.tests_on_next, tally, metrics)
            if is_rival and count == 0 and not is_late:  # else uploads of earlier iterations may arrive
                pass
            else:
                if is_rival:
                    form_updates(rival, exchange.participants[t], count, state.received, sampling)
                    if rival.fresh:
                        draw_shared(rival, n)
                    encode_updates(rival, client_momenta, n, exchange.participants[t], count)
                    _upload_encoded(t, count, exchange, rival.encoded, rival.sends_model, state)
                else:
                    _remember(n, layout, attack, attackers, target, models)
                    _upload(t, layout, exchange, state)
                uploads = Uploads(
                    exchange.uploaders[t], exchange.uploaded[t], state.sent, state.rows, state.asked
                )
                _corrupt(n, attack, attackers, base, known, uploads)
                if up.addresses.size:
                    _fill_receiver(up.receiver, uploads, known)
                    transmit(up, n, layout.clients, base, uploads)
                if is_late:
                    pass_time(delay, t, n, server, uploads, arrived)
                    uploads = arrived
                if defence.address != 0:
                    take_defence(defence.address)(defence.options, n, known, uploads, watching)
                if delay.by_delay:
                    weigh_by_delay(delay, server, uploads)
                if sends_models:
                    aggregate(rule, root, work, mixed, n, layout.clients, base, uploads, server)
                else:
                    apply_uploads(
                        rival,
                        server_momenta,
                        rule,
                        root,
                        work,
                        mixed,
                        n,
                        layout.clients,
                        uploads,
                        count,
                        read,
                        server,
                    )
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
def _remember(
    n: int, layout: Layout, attack: AttackSide, attackers: AttackState, target: FloatArray, models: FloatArray
) -> None:
    """Let attackers that remember models see those of their clients, after the local step."""
    remember = attack.remember
    for g in range(remember.size):
        if remember[g] != 0:
            take_remember(remember[g])(
                attack.options[g], n, g, attackers, target, layout.shift, layout.mask, models
            )


@kernel_part
def _download(
    n: int,
    t: int,
    layout: Layout,
    exchange: Exchanges,
    down: ChannelSide,
    defence: DefenceSide,
    left: IntArray,
    state: State,
) -> None:
    """Let the participants that are reached, and not excluded, download their entries."""
    participants, entries, reached = exchange.participants, exchange.downloaded, exchange.downloads
    server, models, received, shift, mask = (
        state.server,
        state.models,
        state.received,
        layout.shift,
        layout.mask,
    )
    rows, shared, trials, count = entries.shape[2], entries.shape[3], server.shape[0], participants.shape[2]
    excludes, has_channels = defence.address != 0 and not defence.excluded_download, down.addresses.size > 0
    if not has_channels and not excludes and reached.size == 0:
        for trial in range(trials):
            for r in range(rows):
                for m in range(shared):
                    i = entries[t, trial, r, m]
                    own = server[trial, i]
                    for p in range(r, count if rows == 1 else r + 1):
                        k = np.int64(participants[t, trial, p])
                        models[k >> shift, i, trial + (k & mask)] = own
        return
    for trial in range(trials):
        for p in range(count):
            is_out = excludes and left[trial, participants[t, trial, p]] != 0
            takes = not is_out and (reached.size == 0 or reached[t, trial, p])
            for m in range(shared):
                received[trial, p, m] = (
                    server[trial, entries[t, trial, p if rows > 1 else 0, m]] if takes else np.nan
                )
    if has_channels:
        own_values = down.receiver
        for trial in range(trials):
            for p in range(count):
                k = np.int64(participants[t, trial, p])
                for m in range(shared):
                    i = entries[t, trial, p if rows > 1 else 0, m]
                    own_values[trial, p, m] = models[k >> shift, i, trial + (k & mask)]
        messages = Uploads(participants[t], entries[t], received, state.rows, state.asked)
        transmit(down, n, layout.clients, state.target, messages)
    for trial in range(trials):
        for p in range(count):
            k = np.int64(participants[t, trial, p])
            for m in range(shared):
                i, value = entries[t, trial, p if rows > 1 else 0, m], received[trial, p, m]
                if value == value:
                    models[k >> shift, i, trial + (k & mask)] = value


@kernel_part
def _receive(n: int, t: int, num_clients: int, exchange: Exchanges, down: ChannelSide, state: State) -> None:
    """Write the server's model as each participant receives it; clients hold no model."""
    received, server, reached, target = state.received, state.server, exchange.downloads, state.target
    rows, own_values, has_channels = state.rows, down.receiver, down.addresses.size > 0
    trials, count, dimension = received.shape
    for trial in range(trials):
        rows[trial] = count
        for p in range(count):
            takes = reached.size == 0 or reached[t, trial, p]
            for i in range(dimension):
                received[trial, p, i] = server[trial, i] if takes else np.nan
                if has_channels:
                    own_values[trial, p, i] = target[i]
    if has_channels:
        messages = Uploads(exchange.participants[t], state.every, received, rows, state.asked)
        transmit(down, n, num_clients, target, messages)


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
def _upload_encoded(
    t: int, count: int, exchange: Exchanges, encoded: FloatArray, sends_model: bool, state: State
) -> None:
    """Let participants send encoded updates, added to the model they received where models are sent."""
    sent, received, reached, rows, asked = (
        state.sent,
        state.received,
        exchange.uploads,
        state.rows,
        state.asked,
    )
    trials, _, numbers = sent.shape
    for trial in range(trials):
        rows[trial], asked[trial] = count, exchange.asked[t, trial]
        for p in range(count):
            is_present = reached.size == 0 or reached[t, trial, p]
            for i in range(received.shape[2]):
                is_present = is_present and received[trial, p, i] == received[trial, p, i]
            for j in range(numbers):
                value = -encoded[trial, p, j]
                if sends_model:
                    value += received[trial, p, j]
                sent[trial, p, j] = value if is_present else np.nan


@kernel_part
def _fill_receiver(receiver: FloatArray, uploads: Uploads, server: FloatArray) -> None:
    """Write the server's own values of what is uploaded."""
    entries, rows = uploads.entries, uploads.rows
    for trial in range(receiver.shape[0]):
        for p in range(rows[trial]):
            r = p if entries.shape[1] > 1 else 0
            for m in range(receiver.shape[2]):
                receiver[trial, p, m] = server[trial, entries[trial, r, m]]


@kernel_part
def _corrupt(
    n: int,
    attack: AttackSide,
    attackers: AttackState,
    target: FloatArray,
    server: FloatArray,
    uploads: Uploads,
) -> None:
    """Let attackers change uploads in place; each of several groups sees those that nobody has changed yet."""
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
        take_attack(attack.addresses[g])(attack.options[g], n, g, attackers, target, server, uploads)
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
