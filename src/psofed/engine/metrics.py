"""Metrics of an iteration: the network's, the server's, the honest clients', and a user's own."""

from typing import TYPE_CHECKING

import numpy as np
from numba.extending import register_jitable

from psofed.common.types import BoolArray, FloatArray, IndexArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Body
from psofed.engine.lanes import WIDTH, fma, load, spread, store
from psofed.engine.tables import Stage
from psofed.parts.contexts import TrialState

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock

# Places of the metrics of every run; that of the honest clients follows where it is measured, then the user's own.
NETWORK_MSE, SERVER_MSD, TEST_MSE, HONEST_MSE = range(4)


@kernel_part
def note_server(step: int, t: int, block: "TrialBlock") -> None:
    """Note the server's errors, for the metrics of sixteen iterations at once, and where lanes are needed."""
    server, path = block.state.server, block.state.path
    lanes, moves = block.state.server_lanes, block.draws.moves
    for trial in range(server.shape[0]):
        for i in range(server.shape[1]):
            move = moves[t, i, trial] if moves.size else 0.0
            path[trial, i, step % WIDTH] = server[trial, i] + move
            lanes[0, i, trial] = server[trial, i]


@kernel_part
def note_errors(t: int, block: "TrialBlock") -> None:
    """Write the network MSE, and the test MSE where tests are the clients' next samples."""
    sums, tests = block.tally.sums, block.tally.tests
    metrics, share = block.metrics, 1.0 / block.layout.clients
    for trial in range(metrics.shape[2]):
        total = 0.0
        for b in range(sums.shape[0]):
            total += sums[b, trial]
        metrics[t, NETWORK_MSE, trial] = share * total
        if block.sampling.tests_on_next:
            metrics[t, TEST_MSE, trial] = share * tests[trial]


@kernel_part
def note_honest(t: int, block: "TrialBlock") -> None:
    """Write the MSE of the clients that are not Byzantine in this iteration."""
    errors, tests, metrics = block.tally.errors, block.tally.tests, block.metrics
    is_byzantine, layout, trials = block.attack.attackers.is_byzantine, block.layout, block.metrics.shape[2]
    if layout.mask == 0 and not block.attack.attackers.is_redrawn:  # the same clients in all trials, which are lanes
        lanes, count = spread(0.0), 0
        for k in range(layout.clients):
            if not _is_byzantine(is_byzantine, trials, 0, k):
                error = load(errors, k * WIDTH)
                lanes, count = fma(error, error, lanes), count + 1
        store(tests, 0, lanes)
        for trial in range(trials):
            metrics[t, HONEST_MSE, trial] = tests[trial] / count if count else np.nan
        return
    for trial in range(trials):
        total, count = 0.0, 0
        for k in range(layout.clients):
            if not _is_byzantine(is_byzantine, trials, trial, k):
                own = errors[k >> layout.shift, trial + (k & layout.mask)]
                total, count = fma(own, own, total), count + 1
        metrics[t, HONEST_MSE, trial] = total / count if count else np.nan


@register_jitable
def _is_byzantine(is_byzantine: BoolArray, trials: int, trial: int, client: int) -> bool:
    """Tell whether a client belongs to a group of Byzantine clients in a trial."""
    is_any = False
    for row in range(trial, is_byzantine.shape[0], trials):
        is_any = is_any or is_byzantine[row, client]
    return is_any


def make_metric(unpack: Body, body: Body) -> Stage:
    """Return the frame of a user's own metric: one call for each trial, after all clients have learned."""

    def frame(n: int, t: int, q: int, block: "TrialBlock") -> None:
        self, state = unpack(block.measuring.options[q]), block.state
        layout, metrics = block.layout, block.metrics
        errors, inputs, moves = block.tally.errors, block.draws.inputs, block.draws.moves
        byzantine, trials = block.attack.attackers.is_byzantine, metrics.shape[2]
        place, dimension = metrics.shape[1] - block.measuring.options.shape[0] + q, state.target.size
        num_models = 1 if block.rival.is_on else layout.clients
        for trial in range(trials):
            target, server = state.target.copy(), state.target - state.server[trial]
            models, own_errors = np.empty((num_models, dimension)), np.empty(layout.clients)
            is_byzantine = np.zeros(layout.clients, np.bool_)
            for i in range(dimension):
                target[i] += moves[t, i, trial] if moves.size else 0.0
            for k in range(layout.clients):
                v, lane = k >> layout.shift, trial + (k & layout.mask)
                own_errors[k] = errors[v, lane]
                if inputs.size and not inputs[t, k, :, 0].any():  # it has no sample
                    own_errors[k] = np.nan
                for i in range(dimension if k < num_models else 0):
                    models[k, i] = state.target[i] - state.models[v, i, lane]
                if byzantine.size:
                    is_byzantine[k] = _is_byzantine(byzantine, trials, trial, k)
            known = TrialState(n, target, server, models, own_errors, is_byzantine)
            metrics[t, place, trial] = body(self, known)

    return frame


def honest_share(inputs: FloatArray, active: IntArray, is_byzantine: BoolArray, sets: IndexArray) -> FloatArray:
    """Return the honest clients over those that have a sample, shape (T, L or 1).

    ``inputs`` (T, K, D, any) are zero where there is none, ``active`` (T,) counts the others, and ``sets``
    (T, L, |S_B|) are the Byzantine clients where they are redrawn.
    """
    present = (inputs[..., 0] != 0.0).any(axis=2)
    if not sets.size:
        honest = ~is_byzantine.any(axis=0)
        counts = present[:, honest].sum(axis=1, keepdims=True)
        return np.asarray(int(honest.sum()) / np.maximum(counts, 1))
    byzantine = np.take_along_axis(present[:, None], sets.astype(np.int64), axis=2).sum(axis=2)
    counts = active[:, None] - byzantine
    return np.asarray((present.shape[1] - sets.shape[2]) / np.maximum(counts, 1))
