"""The frame of availabilities: one call of the body for each client, iteration and trial."""

import math
from typing import Any

import numpy as np

from psofed.common.types import BoolArray, FloatArray
from psofed.engine.bodies import Body, Frame, Unpack, make_function
from psofed.engine.compiling import compiled
from psofed.engine.hooks import AVAILABILITY, take_availability
from psofed.engine.lanes import WIDTH, empty_lanes
from psofed.engine.normals import fill_uniforms
from psofed.engine.streams import Stream
from psofed.parts.contexts import Presence
from psofed.parts.network import Availability
from psofed.parts.part import takes_memory
from psofed.parts.plain import check_size

# Clients whose random numbers are drawn at a time.
_BATCH = 64


class AvailableClients:
    """Which clients are available in several trials, drawn in order.

    Parameters
    ----------
    availability : Availability
        The part.
    shares : array (K,)
        Share of the time that each client is available.
    stream : Stream
        Its randomness, which is nobody else's: data, masks and attack do not depend on who is available.
    memory_size : int
        Values that it keeps for each client.
    """

    def __init__(
        self, availability: Availability, shares: FloatArray, stream: Stream, memory_size: int = 0
    ) -> None:
        check_size(f'availability.kind = "{availability.kind}"', shares.size * memory_size)
        self._stream, self._shares = stream, shares
        words = stream.words(0, shares.size)
        self._client_uniforms = np.float64(2.0**-53) * (words >> np.uint64(11)).astype(np.float64)
        # Who is available, a row per iteration after that of the iteration before; allocated once, as that is slow.
        self._rows = self._allocate(1)
        self._before = self._rows[0]
        self._before[:] = False
        self._memory = np.zeros((stream.key.size, shares.size, memory_size))
        self._uniforms = empty_lanes(min(shares.size, _BATCH), stream.key.size)
        self._fill = make_function(availability, "is_available", AVAILABILITY, _make_frame, _call)

    def draw(self, first: int, count: int) -> BoolArray:
        """Return who is available in the next `count` iterations, the first of them `first`; shape (T, K, lanes).

        The next call may write into the same array.
        """
        if len(self._rows) <= count:
            self._rows = self._allocate(count + 1)
        out = self._rows[: count + 1]
        out[0] = self._before
        self._fill(
            first, self._stream, self._shares, self._client_uniforms, self._memory, self._uniforms, out
        )
        self._before = out[-1]
        return out[1:]

    def _allocate(self, rows: int) -> BoolArray:
        """Allocate that many rows; kernels read whole vectors, also behind the last client."""
        shape = (rows, self._shares.size, self._stream.key.size)
        size = math.prod(shape)
        return np.empty(size + WIDTH, np.bool_)[:size].reshape(shape)


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    has_memory = takes_memory(body)

    def frame(
        token: int,
        options: FloatArray,
        first: int,
        stream: Stream,
        shares: FloatArray,
        client_uniforms: FloatArray,
        memory: FloatArray,
        uniforms: FloatArray,
        out: BoolArray,
    ) -> None:
        self = unpack(options)
        rows, num_clients, lanes = out.shape
        for t in range(1, rows):
            n = first + t - 1
            for start in range(0, num_clients, _BATCH):
                count = min(_BATCH, num_clients - start)
                # The first K words are drawn once per client.
                fill_uniforms(stream.key, stream.gamma, (n + 1) * num_clients + start, count, uniforms)
                for j in range(count):
                    k = start + j
                    for lane in range(lanes):
                        presence = Presence(
                            n, k, num_clients, shares[k], uniforms[j, lane], client_uniforms[k, lane],
                            out[t - 1, k, lane],
                        )  # fmt: skip
                        if has_memory:
                            out[t, k, lane] = bool(body(self, presence, memory[lane, k]))
                        else:
                            out[t, k, lane] = bool(body(self, presence))

    return frame


@compiled(allocates=False)
def _call(address: int, *arguments: Any) -> None:
    take_availability(address)(0, *arguments)
