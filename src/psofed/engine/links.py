"""Steps of links that are not perfect: downloads that may fail, and uploads on channels and with delays."""

from typing import TYPE_CHECKING

import numpy as np
from numba.extending import register_jitable

from psofed.engine.channels import transmit
from psofed.engine.delays import pass_time
from psofed.engine.tables import fields

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock


@register_jitable
def read_server(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: write what each participant receives from the server into ``block.down.messages``, NaN if nothing."""
    draws, down, server, models = block.draws, block.down, block.state.server, block.state.models
    participants, entries, reached = draws.participants, draws.downloaded, draws.downloads
    clients, message_entries, received, _, _ = fields(down.messages)
    receiver, target, has_channels = down.receiver, down.target, down.addresses.size > 0
    left, (_, shift, mask) = block.defence.watching.left, fields(block.layout)
    hold_models, excludes = not block.rival.is_on, block.defence.excludes_downloads
    trials, count, shared = received.shape
    for trial in range(trials):
        for p in range(count):
            k = np.int64(participants[t, trial, p])
            clients[trial, p] = k
            takes = reached.size == 0 or reached[t, trial, p]
            takes = takes and not (excludes and left[trial, k] != 0)
            row = p if message_entries.shape[1] > 1 else 0
            for m in range(shared):
                i = entries[t, trial, row, m] if hold_models else m
                message_entries[trial, row, m] = i
                received[trial, p, m] = server[trial, i] if takes else np.nan
                if has_channels:
                    receiver[trial, p, m] = models[k >> shift, i, trial + (k & mask)] if hold_models else target[i]
    transmit(n, down)


def download_in_general(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: let the participants that are reached, and not excluded, download their entries."""
    read_server(n, t, g, block)
    models, (_, shift, mask) = block.state.models, fields(block.layout)
    clients, entries, received, _, _ = fields(block.down.messages)
    for trial in range(received.shape[0]):
        for p in range(received.shape[1]):
            k = np.int64(clients[trial, p])
            for m in range(received.shape[2]):
                i, value = entries[trial, p if entries.shape[1] > 1 else 0, m], received[trial, p, m]
                if value == value:
                    models[k >> shift, i, trial + (k & mask)] = value


def deliver(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: pass uploads through channels, and send them on their way."""
    uploads, server, receiver = block.uploads, block.state.known, block.up.receiver
    if block.up.addresses.size:
        entries, rows = uploads.entries, uploads.rows
        for trial in range(receiver.shape[0]):
            for p in range(rows[trial]):
                for m in range(receiver.shape[2]):
                    i = entries[trial, p if entries.shape[1] > 1 else 0, m]
                    receiver[trial, p, m] = server[trial, i]
        transmit(n, block.up)
    if block.delay.is_on:
        pass_time(n, block.draws.durations[t], block.delay, block.state.server, uploads)
