"""Channels: what links do to messages, one call of a channel's method for each message."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IntArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Body, Frame, Hook, make_hook
from psofed.engine.lanes import WIDTH, empty_lanes
from psofed.engine.normals import counter_at, fill_draws, uniform_at
from psofed.engine.signatures import CHANNEL, Uploads, take_channel
from psofed.engine.streams import WordArray, make_stream
from psofed.parts.contexts import Transmission
from psofed.parts.network import Channel
from psofed.parts.part import takes_memory
from psofed.parts.plain import check_size
from psofed.parts.vectors import part_of

# What a channel may draw for every value.
_DRAWS = ("none", "normals", "uniforms")
_NORMALS, _UNIFORMS = 1, 2


class ChannelSide(NamedTuple):
    """The channels of one direction, in series.

    Attributes
    ----------
    addresses, draws : int array (C,)
        Their hooks, and what each draws for every value, by its place in _DRAWS.
    options : array (C, any)
        Their options.
    streams : array (C, 2, L)
        Their randomness.
    receiver : array (L, P, M)
        The receivers' own values, as errors, for the caller to fill in.
    memory : array (C, L, K, any)
        What each keeps of every client.
    words, numbers, places : arrays (any,), (any,) and (M,)
        Scratch.
    """

    addresses: IntArray
    draws: IntArray
    options: FloatArray
    streams: NDArray[np.uint64]
    receiver: FloatArray
    memory: FloatArray
    words: WordArray
    numbers: FloatArray
    places: IntArray


def make_channels(
    channels: tuple[Channel, ...],
    source: str,
    seed: int,
    trials: range,
    sizes: tuple[int, int],
    entries: int,
    num_clients: int,
) -> tuple[ChannelSide, tuple[Hook, ...]]:
    """Return the channels of one direction, and their hooks; `sizes` are P and M of a message, `entries` of a model."""
    kept = [channel.memory_size(entries) for channel in channels]
    check_size(f"channel.{source.removeprefix('channel_')}", num_clients * sum(kept))
    hooks = tuple(make_hook(channel, "transmit", CHANNEL, _make_frame) for channel in channels)
    options = np.zeros((len(hooks), max((hook.options.size for hook in hooks), default=0)))
    for row, hook in zip(options, hooks, strict=True):
        row[: hook.options.size] = hook.options
    streams = [np.array(make_stream(seed, source, trials, place)) for place in range(len(channels))]
    participants, shared = sizes if channels else (0, 0)
    padded = -(-participants * shared // WIDTH) * WIDTH
    most = max(kept, default=0)
    side = ChannelSide(
        addresses=np.array([hook.address for hook in hooks], np.int64),
        draws=np.array([_DRAWS.index(channel.draws) for channel in channels], np.int64),
        options=options,
        streams=np.array(streams, np.uint64).reshape(len(hooks), 2, len(trials)),
        receiver=np.zeros((len(trials), participants, shared)),
        memory=np.zeros((len(hooks), len(trials), num_clients if most else 0, most)),
        words=empty_lanes(padded, dtype=np.uint64),
        numbers=empty_lanes(padded + 3 * shared),
        places=np.zeros(shared, np.int64),
    )
    return side, hooks


@kernel_part
def transmit(side: ChannelSide, n: int, num_clients: int, target: FloatArray, messages: Uploads) -> None:
    """Pass messages through all channels, in place; ``side.receiver`` holds the receivers' errors."""
    for c in range(side.addresses.size):
        take_channel(side.addresses[c])(
            side.options[c], n, num_clients, side.streams[c], side.draws[c], target, side.receiver, messages,
            side.memory[c], side.words, side.numbers, side.places,
        )  # fmt: skip


def _make_frame(unpack: Body, body: Body) -> Frame:
    has_memory = takes_memory(body)

    def frame(
        options: FloatArray, n: int, num_clients: int, stream: WordArray, draws: int, target: FloatArray,
        receiver: FloatArray, messages: Uploads, memory: FloatArray, words: WordArray, numbers: FloatArray,
        places: IntArray,
    ) -> None:  # fmt: skip
        self = unpack(options)
        clients, entries, sent, rows = messages.clients, messages.entries, messages.sent, messages.rows
        trials, _, size = sent.shape
        width, padded = target.size + 1, numbers.size - 3 * size
        values, own = part_of(numbers, padded, (size,)), part_of(numbers, padded + size, (size,))
        out = part_of(numbers, padded + 2 * size, (size,))
        for trial in range(trials):
            participants = rows[trial]
            if draws:
                for p in range(participants):
                    # The first word is the message's own.
                    first = (n * num_clients + np.int64(clients[trial, p])) * width + 1
                    for m in range(size):
                        i = entries[trial, p if entries.shape[1] > 1 else 0, m]
                        words[p * size + m] = counter_at(stream, trial, first + i)
                fill_draws(draws == _NORMALS, words, participants * size, numbers)
            for p in range(participants):
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
                normals = part_of(numbers, p * size, (size if draws == _NORMALS else 0,))
                uniforms = part_of(numbers, p * size, (size if draws == _UNIFORMS else 0,))
                message = Transmission(values, own, places, client, n, normals, uniforms, chance)
                if has_memory:
                    body(self, message, memory[trial, client], out)
                else:
                    body(self, message, out)
                for m in range(size):
                    sent[trial, p, m] = target[places[m]] - out[m]

    return frame
