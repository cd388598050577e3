"""One iteration, from top to bottom as in the paper: download, learn, corrupt, upload, deliver, defend, aggregate.

Only learning is done for sixteen columns at a time (:mod:`psofed.engine.step`). Everything else handles one trial after
another, and each step here loops over the trials of a block. The server's model is held as an error too, w − w_n.
"""

import numpy as np
from numba.extending import register_jitable

from psofed.common.types import FloatArray
from psofed.engine.attacks import AttackSide, corrupt, remember_models, set_byzantine
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.draws import Draws
from psofed.engine.hooks import Method, options_of, padded
from psofed.engine.lanes import WIDTH, filled, fma, load, pick, spread, store
from psofed.engine.learning import InputModel, Learning, Sampling
from psofed.engine.network import ChannelSide, DelaySide, weigh_by_delay
from psofed.engine.rivals import RivalSide
from psofed.engine.samples import NO_SERVER_SAMPLES, TrialSamples, draw_test_set, measure
from psofed.engine.server import DefenceSide, aggregate, make_rule_side, mix_and_aggregate
from psofed.engine.state import Setup, Uploads, column, copy_array
from psofed.engine.step import StepScratch, Tally, WordSource
from psofed.engine.tables import TableData, call
from psofed.parts.base import Metric
from psofed.parts.contexts import TrialState
from psofed.parts.watching import WatchPlan

# What a call of the kernel does: what precedes learning, learning, what follows; threads may share the second.
BEFORE, LEARN, AFTER = 1, 2, 4
WHOLE = BEFORE | LEARN | AFTER

# Places of the metrics of every run; that of the honest clients follows where it is measured, then the user's own.
NETWORK_MSE, SERVER_MSD, TEST_MSE, HONEST_MSE = range(4)


class Stages(TableData):
    """Addresses of what differs between scenarios, each compiled when first used; 0 for what the kernel does itself."""

    def __init__(self) -> None:
        self.download, self.learn, self.upload, self.deliver, self.aggregate = 0, 0, 0, 0, 0


class TrialBlock(TableData):
    """Everything that a block of trials needs for some iterations, and ``metrics`` (T, Q, L) of them.

    The user's own metrics have addresses, ``own_metrics``, and options (any, any), ``metric_options``. Kernels take it
    as a :class:`psofed.engine.tables.KernelTable`.
    """

    def __init__(
        self, setup: Setup, samples: TrialSamples | None, plan: WatchPlan | None, metrics: list[Metric], tally: Tally
    ) -> None:
        scenario, fleet, layout, trials = setup.scenario, setup.fleet, setup.layout, len(setup.trials)
        dimension, draws_all = scenario.dimension, samples is None
        self.stages, self.layout = Stages(), layout
        self.source = WordSource(setup.stream("data"), layout, (dimension + 2) // 2)
        inputs = InputModel(fleet, draws_all)
        self.sampling = Sampling(scenario, trials, inputs, setup.hooks, dimension, draws_all)
        self.sampling.tests_on_next = samples is not None and samples.tests_on_next
        if fleet.target_offsets is not None:
            self.sampling.offsets = np.repeat(fleet.target_offsets[:, :, None], WIDTH, axis=2)
        self.learning = Learning(setup, self.sampling.sample)
        if layout.mask:
            inputs.scale, inputs.noise_deviation = _whole_vectors(inputs.scale), _whole_vectors(inputs.noise_deviation)
            self.learning.stepsizes = _whole_vectors(self.learning.stepsizes)
        self.uploads, self.state = setup.uploads, setup.state
        self.attack = AttackSide(setup, self.sampling.sample, self.sampling.residual)
        received = scenario.num_shared if scenario.algorithm.holds_models else dimension
        downloads = Uploads(trials, setup.participants, received, setup.one_mask)
        self.up = ChannelSide(setup, "up", setup.uploads, setup.state.base)
        self.down = ChannelSide(setup, "down", downloads, setup.state.target)
        self.delay, self.defence = DelaySide(setup), DefenceSide(setup, plan)
        self.rival = RivalSide(setup, downloads)
        joined = self.rival.joined
        if setup.sends_models:
            self.rule = make_rule_side(setup, setup.uploads, self.state.server, self.state.base)
        else:
            self.rule = make_rule_side(setup, self.rival.read, joined[:, 0], np.zeros(joined.shape[2]))
        self.tests = NO_SERVER_SAMPLES if self.sampling.tests_on_next else draw_test_set(setup)
        self.scratch = StepScratch(dimension, 0, layout.vectors)
        self.tally, self.own_metrics = tally, np.zeros(len(metrics), np.int64)
        self.metric_options = padded([options_of(metric) for metric in metrics])
        self.draws, self.metrics = Draws(), np.zeros((0, 0, 0))
        for q, metric in enumerate(metrics):
            self.own_metrics[q] = setup.hooks.add(metric, "measure", _measure, self)


def _whole_vectors(numbers: FloatArray) -> FloatArray:
    """Return numbers of the clients as whole vectors; clients that are added never change."""
    out: FloatArray = filled(0.0, -(-numbers.size // WIDTH) * WIDTH)
    out[: numbers.size] = numbers
    return out


@compiled
def advance(phases: int, first: int, start: int, stop: int, block: TrialBlock) -> None:
    """Run iterations `start` to `stop` of a chunk that begins with iteration `first`."""
    draws, stages, defence, exchanges = block.draws, block.stages, block.defence, block.draws.exchanges
    for t in range(start, stop):
        n = first + t
        if phases & BEFORE:
            _note_server(t - start, t, block)
            if draws.byzantine.size:
                set_byzantine(draws.byzantine, t, block.attack)
            if draws.learns.size:
                copy_array(draws.learns[t], block.state.learns)
            if stages.download == 0:
                _download(t, block)
            elif exchanges[t] > 0:
                call(stages.download, n, t, 0, block)
        if phases & LEARN:
            call(stages.learn, n, t, 0, block)
        if phases & AFTER:
            _note_errors(t, block)
            if block.tally.errors.size and block.attack.on_uploads.size:
                _note_honest(t, block)
            for q in range(block.own_metrics.size):
                call(block.own_metrics[q], n, t, q, block)
            if exchanges[t] > 0 or block.delay.is_on:  # uploads of earlier iterations may arrive
                if stages.upload != 0:
                    call(stages.upload, n, t, 0, block)
                else:
                    remember_models(n, block.attack)
                    _upload(t, block)
                corrupt(n, block.attack)
                if stages.deliver != 0:
                    call(stages.deliver, n, t, 0, block)
                if defence.address != 0:
                    call(defence.address, n, 0, 0, defence)
                if stages.aggregate != 0:
                    call(stages.aggregate, n, t, 0, block)
                else:
                    aggregate(n, block.rule)
        done = (t - start) % WIDTH + 1
        if phases & BEFORE and (done == WIDTH or t == stop - 1):
            for trial in range(block.metrics.shape[2]):
                measure(block.state, block.tests, trial, done, t + 1 - done, block.metrics)


@kernel_part
def _download(t: int, block: TrialBlock) -> None:
    """Let all participants download their entries."""
    participants, entries, server = block.draws.participants, block.draws.downloaded, block.state.server
    rows, shared, count = entries.shape[2], entries.shape[3], participants.shape[2]
    for trial in range(server.shape[0]):
        for r in range(rows):
            for m in range(shared):
                i = entries[t, trial, r, m]
                own = server[trial, i]
                for p in range(r, count if rows == 1 else r + 1):
                    v, lane = column(block.layout, np.int64(participants[t, trial, p]), trial)
                    block.state.models[v, i, lane] = own


@kernel_part
def _upload(t: int, block: TrialBlock) -> None:
    """Let the uploaders send their entries; NaN where a client is not reached."""
    uploads, models, reached = block.uploads, block.state.models, block.draws.uploads
    uploaders, uploaded = block.draws.uploaders, block.draws.uploaded
    _, trials, count = uploaders.shape
    masks, masks_sent, shared = uploaded.shape[2], uploads.entries.shape[1], uploaded.shape[3]
    for trial in range(trials):
        uploads.rows[trial] = count
        uploads.asked[trial] = block.draws.asked[t, trial]
        for p in range(count):
            k, r = np.int64(uploaders[t, trial, p]), p if masks > 1 else 0
            uploads.clients[trial, p] = k
            v, lane = column(block.layout, k, trial)
            for m in range(shared):
                i = uploaded[t, trial, r, m]
                if p < masks_sent:
                    uploads.entries[trial, p, m] = i
                uploads.sent[trial, p, m] = models[v, i, lane]
                if reached.size and not reached[t, trial, p]:
                    uploads.sent[trial, p, m] = np.nan


def aggregate_in_general(n: int, t: int, g: int, block: TrialBlock) -> None:
    """Stage: update the server with uploads that are weighed by delay, mixed, or compared with its own step."""
    if block.delay.by_delay:
        weigh_by_delay(block.delay, block.state.server, block.uploads)
    mix_and_aggregate(n, block.rule)


@kernel_part
def _note_server(step: int, t: int, block: TrialBlock) -> None:
    """Note the server's errors, for the metrics of sixteen iterations at once, and where lanes are needed."""
    server, moves = block.state.server, block.draws.moves
    for trial in range(server.shape[0]):
        for i in range(server.shape[1]):
            move = moves[t, i, trial] if moves.size else 0.0
            block.state.path[trial, i, step % WIDTH] = server[trial, i] + move
            block.state.server_lanes[0, i, trial] = server[trial, i]


@kernel_part
def _note_errors(t: int, block: TrialBlock) -> None:
    """Write the network MSE, and the test MSE where tests are the clients' next samples."""
    sums, metrics, share = block.tally.sums, block.metrics, 1.0 / block.layout.clients
    for trial in range(metrics.shape[2]):
        total = 0.0
        for b in range(sums.shape[0]):
            total += sums[b, trial]
        metrics[t, NETWORK_MSE, trial] = share * total
        if block.sampling.tests_on_next:
            metrics[t, TEST_MSE, trial] = share * block.tally.tests[trial]


@kernel_part
def _note_honest(t: int, block: TrialBlock) -> None:
    """Write the MSE of the clients that are not Byzantine in this iteration; clients without a sample have error 0."""
    errors, honest, layout, inputs = block.tally.errors, block.attack.honest, block.layout, block.draws.inputs
    total, totals = spread(0.0), block.tally.honest
    if layout.mask:  # in the order of the clients, as with trials as lanes
        totals[0] = 0.0
        for k in range(layout.clients):
            v, lane = column(layout, k, 0)
            own = errors[v, lane] if honest[v, lane] else 0.0
            totals[0] = fma(own, own, totals[0])
    else:
        for k in range(layout.clients):
            error = pick(load(honest, k * WIDTH), load(errors, k * WIDTH), spread(0.0))
            total = fma(error, error, total)
        store(totals, 0, total)
    count = block.attack.num_honest
    for trial in range(block.metrics.shape[2]):
        share = 1.0
        if inputs.size:
            present = 0
            for k in range(layout.clients):
                present += int(honest[column(layout, k, trial)] != 0 and _has_sample(inputs, t, k))
            share = count / max(present, 1)
        block.metrics[t, HONEST_MSE, trial] = totals[trial] / count * share if count else np.nan


@register_jitable
def _has_sample(inputs: FloatArray, t: int, client: int) -> bool:
    """Tell whether a client has a sample: of given ones, those that are missing are zero."""
    return inputs.size == 0 or bool(inputs[t, client, :, 0].any())


def _measure(method: Method, n: int, t: int, q: int, block: TrialBlock) -> None:
    """Frame of a user's own metric: one call for each trial, after all clients have learned."""
    state, layout, metrics, options = block.state, block.layout, block.metrics, block.metric_options
    errors, moves = block.tally.errors, block.draws.moves
    place, dimension = metrics.shape[1] - options.shape[0] + q, state.target.size
    num_models = 1 if block.rival.is_on else layout.clients
    for trial in range(metrics.shape[2]):
        target, server = state.target.copy(), state.target - state.server[trial]
        models, own_errors = np.empty((num_models, dimension)), np.empty(layout.clients)
        is_byzantine = np.empty(layout.clients, np.bool_)
        for i in range(dimension):
            target[i] += moves[t, i, trial] if moves.size else 0.0
        for k in range(layout.clients):
            v, lane = column(layout, k, trial)
            own_errors[k] = errors[v, lane] if _has_sample(block.draws.inputs, t, k) else np.nan
            is_byzantine[k] = block.attack.honest[v, lane] == 0
            for i in range(dimension if k < num_models else 0):
                models[k, i] = state.target[i] - state.models[v, i, lane]
        known = TrialState(n, target, server, models, own_errors, is_byzantine)
        metrics[t, place, trial] = method(options[q], None, known)
