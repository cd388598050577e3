"""The frame of channels: one call of the body for each message."""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray, IntArray
from psofed.engine.bodies import Body, Frame, Hook, MakeFrame, Unpack, make_hook
from psofed.engine.compiling import compiled
from psofed.engine.hooks import CHANNEL, Uploads, take_channel
from psofed.engine.normals import mix_word, normal_pair, unit_uniform
from psofed.engine.streams import Stream
from psofed.parts.contexts import Transmission
from psofed.parts.network import Channel
from psofed.parts.vectors import part_of


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
    receiver : array (P, M, lanes)
        Scratch: the receiver's own values, as errors.
    numbers, places : arrays (4 · M,) and (M,)
        Scratch of the frame.
    """

    addresses: IntArray
    tokens: IntArray
    ends: IntArray
    options: FloatArray
    keys: NDArray[np.uint64]
    gammas: NDArray[np.uint64]
    receiver: FloatArray
    numbers: FloatArray
    places: IntArray


def make_channels(
    channels: tuple[Channel, ...], streams: list[Stream], participants: int, shared: int, lanes: int
) -> tuple[ChannelSide, tuple[Hook, ...]]:
    """Return the channels of one direction as a kernel takes them, and the hooks they hold."""
    hooks = tuple(make_hook(channel, channel.body(), CHANNEL, _FRAMES[channel.draws]) for channel in channels)
    side = ChannelSide(
        addresses=np.array([hook.address for hook in hooks], np.int64),
        tokens=np.array([hook.token for hook in hooks], np.int64),
        ends=np.cumsum([hook.options.size for hook in hooks], dtype=np.int64),
        options=np.concatenate([np.zeros(0), *(hook.options for hook in hooks)]),
        keys=np.array([stream.key for stream in streams], np.uint64).reshape(len(hooks), lanes),
        gammas=np.array([stream.gamma for stream in streams], np.uint64).reshape(len(hooks), lanes),
        receiver=np.zeros((participants, shared, lanes)),
        numbers=np.zeros(4 * shared),
        places=np.zeros(shared, np.int64),
    )
    return side, hooks


@compiled(allocates=False)
def transmit(side: ChannelSide, n: int, num_clients: int, target: FloatArray, messages: Uploads) -> None:
    """Pass messages through all channels, in place; ``side.receiver`` holds the receivers' errors."""
    first = 0
    for c in range(side.addresses.size):
        last = side.ends[c]
        take_channel(side.addresses[c])(
            side.tokens[c], side.options[first:last], n, num_clients, Stream(side.keys[c], side.gammas[c]), target,
            side.receiver, messages, side.numbers, side.places,
        )  # fmt: skip
        first = last


def _make_frame(unpack: Unpack, body: Body, draws_normals: bool, draws_uniforms: bool) -> Frame:
    def frame(
        token: int,
        options: FloatArray,
        n: int,
        num_clients: int,
        stream: Stream,
        target: FloatArray,
        receiver: FloatArray,
        messages: Uploads,
        numbers: FloatArray,
        places: IntArray,
    ) -> None:
        self = unpack(options)
        clients, entries, sent = messages.clients, messages.entries, messages.sent
        participants, shared, lanes = sent.shape
        values, own = part_of(numbers, 0, (shared,)), part_of(numbers, shared, (shared,))
        out = part_of(numbers, 2 * shared, (shared,))
        normals = part_of(numbers, 3 * shared, (shared if draws_normals else 0,))
        uniforms = part_of(numbers, 3 * shared, (shared if draws_uniforms else 0,))
        for p in range(participants):
            for lane in range(lanes):
                is_sent = False
                for m in range(shared):
                    is_sent = is_sent or not math.isnan(sent[p, m, lane])
                if not is_sent:
                    continue
                client: Any = np.int64(clients[p, lane])
                key, gamma = stream.key[lane], stream.gamma[lane]
                # One word for the message, and one for each entry of the model.
                word = np.uint64((n * num_clients + client) * (target.size + 1))
                for m in range(shared):
                    i = entries[p, m, lane]
                    places[m] = i
                    values[m] = target[i] - sent[p, m, lane]
                    own[m] = target[i] - receiver[p, m, lane]
                    hashed = mix_word(key + (word + np.uint64(i + 1)) * gamma)
                    if draws_normals:
                        x, _ = normal_pair(hashed)
                        normals[m] = x
                    if draws_uniforms:
                        uniforms[m] = unit_uniform(hashed)
                message_uniform = unit_uniform(mix_word(key + word * gamma))
                body(
                    self,
                    Transmission(values, own, places, client, n, normals, uniforms, message_uniform),
                    out,
                )
                for m in range(shared):
                    sent[p, m, lane] = target[places[m]] - out[m]

    return frame


def _frame_normals(unpack: Unpack, body: Body) -> Frame:
    return _make_frame(unpack, body, True, False)


def _frame_uniforms(unpack: Unpack, body: Body) -> Frame:
    return _make_frame(unpack, body, False, True)


def _frame_none(unpack: Unpack, body: Body) -> Frame:
    return _make_frame(unpack, body, False, False)


_FRAMES: dict[str, MakeFrame] = {"normals": _frame_normals, "uniforms": _frame_uniforms, "none": _frame_none}


def draw_channel_numbers(
    stream: Stream, n: int, client: int, num_clients: int, dimension: int
) -> tuple[float, FloatArray, FloatArray]:
    """Return the random numbers of one message of one trial: of the message, normals and uniforms (D,) of entries."""
    words = stream.words((n * num_clients + client) * (dimension + 1), dimension + 1)[:, 0]
    uniforms = np.float64(2.0**-53) * (words >> np.uint64(11)).astype(np.float64)
    normals = np.empty(dimension)
    _fill_normals(words[1:], normals)
    return float(uniforms[0]), normals, uniforms[1:]


@compiled
def _fill_normals(words: NDArray[np.uint64], out: FloatArray) -> None:
    for i in range(out.size):
        x, _ = normal_pair(words[i])
        out[i] = x
