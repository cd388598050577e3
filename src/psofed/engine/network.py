"""The way of a message: downloads that may fail, channels, and uploads that arrive later."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import register_jitable

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Method, options_of, padded
from psofed.engine.lanes import WIDTH, empty_lanes, filled
from psofed.engine.normals import counter_at, fill_draws, uniform_at
from psofed.engine.state import Setup, Uploads, column, copy_array, entry_at, has_arrived
from psofed.engine.streams import WordArray
from psofed.engine.tables import TableData, call
from psofed.parts.contexts import Transmission
from psofed.parts.network import Channel
from psofed.parts.plain import check_size
from psofed.parts.vectors import part_of

if TYPE_CHECKING:
    from psofed.engine.iteration import TrialBlock

# What a channel may draw for every value.
_DRAWS = ("none", "normals", "uniforms")
_NORMALS, _UNIFORMS = 1, 2

# Largest number of values on their way in a trial.
MOST_PENDING = 2_000_000


@register_jitable
def read_server(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: write what each participant receives from the server into ``block.down.messages``, NaN if nothing."""
    draws, down, models, reached = block.draws, block.down, block.state.models, block.draws.downloads
    entries, received = down.messages.entries, down.messages.sent
    has_channels, hold_models = down.addresses.size > 0, not block.rival.is_on
    trials, count, shared = received.shape
    for trial in range(trials):
        for p in range(count):
            k = np.int64(draws.participants[t, trial, p])
            down.messages.clients[trial, p] = k
            takes = reached.size == 0 or reached[t, trial, p]
            if block.defence.excludes_downloads:
                takes = takes and block.defence.watching.left[trial, k] == 0
            row, (v, lane) = p if entries.shape[1] > 1 else 0, column(block.layout, k, trial)
            for m in range(shared):
                i = draws.downloaded[t, trial, row, m] if hold_models else m
                entries[trial, row, m] = i
                received[trial, p, m] = block.state.server[trial, i] if takes else np.nan
                if has_channels:
                    down.receiver[trial, p, m] = models[v, i, lane] if hold_models else down.target[i]
    _transmit_all(n, down)


def download_in_general(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: let the participants that are reached, and not excluded, download their entries."""
    read_server(n, t, g, block)
    messages, received = block.down.messages, block.down.messages.sent
    for trial in range(received.shape[0]):
        for p in range(received.shape[1]):
            v, lane = column(block.layout, np.int64(messages.clients[trial, p]), trial)
            for m in range(received.shape[2]):
                value = received[trial, p, m]
                if value == value:
                    block.state.models[v, entry_at(messages, trial, p, m), lane] = value


def deliver(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: pass uploads through channels, and send them on their way."""
    uploads, receiver = block.uploads, block.up.receiver
    if block.up.addresses.size:
        for trial in range(receiver.shape[0]):
            for p in range(uploads.rows[trial]):
                for m in range(receiver.shape[2]):
                    receiver[trial, p, m] = block.state.known[trial, entry_at(uploads, trial, p, m)]
        _transmit_all(n, block.up)
    if block.delay.is_on:
        _pass_time(n, block.draws.durations[t], block.delay, block.state.server, uploads)


class ChannelSide(TableData):
    """The channels of one direction, "up" or "down", in series.

    Attributes
    ----------
    addresses, draws : int array (C,)
        Their methods, and what each draws for every value, by its place in _DRAWS.
    options : array (C, any)
        Their options.
    streams : array (C, 2, L)
        Their randomness.
    num_clients : int
        K.
    messages : Uploads
        What is sent.
    target : array (any,)
        What messages are counted from.
    receiver : array (L, P, M)
        The receivers' own values, as errors.
    memory : array (C, L, K or 1, any)
        What each keeps of every client.
    words, numbers : arrays (any,)
        Scratch: random words, and the numbers drawn from them.
    """

    def __init__(self, setup: Setup, direction: str, messages: Uploads, target: FloatArray) -> None:
        links, clients, trials = setup.scenario.channel, setup.scenario.num_clients, len(setup.trials)
        channels: tuple[Channel, ...] = () if links is None else getattr(links, direction)
        kept = [channel.memory_size(setup.entries) for channel in channels]
        check_size(f"channel.{direction}", clients * sum(kept))
        streams = [np.array(setup.stream(f"channel_{direction}", place)) for place in range(len(channels))]
        shape: tuple[int, ...] = messages.sent.shape if channels else (trials, 0, 0)
        padded_size, most = -(-math.prod(shape) // WIDTH) * WIDTH, max(kept, default=0)
        self.addresses = np.zeros(len(channels), np.int64)
        self.draws = np.array([_DRAWS.index(channel.draws) for channel in channels], np.int64)
        self.options = padded([options_of(channel) for channel in channels])
        self.streams = np.array(streams, np.uint64).reshape(len(channels), 2, trials)
        self.num_clients, self.messages, self.target = clients, messages, target
        self.receiver = np.zeros(shape)
        self.memory = np.zeros((len(channels), trials, clients if most else 1, most))
        self.words: WordArray = filled(0, padded_size, dtype=np.uint64)
        self.numbers: FloatArray = empty_lanes(padded_size)
        for c, channel in enumerate(channels):
            self.addresses[c] = setup.hooks.add(channel, "transmit", _transmit, self)


@kernel_part
def _transmit_all(n: int, side: ChannelSide) -> None:
    """Pass messages through all channels, in place."""
    for c in range(side.addresses.size):
        call(side.addresses[c], n, 0, c, side)


def _transmit(method: Method, n: int, k: int, c: int, side: ChannelSide) -> None:
    """Frame of a channel: pass messages through it, in place."""
    stream, draws, memory, num_clients = side.streams[c], side.draws[c], side.memory, side.num_clients
    messages, target, numbers, sent = side.messages, side.target, side.numbers, side.messages.sent
    (trials, most, size), width = sent.shape, target.size + 1
    vectors, places = np.empty((3, size)), np.empty(size, np.int64)
    values, own, out = vectors[0], vectors[1], vectors[2]
    for trial in range(trials if draws else 0):
        for p in range(messages.rows[trial]):
            # The first word is the message's own.
            first = (n * num_clients + np.int64(messages.clients[trial, p])) * width + 1
            for m in range(size):
                word = counter_at(stream, trial, first + entry_at(messages, trial, p, m))
                side.words[(trial * most + p) * size + m] = word
    if draws:
        fill_draws(draws == _NORMALS, side.words, trials * most * size, numbers)
    for trial in range(trials):
        for p in range(messages.rows[trial]):
            is_sent = False
            for m in range(size):
                i, value = entry_at(messages, trial, p, m), sent[trial, p, m]
                is_sent = is_sent or value == value
                places[m] = i
                values[m], own[m] = target[i] - value, target[i] - side.receiver[trial, p, m]
            if not is_sent:
                continue
            client: Any = np.int64(messages.clients[trial, p])
            chance = uniform_at(stream, trial, (n * num_clients + client) * width)
            start = (trial * most + p) * size
            normals = part_of(numbers, start, (size if draws == _NORMALS else 0,))
            uniforms = part_of(numbers, start, (size if draws == _UNIFORMS else 0,))
            message = Transmission(values, own, places, client, n, normals, uniforms, chance)
            method(side.options[c], memory[c, trial, min(client, memory.shape[2] - 1)], message, out)
            for m in range(size):
                sent[trial, p, m] = target[places[m]] - out[m]


class DelaySide(TableData):
    """Uploads on their way, none at first, and those that have arrived; empty without a delay.

    An upload made in iteration n by participant p has number (n mod (R + 1)) · P + p, with R the longest delay.

    Attributes
    ----------
    is_on : bool
        Whether there is a delay.
    by_delay : bool
        Whether uploads of equal delay are averaged separately.
    weight : float
        α.
    longest : int
        R.
    pending : Uploads
        Those on their way, up to (R + 1) · P.
    ages : int array (L, (R + 1) · P)
        Their delays; −1 for none.
    arrived_ages : int array (L, any)
        Delays of the uploads that arrive in an iteration.
    tally : int array (R + 1,)
        Scratch: number of arrivals by delay, 0 between calls.
    """

    def __init__(self, setup: Setup) -> None:
        delay, trials = setup.scenario.delay, len(setup.trials)
        participants, numbers, ring = setup.participants, setup.numbers, 0
        if delay is not None:
            ring = delay.longest_delay() + 1
            if ring * participants * numbers > MOST_PENDING:
                raise NotCoveredError(
                    f'delay.kind = "{delay.kind}": up to {ring * participants * numbers:,} values are on their way at '
                    f"a time; the limit is {MOST_PENDING:,}"
                )
        self.is_on = delay is not None
        self.longest = ring - 1
        self.by_delay = delay is not None and delay.grouping == "by-delay"
        self.weight = 1.0 if delay is None else float(delay.weight)
        self.pending = Uploads(trials, ring * participants, numbers, one_mask=False)
        self.ages: IntArray = np.full((trials, ring * participants), -1)
        self.arrived_ages = np.zeros(setup.uploads.clients.shape, np.int64)
        self.tally = np.zeros(ring, np.int64)


@kernel_part
def _pass_time(n: int, durations: IntArray, side: DelaySide, server: FloatArray, uploads: Uploads) -> None:
    """Send the uploads of iteration n on their way for ``durations`` (L, P); put those that arrive in their place."""
    pending, ages, ring = side.pending, side.ages, side.longest + 1
    clients, entries, sent = uploads.clients, uploads.entries, uploads.sent
    trials, participants = durations.shape
    for trial in range(trials):
        for p in range(participants):
            is_sent, number = p < uploads.rows[trial] and has_arrived(sent[trial, p]), n % ring * participants + p
            ages[trial, number] = durations[trial, p] if is_sent else -1
            if is_sent:
                pending.clients[trial, number] = clients[trial, p]
                copy_array(entries[trial, p], pending.entries[trial, number])
                copy_array(sent[trial, p], pending.sent[trial, number])
        count = 0
        for age in range(ring - 1, -1, -1):  # the oldest first
            first = (n - age) % ring * participants
            for number in range(first, first + participants):
                if ages[trial, number] != age:
                    continue
                factor = side.weight**age
                clients[trial, count], side.arrived_ages[trial, count] = pending.clients[trial, number], age
                for m in range(sent.shape[2]):
                    i, value = pending.entries[trial, number, m], pending.sent[trial, number, m]
                    if factor != 1.0:
                        value = server[trial, i] + factor * (value - server[trial, i])
                    entries[trial, count, m], sent[trial, count, m] = i, value
                count += 1
        uploads.rows[trial] = uploads.asked[trial] = count


@kernel_part
def weigh_by_delay(side: DelaySide, server: FloatArray, uploads: Uploads) -> None:
    """Scale updates by |A_n| / |A_{n,l}|, so that the mean over all arrivals is the sum of the means by delay."""
    tally, ages, entries, sent = side.tally, side.arrived_ages, uploads.entries, uploads.sent
    for trial in range(sent.shape[0]):
        count = uploads.rows[trial]
        for p in range(count):
            tally[ages[trial, p]] += 1
        for p in range(count):
            factor = count / tally[ages[trial, p]]
            for m in range(sent.shape[2]):
                own = server[trial, entries[trial, p, m]]
                sent[trial, p, m] = own + factor * (sent[trial, p, m] - own)
        for p in range(count):
            tally[ages[trial, p]] = 0
