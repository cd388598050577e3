"""The frame of availabilities: one call of the body for each client, iteration and trial."""

import numpy as np

from psofed.common.types import BoolArray, FloatArray
from psofed.engine.bodies import Body, Frame, Unpack, make_function
from psofed.engine.compiling import compiled
from psofed.engine.hooks import AVAILABILITY, take_availability
from psofed.engine.lanes import WIDTH
from psofed.engine.normals import fill_uniforms
from psofed.engine.streams import Stream
from psofed.parts.contexts import Presence
from psofed.parts.network import Availability

# Clients whose random numbers are drawn at a time.
_BATCH = 64


class Attendance:
    """Which clients are available in several trials, drawn in order.

    Parameters
    ----------
    availability : Availability
        The part.
    shares : array (K,)
        Share of the time that each client is available.
    stream : Stream
        Its randomness, which is nobody else's: data, masks and attack do not depend on who is available.
    """

    def __init__(self, availability: Availability, shares: FloatArray, stream: Stream) -> None:
        self._stream, self._shares = stream, shares
        words = stream.words(0, shares.size)
        self._client_uniforms = np.float64(2.0**-53) * (words >> np.uint64(11)).astype(np.float64)
        self._state = np.zeros((shares.size, stream.key.size), np.bool_)
        self._fill = make_function(availability, "is_available", AVAILABILITY, _make_frame, _call)

    def draw(self, first: int, count: int) -> BoolArray:
        """Return who is available in the next `count` iterations, the first of them `first`; shape (T, K, lanes)."""
        # Kernels read whole vectors, also behind the last client.
        size = count * self._state.size
        out = np.empty(size + WIDTH, np.bool_)[:size].reshape(count, *self._state.shape)
        self._fill(first, self._stream, self._shares, self._client_uniforms, self._state, out)
        return out


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int,
        options: FloatArray,
        first: int,
        stream: Stream,
        shares: FloatArray,
        client_uniforms: FloatArray,
        state: BoolArray,
        out: BoolArray,
    ) -> None:
        self = unpack(options)
        iterations, num_clients, lanes = out.shape
        batch = min(num_clients, _BATCH)
        uniforms = np.empty((batch, lanes))
        for t in range(iterations):
            n = first + t
            for k in range(num_clients):
                if k % batch == 0:
                    # The first K words are drawn once per client.
                    word = (n + 1) * num_clients + k
                    fill_uniforms(stream.key, stream.gamma, word, min(batch, num_clients - k), uniforms)
                drawn, before = uniforms[k % batch], state[k] if t == 0 else out[t - 1, k]
                for lane in range(lanes):
                    presence = Presence(
                        n, k, num_clients, shares[k], drawn[lane], client_uniforms[k, lane], before[lane]
                    )
                    out[t, k, lane] = bool(body(self, presence))
        for k in range(num_clients):
            for lane in range(lanes):
                state[k, lane] = out[iterations - 1, k, lane]

    return frame


@compiled
def _call(
    address: int,
    options: FloatArray,
    first: int,
    stream: Stream,
    shares: FloatArray,
    client_uniforms: FloatArray,
    state: BoolArray,
    out: BoolArray,
) -> None:
    take_availability(address)(0, options, first, stream, shares, client_uniforms, state, out)
