"""The frame of channels: one call of the body for each message."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IntArray
from psofed.engine.bodies import Body, Frame, Hook, Unpack, make_hook, reads_field
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import CHANNEL, Uploads, take_channel
from psofed.engine.lanes import WIDTH, empty_lanes, load, store, to_float64
from psofed.engine.normals import mix_word, normal_pair, unit_uniform, unit_uniform_at
from psofed.engine.streams import Stream
from psofed.parts.contexts import Transmission
from psofed.parts.network import Channel
from psofed.parts.part import takes_memory
from psofed.parts.vectors import part_of

# What a channel may draw for every value.
_DRAWS = ("none", "normals", "uniforms")
_NORMALS, _UNIFORMS = 1, 2


class ChannelSide(NamedTuple):
    """The channels of one direction, in series.

    Attributes
    ----------
    addresses, tokens : int array (C,)
        Their hooks.
    ends : int array (C,)
        Where the options of each end in `options`.
    options : array (any,)
        All options.
    keys, gammas : arrays (C, lanes)
        The stream of each.
    draws : int array (C,)
        What each draws for every value, by its place in _DRAWS.
    receiver : array (P, M, lanes)
        Scratch: the receiver's own values, as errors; P = 0 if no channel reads them.
    words, drawn : arrays (lanes,) and (P, M, lanes)
        Scratch: words to be hashed, and the random numbers of all values.
    numbers, places : arrays (4 · M,) and (M,)
        Scratch of the frame.
    memory, memory_ends : arrays (any,) and (C,)
        What each keeps, lanes · K · its memory size, and where it ends.
    """

    addresses: IntArray
    tokens: IntArray
    ends: IntArray
    options: FloatArray
    keys: NDArray[np.uint64]
    gammas: NDArray[np.uint64]
    draws: IntArray
    receiver: FloatArray
    words: NDArray[np.uint64]
    drawn: FloatArray
    numbers: FloatArray
    places: IntArray
    memory: FloatArray
    memory_ends: IntArray


def make_channels(
    channels: tuple[Channel, ...],
    streams: list[Stream],
    participants: int,
    shared: int,
    lanes: int,
    memory: list[int],
) -> tuple[ChannelSide, tuple[Hook, ...]]:
    """Return the channels of one direction as a kernel takes them, and the hooks they hold.

    `memory` has the number of values that each keeps for all clients of a trial.
    """
    frame = _frame_of_one if shared == 1 else _frame_of_many
    reads_receiver = any(_reads_receiver(getattr(type(channel), channel.body())) for channel in channels)
    hooks = tuple(make_hook(channel, channel.body(), CHANNEL, frame) for channel in channels)
    side = ChannelSide(
        addresses=np.array([hook.address for hook in hooks], np.int64),
        tokens=np.array([hook.token for hook in hooks], np.int64),
        ends=np.cumsum([hook.options.size for hook in hooks], dtype=np.int64),
        options=np.concatenate([np.zeros(0), *(hook.options for hook in hooks)]),
        keys=np.array([stream.key for stream in streams], np.uint64).reshape(len(hooks), lanes),
        gammas=np.array([stream.gamma for stream in streams], np.uint64).reshape(len(hooks), lanes),
        draws=np.array([_DRAWS.index(channel.draws) for channel in channels], np.int64),
        receiver=np.zeros((participants if reads_receiver else 0, shared, lanes)),
        words=empty_lanes(lanes, dtype=np.uint64),
        drawn=np.zeros((participants, shared, lanes)),
        numbers=np.zeros(4 * shared),
        places=np.zeros(shared, np.int64),
        memory=np.zeros(lanes * sum(memory)),
        memory_ends=lanes * np.cumsum(memory, dtype=np.int64),
    )
    return side, hooks


@kernel_part
def transmit(side: ChannelSide, n: int, num_clients: int, target: FloatArray, messages: Uploads) -> None:
    """Pass messages through all channels, in place; ``side.receiver`` holds the receivers' errors."""
    first = kept = 0
    for c in range(side.addresses.size):
        last = side.ends[c]
        if side.draws[c]:
            _draw(side, c, n * num_clients, target.size, messages)
        take_channel(side.addresses[c])(
            side.tokens[c], side.options[first:last], n, num_clients, Stream(side.keys[c], side.gammas[c]), target,
            side.receiver, messages, side.draws[c], side.drawn, side.numbers, side.places,
            side.memory[kept : side.memory_ends[c]],
        )  # fmt: skip
        first, kept = last, side.memory_ends[c]


@kernel_part
def _draw(side: ChannelSide, c: int, before: int, dimension: int, messages: Uploads) -> None:
    """Draw the random numbers of all values; `before` is the number of messages in earlier iterations."""
    key, gamma, words = side.keys[c], side.gammas[c], side.words
    participants, shared, lanes = messages.sent.shape
    for p in range(participants):
        for m in range(shared):
            # The first word is the message's own.
            for lane in range(lanes):
                word = (
                    (before + messages.clients[p, lane]) * (dimension + 1) + messages.entries[p, m, lane] + 1
                )
                words[lane] = key[lane] + np.uint64(word) * gamma[lane]
            _fill(side.draws[c] == _NORMALS, words, side.drawn, p * shared + m)


@kernel_part
def _fill(is_normal: bool, words: NDArray[np.uint64], out: FloatArray, row: int) -> None:
    """Fill a row of lanes with one random number from each word."""
    lanes = words.size
    whole = lanes - lanes % WIDTH
    flat = out.reshape(-1)
    for lane in range(0, whole, WIDTH):
        word = mix_word(load(words, lane))
        if is_normal:
            x, _ = normal_pair(word)
            store(out, row * lanes + lane, to_float64(x))
        else:
            store(out, row * lanes + lane, unit_uniform(word))
    for lane in range(whole, lanes):
        single = mix_word(words[lane])
        if is_normal:
            y, _ = normal_pair(single)
            flat[row * lanes + lane] = y
        else:
            flat[row * lanes + lane] = unit_uniform(single)


def _make_frame(unpack: Unpack, body: Body, of_one: bool) -> Frame:
    has_memory, reads_receiver = takes_memory(body), _reads_receiver(body)

    def frame(
        token: int,
        options: FloatArray,
        n: int,
        num_clients: int,
        stream: Stream,
        target: FloatArray,
        receiver: FloatArray,
        messages: Uploads,
        draws: int,
        drawn: FloatArray,
        numbers: FloatArray,
        places: IntArray,
        memory: FloatArray,
    ) -> None:
        self = unpack(options)
        clients, entries, sent = messages.clients, messages.entries, messages.sent
        participants, shared, lanes = sent.shape
        size = 1 if of_one else shared
        values, own, where = (
            part_of(numbers, 0, (size,)),
            part_of(numbers, size, (size,)),
            part_of(places, 0, (size,)),
        )
        out, random = part_of(numbers, 2 * size, (size,)), part_of(numbers, 3 * size, (size,))
        normals = part_of(numbers, 3 * size, (size if draws == _NORMALS else 0,))
        uniforms = part_of(numbers, 3 * size, (size if draws == _UNIFORMS else 0,))
        for p in range(participants):
            for lane in range(lanes):
                is_sent = False
                for m in range(size):
                    i, value = entries[p, m, lane], sent[p, m, lane]
                    is_sent = is_sent or not math.isnan(value)
                    where[m], values[m] = i, target[i] - value
                    if reads_receiver:
                        own[m] = target[i] - receiver[p, m, lane]
                    random[m] = drawn[p, m, lane]
                if not is_sent:
                    continue
                client: Any = np.int64(clients[p, lane])
                word = (n * num_clients + client) * (target.size + 1)
                chance = unit_uniform_at(stream.key[lane], stream.gamma[lane], word)
                message = Transmission(values, own, where, client, n, normals, uniforms, chance)
                if has_memory:
                    kept = memory.size // (lanes * num_clients)
                    body(self, message, part_of(memory, (lane * num_clients + client) * kept, (kept,)), out)
                else:
                    body(self, message, out)
                for m in range(size):
                    sent[p, m, lane] = target[entries[p, m, lane]] - out[m]

    return frame


def _reads_receiver(body: Body) -> bool:
    return reads_field(body, "receiver")


def _frame_of_one(unpack: Unpack, body: Body) -> Frame:
    """Return the frame for messages of one value, compiled without loops over values."""
    return _make_frame(unpack, body, True)


def _frame_of_many(unpack: Unpack, body: Body) -> Frame:
    return _make_frame(unpack, body, False)
