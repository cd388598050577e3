"""PSO-Fed's kernel: all clients and the server, several trials in lock step.

The kernel holds errors, w − w_{k,n} and w − w_n, instead of models: the recursion is the same and y need not
be formed. A target that moves (drift) adds xᵀ(w*_n − w*_0) to the labels, with errors still counted from w*_0;
samples that are not the paper's come as arrays (:mod:`psofed.engine.samples`). The paper's case pays for neither.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.frames.choosing import ChoosingSide, choose_masks, copy_masks, note_shared
from psofed.engine.frames.delay import first_arrivals, pass_time, weigh_by_delay
from psofed.engine.frames.learner import Learning, step_client
from psofed.engine.frames.stream import Inputs, draw_input
from psofed.engine.hooks import Uploads, take_attack
from psofed.engine.inputs import InputModel
from psofed.engine.lanes import WIDTH, empty_lanes, fma, load, pick_if_equal, spread, store, to_float64
from psofed.engine.lms import add_inner_product, add_squares, fill_row, scale_row, set_product
from psofed.engine.network import NetworkSide, download, download_through, silence_unreached, upload_through
from psofed.engine.normals import WORDS_AHEAD, next_normals
from psofed.engine.over_clients import (
    AFTER_LEARNING,
    BEFORE_LEARNING,
    SUM_BLOCK,
    WHOLE,
    ClientLanes,
    learn_over_clients,
)
from psofed.engine.samples import error_on_next, has_sample, take_sample
from psofed.engine.search import corrupt_at_best
from psofed.engine.server_side import (
    AttackSide,
    DefenceSide,
    GroupSide,
    RuleSide,
    SearchSide,
    aggregate,
    corrupt_by_groups,
    leave_out,
    poison_samples,
    redraw_byzantine,
    remember_models,
)
from psofed.engine.streams import Stream, WordArray
from psofed.engine.test_set import TestSet, test_error


class Exchanges(NamedTuple):
    """Participants and masks of T iterations.

    Attributes
    ----------
    participants, uploaders : array (T, P, lanes)
        Clients that download, and clients that upload.
    downloaded, uploaded : array (T, P, M, lanes)
        The entries each of them exchanges.
    """

    participants: IndexArray
    downloaded: IndexArray
    uploaders: IndexArray
    uploaded: IndexArray


class Extras(NamedTuple):
    """Everything beyond LMS on independent white samples of one fixed target.

    Attributes
    ----------
    has_samples : bool
        Whether samples are given; else they are drawn.
    inputs, residuals : arrays (T, K, D, lanes or 1) and (T, K, lanes or 1), or empty
        See :class:`psofed.engine.samples.Chunk`.
    tests_on_next : bool
        The test MSE is that on the clients' next samples.
    watched_from : int
        From which t on each client's squares are added up (given samples only).
    moves : array (T, D, lanes), or empty
        w*_n − w*_0.
    offsets : array (K, D, lanes), or empty
        d_k: how far each client's own target lies from the common one.
    learning : Learning
        What clients make of a sample.
    stream : Inputs
        Where inputs come from, unless samples are given.
    """

    has_samples: bool
    inputs: FloatArray
    residuals: FloatArray
    tests_on_next: bool
    watched_from: int
    moves: FloatArray
    offsets: FloatArray
    learning: Learning
    stream: Inputs


class ModelState(NamedTuple):
    """State that the kernel advances.

    Attributes
    ----------
    clients, server : arrays (K, D, lanes) and (D, lanes)
        Errors w − w_{k,n} and w − w_n.
    client_squares : array (K, lanes)
        Sums of each client's squared errors (given samples only).
    remembered : array (K, D, lanes)
        `clients`, for attackers that remember models; empty where lanes are clients, which such attackers cannot have.
    """

    clients: FloatArray
    server: FloatArray
    client_squares: FloatArray
    remembered: FloatArray


class Scratch(NamedTuple):
    """Scratch of the kernel.

    Attributes
    ----------
    counter : array (lanes,)
        Where the stream of samples stands.
    hashed, normals, sample : arrays (any, lanes), (2·words, lanes), (D, lanes)
        A sample on its way: hashed words, normals, inputs.
    error, clean : arrays (lanes,)
        Prediction errors.
    distance : array (D, lanes)
        The server's error to a target that moves; after that, to aggregate in.
    sent : array (P, M, lanes)
        What is uploaded.
    asked : int array (lanes,)
        Number of clients that were asked to upload.
    nobody : int array (0, lanes)
        Clients that a defence has excluded, where there is none.
    """

    counter: WordArray
    hashed: WordArray
    normals: NDArray[np.float32]
    sample: FloatArray
    error: FloatArray
    clean: FloatArray
    distance: FloatArray
    sent: FloatArray
    asked: IntArray
    nobody: IntArray


def make_scratch(dimension: int, participants: int, shared: int, lanes: int) -> Scratch:
    """Allocate the scratch of a run."""
    words = (dimension + 2) // 2
    return Scratch(
        counter=empty_lanes(lanes, dtype=np.uint64),
        hashed=empty_lanes(WORDS_AHEAD, lanes, dtype=np.uint64),
        normals=empty_lanes(2 * words, lanes, dtype=np.float32),
        sample=empty_lanes(dimension, lanes),
        error=empty_lanes(lanes),
        clean=empty_lanes(lanes),
        distance=empty_lanes(dimension, lanes),
        sent=empty_lanes(participants, shared, lanes),
        asked=np.full(lanes, participants),
        nobody=np.zeros((0, lanes), np.int64),
    )


@compiled(allocates=False)
def advance(
    first: int,
    data: Stream,
    inputs: InputModel,
    stepsizes: FloatArray,
    exchange: Exchanges,
    attack: AttackSide,
    search: SearchSide | None,
    defence: DefenceSide | None,
    rule: RuleSide,
    tests: TestSet,
    target: FloatArray,
    extras: Extras | None,
    network: NetworkSide | None,
    groups: GroupSide | None,
    choosing: ChoosingSide | None,
    over_clients: ClientLanes | None,
    state: ModelState,
    scratch: Scratch,
    metrics: FloatArray,
) -> None:
    """Run the iterations from number `first` on, writing ``metrics[t, metric, lane]``.

    Parameters
    ----------
    data : Stream
        Randomness of the samples.
    inputs : InputModel
        What becomes of it.
    stepsizes : array (K,)
        μ_k.
    exchange, attack, rule, tests, state : NamedTuples
        As their classes say.
    defence : DefenceSide or None
        Numba compiles the kernel for each, as for `extras`.
    target : array (D,)
        w, for the hooks.
    search, extras, network, groups, choosing, over_clients : SearchSide, Extras, NetworkSide, GroupSide, …, or None
        Numba compiles the kernel for each, and without them leaves out what it takes to handle them.
    scratch : Scratch
        What it works in.
    """
    corrupt = take_attack(attack.corrupt)
    clients, server = state.clients, state.server
    num_clients, lanes = clients.shape[0], clients.shape[2]
    start, stop = 0, metrics.shape[0]
    if over_clients is None:
        words = scratch.normals.shape[0] // 2
        for lane in range(lanes):
            scratch.counter[lane] = data.key[lane] + np.uint64(first * num_clients * words) * data.gamma[lane]
    else:
        start, stop = over_clients.start, over_clients.stop
    for t in range(start, stop):
        if over_clients is not None:
            if over_clients.phase != AFTER_LEARNING:
                _measure_one(server, tests, over_clients, metrics, t)
                _let_download(t, first, exchange, defence, network, target, scratch, state)
        else:
            if extras is None:
                _measure(server, tests, metrics, t)
            else:
                _measure_in_general(server, tests, extras, scratch, metrics, t)
            if choosing is not None:
                copy_masks(choosing, exchange.participants[t], exchange.downloaded[t])
            _let_download(t, first, exchange, defence, network, target, scratch, state)
            if choosing is not None:
                _note_downloads(
                    t, first + t, choosing, network, defence, target, exchange, scratch.asked, clients
                )
        if over_clients is not None:
            if over_clients.phase == WHOLE:
                padded = over_clients.models.shape[1]
                if network is not None and network.learns.size:
                    learn_over_clients(first + t, t, 0, padded, data, network.learns, over_clients)
                else:
                    learn_over_clients(first + t, t, 0, padded, data, None, over_clients)
                total = 0.0
                for part in over_clients.sums:
                    total += part
                metrics[t, 0, 0] = (1.0 / num_clients) * total
            elif over_clients.phase == BEFORE_LEARNING:
                continue
        elif extras is None:
            if network is not None and network.learns.size:
                _learn(data.gamma, inputs, stepsizes, network.learns, scratch, clients, metrics, t)
            else:
                _learn(data.gamma, inputs, stepsizes, None, scratch, clients, metrics, t)
        else:
            _learn_in_general(
                first, t, data, inputs, attack, groups, target, extras, network, scratch, state, metrics
            )
        redraw_byzantine(attack, t)
        remember_models(attack, groups, first + t, target, state.remembered)
        uploaders, uploaded = exchange.uploaders[t], exchange.uploaded[t]
        if choosing is not None:
            choose_masks(choosing, first + t + 1, target, clients)
            copy_masks(choosing, uploaders, uploaded)
        _upload(clients, uploaders, uploaded, scratch.sent)
        uploads = Uploads(uploaders, uploaded, scratch.sent, scratch.asked)
        if network is not None:
            silence_unreached(t, network, scratch.sent)
            for lane in range(lanes):
                scratch.asked[lane] = network.asked[t, lane]
        if choosing is not None:
            note_shared(choosing, first + t, True, target, uploads)
        if groups is not None:
            corrupt_by_groups(attack, groups, first + t, target, server, uploads)
        elif search is not None:
            corrupt_at_best(attack, search, rule, first + t, target, server, uploads, scratch.distance)
        elif attack.on_uploads:
            corrupt(attack.token, first + t, attack.attackers, target, server, uploads)
        if network is not None:
            upload_through(first + t, num_clients, network, server, target, uploads)
            if network.delay.is_on:
                arrived = pass_time(network.delay, t, first + t, server, uploads)
                uploads = first_arrivals(network.delay, arrived)
        if defence is not None:
            leave_out(defence, first + t, server, uploads)
        if network is not None and network.delay.by_delay:
            weigh_by_delay(network.delay, server, uploads)
        aggregate(rule, first + t, target, uploads, scratch.distance, server)


@kernel_part
def _let_download(
    t: int,
    first: int,
    exchange: Exchanges,
    defence: DefenceSide | None,
    network: NetworkSide | None,
    target: FloatArray,
    scratch: Scratch,
    state: ModelState,
) -> None:
    """Let the participants download."""
    participants, entries, clients, server = (
        exchange.participants[t], exchange.downloaded[t], state.clients, state.server,
    )  # fmt: skip
    left = scratch.nobody
    if defence is not None and not defence.excluded_download:
        left = defence.watching.left
    if network is not None:
        download_through(
            t, first + t, network, server, target, participants, entries, left, scratch.asked, clients
        )
    elif left.size == 0:
        download(server, participants, entries, clients)
    else:
        _download_unless_out(server, participants, entries, left, clients)


@kernel_part
def _measure_one(server: FloatArray, tests: TestSet, lanes: ClientLanes, metrics: FloatArray, t: int) -> None:
    """Write the server's MSD and test MSE where the lanes are clients; the test set is in all of them."""
    for i in range(server.shape[0]):
        for lane in range(WIDTH):
            lanes.server[i, lane] = server[i, 0]
    _measure(lanes.server, tests, lanes.measured, 0)
    metrics[t, 1, 0], metrics[t, 2, 0] = lanes.measured[0, 1, 0], lanes.measured[0, 2, 0]


@kernel_part
def _measure(distance: FloatArray, tests: TestSet, metrics: FloatArray, t: int) -> None:
    """Write the server's MSD and test MSE."""
    dimension, lanes = distance.shape
    fill_row(metrics, 3 * t + 1, lanes, 0.0)
    add_squares(metrics, 3 * t + 1, distance, 0, dimension)
    test_error(distance, tests, metrics, 3 * t + 2)


@kernel_part
def _measure_in_general(
    server: FloatArray, tests: TestSet, extras: Extras, scratch: Scratch, metrics: FloatArray, t: int
) -> None:
    """Write the server's MSD and test MSE where the target moves, or tests are the clients' next samples."""
    dimension, lanes = server.shape
    for i in range(dimension):
        for lane in range(lanes):
            move = extras.moves[t, i, lane] if extras.moves.size else 0.0
            scratch.distance[i, lane] = server[i, lane] + move
    _measure(scratch.distance, tests, metrics, t)
    if extras.tests_on_next:
        error_on_next(
            server, extras.inputs[t], extras.residuals[t], scratch.sample, scratch.error, metrics, 3 * t + 2
        )


@kernel_part
def _learn(
    gamma: WordArray,
    inputs: InputModel,
    stepsizes: FloatArray,
    learns: NDArray[np.uint8] | None,
    scratch: Scratch,
    clients: FloatArray,
    metrics: FloatArray,
    t: int,
) -> None:
    """Let every client make its step on a white sample x = ς_k z, and write the network MSE.

    The same as :func:`_learn_in_general`, bit for bit up to SUM_BLOCK clients, but x is never stored.
    """
    num_clients, dimension, lanes = clients.shape
    counter, hashed, normals = scratch.counter, scratch.hashed, scratch.normals
    scale, deviation = inputs.scale, inputs.noise_deviation
    for lane in range(0, lanes, WIDTH):
        total = spread(0.0)
        for block in range(0, num_clients, SUM_BLOCK):
            squares = spread(0.0)
            for k in range(block, min(block + SUM_BLOCK, num_clients)):
                next_normals(lane, counter, gamma, hashed, normals)
                first = k * dimension * lanes + lane
                product = spread(0.0)
                for i in range(dimension):
                    x = scale[k] * to_float64(load(normals, i * lanes + lane))
                    product = fma(x, load(clients, first + i * lanes), product)
                error = product + deviation[k] * to_float64(load(normals, dimension * lanes + lane))
                squares = fma(error, error, squares)
                step = -stepsizes[k] * error
                if learns is not None:
                    does = load(learns, (t * num_clients + k) * lanes + lane)
                    step = pick_if_equal(does, spread(np.uint8(1)), step, spread(0.0))
                for i in range(dimension):
                    x = scale[k] * to_float64(load(normals, i * lanes + lane))
                    store(clients, first + i * lanes, fma(x, step, load(clients, first + i * lanes)))
            total = total + squares
        store(metrics, 3 * t * lanes + lane, (1.0 / num_clients) * total)


@kernel_part
def _learn_in_general(
    first: int,
    t: int,
    data: Stream,
    inputs: InputModel,
    attack: AttackSide,
    groups: GroupSide | None,
    target: FloatArray,
    extras: Extras,
    network: NetworkSide | None,
    scratch: Scratch,
    state: ModelState,
    metrics: FloatArray,
) -> None:
    """Let every client make its step on any kind of sample, and write the network MSE."""
    clients, client_squares = state.clients, state.client_squares
    num_clients, dimension, lanes = clients.shape
    counter, hashed, normals = scratch.counter, scratch.hashed, scratch.normals
    sample, error, clean = scratch.sample, scratch.error, scratch.clean
    poisons = attack.on_samples
    if groups is not None:
        for side in groups.sides:
            poisons = poisons or side.on_samples
    if attack.on_samples:
        redraw_byzantine(attack, t)
    fill_row(metrics, 3 * t, lanes, 0.0)
    for k in range(num_clients):
        if extras.has_samples:
            take_sample(extras.inputs[t, k], extras.residuals[t, k], sample, error)
        else:
            for lane in range(0, lanes, WIDTH):
                next_normals(lane, counter, data.gamma, hashed, normals)
            draw_input(extras.stream, inputs, first + t, k, normals, sample)
            set_product(error, inputs.noise_deviation[k], normals, dimension)
        if extras.moves.size:
            add_inner_product(error, sample, extras.moves, t * dimension, dimension)
        if extras.offsets.size:
            add_inner_product(error, sample, extras.offsets, k * dimension, dimension)
        # Metrics are of the clean sample, the step of the poisoned one.
        set_product(clean, 1.0, error, 0)
        add_inner_product(clean, sample, clients, k * dimension, dimension)
        add_squares(metrics, 3 * t, clean, 0, 1)
        if extras.has_samples and t >= extras.watched_from:
            add_squares(client_squares, k, clean, 0, 1)
        if extras.has_samples and not has_sample(extras.inputs[t, k]):
            continue
        if network is not None and network.learns.size:
            _copy_absent(network.learns[t, k], clients[k], network.held)
            _copy_absent_rows(network.learns[t, k], extras.learning.memory[k], network.held_memory)
        if poisons:
            poison_samples(first + t, k, attack, groups, target, sample, error)
            add_inner_product(error, sample, clients, k * dimension, dimension)
            step_client(extras.learning, first + t, k, target, sample, error, clients)
        else:
            step_client(extras.learning, first + t, k, target, sample, clean, clients)
        if network is not None and network.learns.size:
            _copy_absent(network.learns[t, k], network.held, clients[k])
            _copy_absent_rows(network.learns[t, k], network.held_memory, extras.learning.memory[k])
    scale_row(metrics, 3 * t, lanes, 1.0 / num_clients)


@kernel_part
def _copy_absent(learns: NDArray[np.uint8], numbers: FloatArray, out: FloatArray) -> None:
    """Copy the columns (D, lanes) of trials in which a client does not learn."""
    for i in range(out.shape[0]):
        for lane in range(out.shape[1]):
            if not learns[lane]:
                out[i, lane] = numbers[i, lane]


@kernel_part
def _copy_absent_rows(learns: NDArray[np.uint8], numbers: FloatArray, out: FloatArray) -> None:
    """Copy the rows (lanes, any) of trials in which a client does not learn."""
    for lane in range(out.shape[0]):
        if not learns[lane]:
            for i in range(out.shape[1]):
                out[lane, i] = numbers[lane, i]


@kernel_part
def _download_unless_out(
    server: FloatArray, participants: IndexArray, entries: IndexArray, left: IntArray, clients: FloatArray
) -> None:
    for p in range(entries.shape[0]):
        for m in range(entries.shape[1]):
            for lane in range(entries.shape[2]):
                i, k = entries[p, m, lane], participants[p, lane]
                if left[k, lane] == 0:
                    clients[k, i, lane] = server[i, lane]


@kernel_part
def _note_downloads(
    t: int,
    n: int,
    choosing: ChoosingSide,
    network: NetworkSide | None,
    defence: DefenceSide | None,
    target: FloatArray,
    exchange: Exchanges,
    asked: IntArray,
    clients: FloatArray,
) -> None:
    """Let a pattern with a memory see the values that arrived at participants."""
    participants, entries, taken = exchange.participants[t], exchange.downloaded[t], choosing.taken
    for p in range(taken.shape[0]):
        for lane in range(taken.shape[2]):
            k = participants[p, lane]
            takes = True
            if network is not None:
                takes = network.downloads.size == 0 or network.downloads[t, p, lane]
            if defence is not None:
                takes = takes and (defence.excluded_download or defence.watching.left[k, lane] == 0)
            for m in range(taken.shape[1]):
                arrived = takes
                if network is not None and network.down.addresses.size:
                    arrived = takes and not np.isnan(network.received[p, m, lane])
                taken[p, m, lane] = clients[k, entries[p, m, lane], lane] if arrived else np.nan
    note_shared(choosing, n, False, target, Uploads(participants, entries, taken, asked))


@kernel_part
def _upload(clients: FloatArray, uploaders: IndexArray, entries: IndexArray, sent: FloatArray) -> None:
    num_participants, num_shared, lanes = entries.shape
    for p in range(num_participants):
        for m in range(num_shared):
            for lane in range(lanes):
                sent[p, m, lane] = clients[uploaders[p, lane], entries[p, m, lane], lane]
