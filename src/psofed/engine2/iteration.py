"""One iteration, from top to bottom as in the paper: download, learn, corrupt, upload, deliver, defend, aggregate.

Only learning is done for sixteen columns at a time (:mod:`psofed.engine2.step`). Everything else handles one trial after
another, and each step here loops over the trials of a block. The server's model is held as an error too, w − w_n.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine2.attackers import ON_SAMPLES, ON_UPLOADS, AttackSide, set_byzantine
from psofed.engine2.channels import ChannelSide, transmit
from psofed.engine2.compiling import compiled, kernel_part
from psofed.engine2.delays import DelaySide, pass_time, weigh_by_delay
from psofed.engine2.inputs import InputModel
from psofed.engine2.lanes import WIDTH
from psofed.engine2.learning import Learning, Sampling
from psofed.engine2.rivals import RivalSide, apply_uploads, draw_shared, encode_updates, form_updates
from psofed.engine2.server import RuleSide, aggregate
from psofed.engine2.signatures import Uploads, Watching, take_attack, take_defence, take_remember
from psofed.engine2.step import Layout, Source, StepScratch, Tally, learn, learn_in_general
from psofed.engine2.test_set import TestSet, measure

# What a call of the kernel does: what precedes learning, learning, what follows; threads may share the second.
BEFORE, LEARN, AFTER = 1, 2, 4
WHOLE = BEFORE | LEARN | AFTER


class Exchange(NamedTuple):
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
    learns : uint8 array (T, V, 16), or empty
        1 for each column that learns; all do if it is empty.
    """

    participants: IndexArray
    downloaded: IndexArray
    uploaders: IndexArray
    uploaded: IndexArray
    downloads: BoolArray
    uploads: BoolArray
    asked: IntArray
    learns: NDArray[np.uint8]


class Clients(NamedTuple):
    """Everything that the local step needs.

    Attributes
    ----------
    is_plain : bool
        Whether clients make LMS steps on independent white samples of one fixed target.
    layout, source, inputs, learning, sampling
        As their classes say.
    target, base : array (D,)
        w, and what uploads are counted from: w, or zeros where no models are sent.
    all_learn : uint8 array (0, 0)
        Stands for all columns that learn.
    """

    is_plain: bool
    layout: Layout
    source: Source
    inputs: InputModel
    learning: Learning
    sampling: Sampling
    target: FloatArray
    base: FloatArray
    all_learn: NDArray[np.uint8]


class Network(NamedTuple):
    """Links between clients and server.

    Attributes
    ----------
    up, down : ChannelSide
        The channels.
    delay : DelaySide
        Uploads on their way.
    received : array (L, P, M or D)
        Scratch for downloads.
    every : int array (L, 1, M or D)
        All entries, where clients hold no model.
    """

    up: ChannelSide
    down: ChannelSide
    delay: DelaySide
    received: FloatArray
    every: IndexArray


class DefenceSide(NamedTuple):
    """The defence.

    Attributes
    ----------
    address, options
        Its hook; the address is 0 if there is none.
    excluded_download : bool
        Whether excluded clients still download.
    watching : Watching
        What it keeps.
    """

    address: int
    options: FloatArray
    excluded_download: bool
    watching: Watching


class State(NamedTuple):
    """State that the kernel advances, and scratch.

    Attributes
    ----------
    models : array (V, D, 16)
        Errors w − w_{k,n} of all columns.
    server : array (L, D)
        Errors w − w_n.
    server_lanes : array (1, D, 16)
        Scratch: the server's errors with trials as lanes.
    sent, rows, asked : arrays (L, P, M), (L,) and (L,)
        What is uploaded, how many uploads there are, and how many were asked for.
    nothing : array (L, M)
        Zeros: what attacks and defences take for the server's errors where no models are sent.
    path, measured : arrays (L, D, 16) and (2, 16)
        Scratch: the server's errors of sixteen iterations, and their metrics.
    """

    models: FloatArray
    server: FloatArray
    server_lanes: FloatArray
    sent: FloatArray
    rows: IntArray
    asked: IntArray
    nothing: FloatArray
    path: FloatArray
    measured: FloatArray


@compiled
def advance(
    phase: int,
    first: int,
    start: int,
    stop: int,
    clients: Clients,
    exchange: Exchange,
    attack: AttackSide,
    network: Network,
    defence: DefenceSide,
    rule: RuleSide,
    rival: RivalSide,
    tests: TestSet,
    state: State,
    scratch: StepScratch,
    tally: Tally,
    metrics: FloatArray,
) -> None:
    """Run iterations `start` to `stop` of a chunk that begins with iteration `first`; write ``metrics[t, q, l]``."""
    server, target, num_clients = state.server, clients.target, clients.layout.clients
    shift, mask, delay = clients.layout.shift, clients.layout.mask, network.delay
    poisons = False
    for kind in attack.kinds:
        poisons = poisons or kind == ON_SAMPLES
    if rival.is_on and not rival.fresh:
        draw_shared(rival, 0)
    for t in range(start, stop):
        n = first + t
        count = rival.exchanges[t] if rival.is_on else state.sent.shape[1]
        if phase & BEFORE:
            _note_server(t - start, t, clients, state)
            if attack.sets.size:
                set_byzantine(attack.sets, t, attack.attackers)
            if rival.is_on:
                if count:
                    _receive(n, t, clients, exchange, network, state)
            else:
                _download(n, t, clients, exchange, network, defence, state)
        if phase & LEARN:
            learns = exchange.learns[t] if exchange.learns.size else clients.all_learn
            if clients.is_plain:
                learn(
                    n, 0, state.models.shape[0], clients.layout, clients.source, clients.inputs,
                    clients.learning.stepsizes, learns, state.models, scratch, tally,
                )  # fmt: skip
            else:
                learn_in_general(
                    n, t, clients.source, clients.inputs, clients.learning, clients.sampling, attack,
                    poisons and (count > 0), target, state.server_lanes, learns, state.models, scratch, tally,
                )  # fmt: skip
        if phase & AFTER:
            _note_errors(t, clients, tally, metrics)
            if not rival.is_on:
                for g in range(attack.remember.size):
                    if attack.remember[g] != 0:
                        take_remember(attack.remember[g])(
                            attack.options[g], n, g, attack.attackers, target, shift, mask, state.models
                        )
                _upload(t, clients, exchange, state)
            elif count or delay.is_on:
                form_updates(rival, exchange.participants[t], count, network.received, clients.sampling)
                if rival.fresh:
                    draw_shared(rival, n)
                encode_updates(rival, n, exchange.participants[t], count)
                _upload_encoded(t, count, exchange, network, rival, state)
            if not rival.is_on or count or delay.is_on:
                known = server if not rival.is_on or rival.sends_model else state.nothing
                uploads = Uploads(exchange.uploaders[t], exchange.uploaded[t], state.sent, state.rows, state.asked)
                _corrupt(n, attack, clients.base, known, uploads)
                if network.up.addresses.size:
                    _fill_receiver(network.up.receiver, uploads, known)
                    transmit(network.up, n, num_clients, clients.base, uploads)
                if delay.is_on:
                    pass_time(delay, t, n, server, uploads)
                    uploads = delay.arrived
                if defence.address != 0:
                    take_defence(defence.address)(defence.options, n, known, uploads, defence.watching)
                if delay.by_delay:
                    weigh_by_delay(delay, server, uploads)
                if rival.is_on and not rival.sends_model:
                    apply_uploads(rival, rule, n, num_clients, uploads, count, server)
                else:
                    aggregate(rule, n, num_clients, clients.base, uploads, server)
        done = (t - start) % WIDTH + 1
        if phase & BEFORE and (done == WIDTH or t == stop - 1):
            for l in range(server.shape[0]):
                measure(state.path, state.measured, tests, l, done, t + 1 - done, metrics)


@kernel_part
def _note_server(step: int, t: int, clients: Clients, state: State) -> None:
    """Note the server's errors, for the metrics of sixteen iterations at once, and where lanes are needed."""
    server, path, moves = state.server, state.path, clients.sampling.moves
    for l in range(server.shape[0]):
        for i in range(server.shape[1]):
            move = moves[t, i, l] if moves.size else 0.0
            path[l, i, step % WIDTH] = server[l, i] + move
    if not clients.is_plain:
        for l in range(server.shape[0]):
            for i in range(server.shape[1]):
                state.server_lanes[0, i, l] = server[l, i]


@kernel_part
def _note_errors(t: int, clients: Clients, tally: Tally, metrics: FloatArray) -> None:
    """Write the network MSE, and the test MSE where tests are the clients' next samples."""
    trials, share = metrics.shape[2], 1.0 / clients.layout.clients
    for l in range(trials):
        total = 0.0
        for b in range(tally.sums.shape[0]):
            total += tally.sums[b, l]
        metrics[t, 0, l] = share * total
        if clients.sampling.tests_on_next:
            metrics[t, 2, l] = share * tally.tests[l]


@kernel_part
def _download(
    n: int, t: int, clients: Clients, exchange: Exchange, network: Network, defence: DefenceSide, state: State
) -> None:
    """Let the participants that are reached, and not excluded, download their entries."""
    participants, entries, reached = exchange.participants, exchange.downloaded, exchange.downloads
    server, models, shift, mask = state.server, state.models, clients.layout.shift, clients.layout.mask
    rows, shared, trials, count = entries.shape[2], entries.shape[3], server.shape[0], participants.shape[2]
    left, excludes = defence.watching.left, defence.address != 0 and not defence.excluded_download
    if network.down.addresses.size == 0 and not excludes and reached.size == 0:
        for l in range(trials):
            for r in range(rows):
                for m in range(shared):
                    i = entries[t, l, r, m]
                    own = server[l, i]
                    for p in range(r, count if rows == 1 else r + 1):
                        k = np.int64(participants[t, l, p])
                        models[k >> shift, i, l + (k & mask)] = own
        return
    received = network.received
    for l in range(trials):
        for p in range(count):
            is_out = excludes and left[l, participants[t, l, p]] != 0
            takes = not is_out and (reached.size == 0 or reached[t, l, p])
            for m in range(shared):
                i = entries[t, l, p if rows > 1 else 0, m]
                received[l, p, m] = server[l, i] if takes else np.nan
    if network.down.addresses.size:
        own_values = network.down.receiver
        for l in range(trials):
            for p in range(count):
                k = np.int64(participants[t, l, p])
                for m in range(shared):
                    i = entries[t, l, p if rows > 1 else 0, m]
                    own_values[l, p, m] = models[k >> shift, i, l + (k & mask)]
        messages = Uploads(participants[t], entries[t], received, state.rows, state.asked)
        transmit(network.down, n, clients.layout.clients, clients.target, messages)
    for l in range(trials):
        for p in range(count):
            k = np.int64(participants[t, l, p])
            for m in range(shared):
                i, value = entries[t, l, p if rows > 1 else 0, m], received[l, p, m]
                if value == value:
                    models[k >> shift, i, l + (k & mask)] = value


@kernel_part
def _receive(n: int, t: int, clients: Clients, exchange: Exchange, network: Network, state: State) -> None:
    """Write the server's model as each participant receives it; clients hold no model."""
    received, server, reached = network.received, state.server, exchange.downloads
    trials, count, dimension = received.shape
    for l in range(trials):
        for p in range(count):
            takes = reached.size == 0 or reached[t, l, p]
            for i in range(dimension):
                received[l, p, i] = server[l, i] if takes else np.nan
        state.rows[l] = count
    if network.down.addresses.size:
        for l in range(trials):
            for p in range(count):
                for i in range(dimension):
                    network.down.receiver[l, p, i] = clients.target[i]
        messages = Uploads(exchange.participants[t], network.every, received, state.rows, state.asked)
        transmit(network.down, n, clients.layout.clients, clients.target, messages)


@kernel_part
def _upload(t: int, clients: Clients, exchange: Exchange, state: State) -> None:
    """Let the uploaders send their entries; NaN where a client is not reached."""
    uploaders, entries, reached, sent = exchange.uploaders, exchange.uploaded, exchange.uploads, state.sent
    models, shift, mask = state.models, clients.layout.shift, clients.layout.mask
    trials, count, shared = sent.shape
    rows = entries.shape[2]
    for l in range(trials):
        state.asked[l] = exchange.asked[t, l]
        for p in range(count):
            k, r = np.int64(uploaders[t, l, p]), p if rows > 1 else 0
            for m in range(shared):
                sent[l, p, m] = models[k >> shift, entries[t, l, r, m], l + (k & mask)]
    if reached.size:
        for l in range(trials):
            for p in range(count):
                for m in range(shared):
                    if not reached[t, l, p]:
                        sent[l, p, m] = np.nan


@kernel_part
def _upload_encoded(
    t: int, count: int, exchange: Exchange, network: Network, rival: RivalSide, state: State
) -> None:
    """Let participants send encoded updates, added to the model they received where models are sent."""
    sent, received, reached = state.sent, network.received, exchange.uploads
    trials, _, numbers = sent.shape
    for l in range(trials):
        state.rows[l], state.asked[l] = count, exchange.asked[t, l]
        for p in range(count):
            is_present = reached.size == 0 or reached[t, l, p]
            for i in range(received.shape[2]):
                is_present = is_present and received[l, p, i] == received[l, p, i]
            for j in range(numbers):
                value = -rival.encoded[l, p, j]
                if rival.sends_model:
                    value += received[l, p, j]
                sent[l, p, j] = value if is_present else np.nan


@kernel_part
def _fill_receiver(receiver: FloatArray, uploads: Uploads, server: FloatArray) -> None:
    """Write the server's own values of what is uploaded."""
    for l in range(receiver.shape[0]):
        for p in range(uploads.rows[l]):
            r = p if uploads.entries.shape[1] > 1 else 0
            for m in range(receiver.shape[2]):
                receiver[l, p, m] = server[l, uploads.entries[l, r, m]]


@kernel_part
def _corrupt(n: int, attack: AttackSide, target: FloatArray, server: FloatArray, uploads: Uploads) -> None:
    """Let attackers change uploads in place; each of several groups sees those that nobody has changed yet."""
    groups, sent, clean, changed = attack.kinds.size, uploads.sent, attack.clean, attack.changed
    if groups == 1 and attack.kinds[0] == ON_UPLOADS:
        take_attack(attack.addresses[0])(attack.options[0], n, 0, attack.attackers, target, server, uploads)
    if groups < 2:
        return
    trials, _, shared = sent.shape
    clean[:] = sent
    changed[:] = sent
    for g in range(groups):
        if attack.kinds[g] != ON_UPLOADS:
            continue
        take_attack(attack.addresses[g])(attack.options[g], n, g, attack.attackers, target, server, uploads)
        for l in range(trials):
            for p in range(uploads.rows[l]):
                is_member = attack.attackers.is_byzantine[g * trials + l, uploads.clients[l, p]]
                for m in range(shared):
                    if is_member:
                        changed[l, p, m] = sent[l, p, m]
                    sent[l, p, m] = clean[l, p, m]
    sent[:] = changed
