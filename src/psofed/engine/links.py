"""Steps of links that are not perfect: downloads that may fail, and uploads on channels and with delays."""

from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.channels import transmit
from psofed.engine.compiling import kernel_part
from psofed.engine.delays import pass_time
from psofed.engine.signatures import Uploads, sent_at

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock


def download_in_general(n: int, t: int, block: "TrialBlock") -> None:
    """Stage: let the participants that are reached, and not excluded, download their entries."""
    layout, exchange, down, state = block.layout, block.exchange, block.down, block.state
    participants, entries, reached = exchange.participants, exchange.downloaded, exchange.downloads
    server, models, received, left = state.server, state.models, state.received, block.watching.left
    shift, mask = layout.shift, layout.mask
    rows, shared, trials, count = entries.shape[2], entries.shape[3], server.shape[0], participants.shape[2]
    excludes = block.defence.hook.address != 0 and not block.defence.excluded_download
    has_channels = down.addresses.size > 0
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


def deliver(n: int, t: int, block: "TrialBlock") -> None:
    """Stage: pass uploads through channels, and send them on their way."""
    uploads, state, up, rival = sent_at(t, block), block.state, block.up, block.rival
    known = state.server if not rival.is_on or rival.sends_model else state.nothing
    if up.addresses.size:
        _fill_receiver(up.receiver, uploads, known)
        transmit(up, n, block.layout.clients, state.base, uploads)
    if block.delay.is_on:
        pass_time(block.delay, t, n, state.server, uploads, block.arrived)


@kernel_part
def _fill_receiver(receiver: FloatArray, uploads: Uploads, server: FloatArray) -> None:
    """Write the server's own values of what is uploaded."""
    entries, rows = uploads.entries, uploads.rows
    for trial in range(receiver.shape[0]):
        for p in range(rows[trial]):
            r = p if entries.shape[1] > 1 else 0
            for m in range(receiver.shape[2]):
                receiver[trial, p, m] = server[trial, entries[trial, r, m]]
