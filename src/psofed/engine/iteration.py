"""One iteration, from top to bottom as in the paper: download, learn, corrupt, upload, deliver, defend, aggregate.

Only learning is done for sixteen columns at a time (:mod:`psofed.engine.step`). Everything else handles one trial after
another, and each step here loops over the trials of a block. The server's model is held as an error too, w − w_n.
"""

from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine.attackers import set_byzantine
from psofed.engine.attacks import AttackSide, corrupt, remember_models
from psofed.engine.channels import ChannelSide
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.defences import DefenceSide
from psofed.engine.delays import DelaySide, weigh_by_delay
from psofed.engine.draws import Draws
from psofed.engine.lanes import WIDTH
from psofed.engine.learning import Learning, Sampling
from psofed.engine.metrics import note_errors, note_honest, note_server
from psofed.engine.rivals import RivalSide
from psofed.engine.server import RuleSide, aggregate, mix_and_aggregate
from psofed.engine.server_samples import ServerSamples, measure
from psofed.engine.state import Layout, State
from psofed.engine.step import StepScratch, Tally, WordSource
from psofed.engine.tables import call, fields
from psofed.engine.uploads import Uploads, copy

# What a call of the kernel does: what precedes learning, learning, what follows; threads may share the second.
BEFORE, LEARN, AFTER = 1, 2, 4
WHOLE = BEFORE | LEARN | AFTER


class Stages(NamedTuple):
    """Addresses of what differs between scenarios, each compiled when first used; 0 for what the kernel does itself."""

    download: int
    learn: int
    upload: int
    deliver: int
    aggregate: int


class Measuring(NamedTuple):
    """The user's own metrics: addresses (Q,) and options (Q, any)."""

    addresses: IntArray
    options: FloatArray


class TrialBlock(NamedTuple):
    """Everything that a block of trials needs for some iterations, and ``metrics`` (T, Q, L) of them.

    Kernels take it as a :class:`psofed.engine.tables.KernelTable`.
    """

    stages: Stages
    layout: Layout
    source: WordSource
    sampling: Sampling
    learning: Learning
    uploads: Uploads
    attack: AttackSide
    up: ChannelSide
    down: ChannelSide
    delay: DelaySide
    defence: DefenceSide
    rule: RuleSide
    rival: RivalSide
    tests: ServerSamples
    state: State
    scratch: StepScratch
    tally: Tally
    measuring: Measuring
    draws: Draws
    metrics: FloatArray


@compiled
def advance(phases: int, first: int, start: int, stop: int, block: TrialBlock) -> None:
    """Run iterations `start` to `stop` of a chunk that begins with iteration `first`."""
    draws, stages, defence, server = block.draws, block.stages, block.defence, block.state.server
    exchanges, path, measured = draws.exchanges, block.state.path, block.state.measured
    for t in range(start, stop):
        n = first + t
        if phases & BEFORE:
            note_server(t - start, t, block)
            if draws.byzantine.size:
                set_byzantine(draws.byzantine, t, block.attack.attackers)
            if draws.learns.size:
                copy(draws.learns[t], block.state.learns)
            if stages.download == 0:
                _download(t, block)
            elif exchanges[t] > 0:
                call(stages.download, n, t, 0, block)
        if phases & LEARN:
            call(stages.learn, n, t, 0, block)
        if phases & AFTER:
            note_errors(t, block)
            if block.tally.errors.size and block.attack.on_uploads.size:
                note_honest(t, block)
            for q in range(block.measuring.addresses.size):
                call(block.measuring.addresses[q], n, t, q, block)
            if exchanges[t] > 0 or block.delay.is_on:  # uploads of earlier iterations may arrive
                if stages.upload != 0:
                    call(stages.upload, n, t, 0, block)
                else:
                    remember_models(n, block.attack)
                    _upload(t, block)
                corrupt(n, block.attack)
                if stages.deliver != 0:
                    call(stages.deliver, n, t, 0, block)
                if defence.address[0] != 0:
                    call(defence.address[0], n, 0, 0, defence)
                if stages.aggregate != 0:
                    call(stages.aggregate, n, t, 0, block)
                else:
                    aggregate(n, block.rule)
        done = (t - start) % WIDTH + 1
        if phases & BEFORE and (done == WIDTH or t == stop - 1):
            for trial in range(server.shape[0]):
                measure(path, measured, block.tests, trial, done, t + 1 - done, block.metrics)


@kernel_part
def _download(t: int, block: TrialBlock) -> None:
    """Let all participants download their entries."""
    participants, entries = block.draws.participants, block.draws.downloaded
    server, models, (_, shift, mask) = block.state.server, block.state.models, fields(block.layout)
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
def _upload(t: int, block: TrialBlock) -> None:
    """Let the uploaders send their entries; NaN where a client is not reached."""
    draws, models, (_, shift, mask) = block.draws, block.state.models, fields(block.layout)
    uploaders, uploaded, reached, all_asked = draws.uploaders, draws.uploaded, draws.uploads, draws.asked
    clients, entries, sent, rows, asked = fields(block.uploads)
    _, trials, count = uploaders.shape
    masks, masks_sent, shared = uploaded.shape[2], entries.shape[1], uploaded.shape[3]
    for trial in range(trials):
        rows[trial], asked[trial] = count, all_asked[t, trial]
        for p in range(min(count, masks_sent)):
            for m in range(shared):
                entries[trial, p, m] = uploaded[t, trial, p if masks > 1 else 0, m]
        for p in range(count):
            k, r = np.int64(uploaders[t, trial, p]), p if masks > 1 else 0
            clients[trial, p] = k
            for m in range(shared):
                sent[trial, p, m] = models[k >> shift, uploaded[t, trial, r, m], trial + (k & mask)]
    if reached.size:
        for trial in range(trials):
            for p in range(count):
                for m in range(shared):
                    if not reached[t, trial, p]:
                        sent[trial, p, m] = np.nan


def aggregate_in_general(n: int, t: int, g: int, block: TrialBlock) -> None:
    """Stage: update the server with uploads that are weighed by delay, mixed, or compared with its own step."""
    if block.delay.by_delay:
        weigh_by_delay(block.delay, block.state.server, block.uploads)
    mix_and_aggregate(n, block.rule)
