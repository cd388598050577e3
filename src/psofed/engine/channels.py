"""Channels: what links do to messages, one call of a channel's method for each message."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Body, options_of, padded
from psofed.engine.lanes import WIDTH, empty_lanes, filled
from psofed.engine.normals import counter_at, fill_draws, uniform_at
from psofed.engine.streams import WordArray
from psofed.engine.tables import Stage, call, fields
from psofed.engine.uploads import Uploads
from psofed.parts.contexts import Transmission
from psofed.parts.network import Channel
from psofed.parts.part import takes_memory
from psofed.parts.plain import check_size
from psofed.parts.vectors import part_of

if TYPE_CHECKING:
    from psofed.engine.state import Setup

# What a channel may draw for every value.
_DRAWS = ("none", "normals", "uniforms")
_NORMALS, _UNIFORMS = 1, 2


class ChannelSide(NamedTuple):
    """The channels of one direction, in series.

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
    memory : array (C, L, K, any)
        What each keeps of every client.
    words, numbers, places : arrays (any,), (any,) and (M,)
        Scratch.
    """

    addresses: IntArray
    draws: IntArray
    options: FloatArray
    streams: NDArray[np.uint64]
    num_clients: int
    messages: Uploads
    target: FloatArray
    receiver: FloatArray
    memory: FloatArray
    words: WordArray
    numbers: FloatArray
    places: IntArray


def make_channels(setup: "Setup", direction: str, messages: Uploads, target: FloatArray) -> ChannelSide:
    """Return the channels of one direction, "up" or "down"."""
    links, clients, trials = setup.scenario.channel, setup.scenario.num_clients, len(setup.trials)
    channels: tuple[Channel, ...] = () if links is None else getattr(links, direction)
    entries = setup.scenario.dimension if setup.scenario.algorithm.holds_models else setup.numbers
    kept = [channel.memory_size(entries) for channel in channels]
    check_size(f"channel.{direction}", clients * sum(kept))
    streams = [np.array(setup.stream(f"channel_{direction}", place)) for place in range(len(channels))]
    shape = messages.sent.shape if channels else (trials, 0, 0)
    padded_size, most = -(-math.prod(shape) // WIDTH) * WIDTH, max(kept, default=0)
    side = ChannelSide(
        addresses=np.zeros(len(channels), np.int64),
        draws=np.array([_DRAWS.index(channel.draws) for channel in channels], np.int64),
        options=padded([options_of(channel) for channel in channels]),
        streams=np.array(streams, np.uint64).reshape(len(channels), 2, trials),
        num_clients=clients,
        messages=messages,
        target=target,
        receiver=np.zeros(shape),
        memory=np.zeros((len(channels), trials, clients if most else 0, most)),
        words=filled(0, padded_size, dtype=np.uint64),
        numbers=empty_lanes(padded_size + 3 * shape[2]),
        places=np.zeros(shape[2], np.int64),
    )
    for c, channel in enumerate(channels):
        side.addresses[c] = setup.hooks.add(channel, "transmit", _make_frame, side)
    return side


@kernel_part
def transmit(n: int, side: ChannelSide) -> None:
    """Pass messages through all channels, in place."""
    for c in range(side.addresses.size):
        call(side.addresses[c], n, 0, c, side)


def _make_frame(unpack: Body, body: Body) -> Stage:
    has_memory = takes_memory(body)

    def frame(n: int, k: int, c: int, side: ChannelSide) -> None:
        self, stream, draws = unpack(side.options[c]), side.streams[c], side.draws[c]
        target, receiver, memory, words, numbers, places = fields(side)[6:]
        clients, entries, sent, rows, _ = fields(side.messages)
        (trials, most, size), num_clients = sent.shape, side.num_clients
        width, padded_size = target.size + 1, numbers.size - 3 * size
        values, own = part_of(numbers, padded_size, (size,)), part_of(numbers, padded_size + size, (size,))
        out = part_of(numbers, padded_size + 2 * size, (size,))
        for trial in range(trials if draws else 0):
            for p in range(rows[trial]):
                # The first word is the message's own.
                first = (n * num_clients + np.int64(clients[trial, p])) * width + 1
                for m in range(size):
                    i = entries[trial, p if entries.shape[1] > 1 else 0, m]
                    words[(trial * most + p) * size + m] = counter_at(stream, trial, first + i)
        if draws:
            fill_draws(draws == _NORMALS, words, trials * most * size, numbers)
        for trial in range(trials):
            for p in range(rows[trial]):
                is_sent = False
                for m in range(size):
                    i, value = entries[trial, p if entries.shape[1] > 1 else 0, m], sent[trial, p, m]
                    is_sent = is_sent or value == value
                    places[m] = i
                    values[m], own[m] = target[i] - value, target[i] - receiver[trial, p, m]
                if not is_sent:
                    continue
                client: Any = np.int64(clients[trial, p])
                chance = uniform_at(stream, trial, (n * num_clients + client) * width)
                start = (trial * most + p) * size
                normals = part_of(numbers, start, (size if draws == _NORMALS else 0,))
                uniforms = part_of(numbers, start, (size if draws == _UNIFORMS else 0,))
                message = Transmission(values, own, places, client, n, normals, uniforms, chance)
                if has_memory:
                    body(self, message, memory[c, trial, client], out)
                else:
                    body(self, message, out)
                for m in range(size):
                    sent[trial, p, m] = target[places[m]] - out[m]

    return frame
