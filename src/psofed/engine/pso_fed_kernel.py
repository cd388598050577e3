"""PSO-Fed's kernel: all clients and the server, several trials in lock step.

The kernel holds errors, w − w_{k,n} and w − w_n, instead of models: the recursion is the same and y need not
be formed. A target that moves (drift) adds xᵀ(w*_n − w*_0) to the labels, with errors still counted from w*_0;
samples that are not the paper's come as arrays (:mod:`psofed.engine.samples`). The paper's case pays for neither.
"""

import numpy as np

from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.attack_steps import corrupt_uploads, redraw_byzantine, remember_models
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.frames.delay import first_arrivals, pass_time, weigh_by_delay
from psofed.engine.hooks import Uploads
from psofed.engine.inputs import InputModel
from psofed.engine.lanes import WIDTH
from psofed.engine.lms import add_squares, fill_row
from psofed.engine.network import NetworkSide, download, download_through, silence_unreached, upload_through
from psofed.engine.over_clients import (
    AFTER_LEARNING,
    BEFORE_LEARNING,
    WHOLE,
    ClientLanes,
    learn_over_clients,
)
from psofed.engine.pso_fed_learning import learn_in_general, learn_plainly
from psofed.engine.pso_fed_state import Exchanges, Extras, ModelState, Scratch
from psofed.engine.samples import error_on_next
from psofed.engine.server_side import AttackSide, DefenceSide, GroupSide, RuleSide
from psofed.engine.server_steps import aggregate, leave_out
from psofed.engine.streams import Stream
from psofed.engine.test_set import TestSet, test_error


@compiled(allocates=False)
def advance(
    first: int,
    data: Stream,
    inputs: InputModel,
    stepsizes: FloatArray,
    exchange: Exchanges,
    attack: AttackSide,
    defence: DefenceSide | None,
    rule: RuleSide,
    tests: TestSet,
    target: FloatArray,
    extras: Extras | None,
    network: NetworkSide | None,
    groups: GroupSide | None,
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
    extras, network, groups, over_clients : Extras, NetworkSide, GroupSide, …, or None
        Numba compiles the kernel for each, and without them leaves out what it takes to handle them.
    scratch : Scratch
        What it works in.
    """
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
            _let_download(t, first, exchange, defence, network, target, scratch, state)
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
                learn_plainly(data.gamma, inputs, stepsizes, network.learns, scratch, clients, metrics, t)
            else:
                learn_plainly(data.gamma, inputs, stepsizes, None, scratch, clients, metrics, t)
        else:
            learn_in_general(
                first, t, data, inputs, attack, groups, target, extras, network, scratch, state, metrics
            )
        redraw_byzantine(attack, t)
        remember_models(attack, groups, first + t, target, state.remembered)
        uploaders, uploaded = exchange.uploaders[t], exchange.uploaded[t]
        _upload(clients, uploaders, uploaded, scratch.sent)
        uploads = Uploads(uploaders, uploaded, scratch.sent, scratch.asked)
        if network is not None:
            silence_unreached(t, network, scratch.sent)
            for lane in range(lanes):
                scratch.asked[lane] = network.asked[t, lane]
        corrupt_uploads(attack, groups, first + t, target, server, uploads)
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
def _upload(clients: FloatArray, uploaders: IndexArray, entries: IndexArray, sent: FloatArray) -> None:
    num_participants, num_shared, lanes = entries.shape
    for p in range(num_participants):
        for m in range(num_shared):
            for lane in range(lanes):
                sent[p, m, lane] = clients[uploaders[p, lane], entries[p, m, lane], lane]
