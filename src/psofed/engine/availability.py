"""Which clients are available."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from psofed.common.types import BoolArray, FloatArray
from psofed.engine.compiling import kernel_part
from psofed.engine.hooks import Body, options_of, run_method
from psofed.engine.lanes import WIDTH, empty_lanes, load, store
from psofed.engine.normals import mix_word, unit_uniform
from psofed.engine.step import WordSource, make_source
from psofed.engine.streams import Stream
from psofed.engine.tables import Stage
from psofed.parts.contexts import Presence
from psofed.parts.network import Availability
from psofed.parts.part import takes_memory
from psofed.parts.plain import check_size

if TYPE_CHECKING:
    from psofed.engine.state import Layout


class Presences(NamedTuple):
    """Who is available in T iterations.

    Attributes
    ----------
    options : array (any,)
        Of the availability.
    source : WordSource
        Where a column's random number is, one for each iteration.
    shares, client_uniforms : arrays (K,), (L, K)
        Share of the time that each client is available, and a uniform number that it keeps.
    memory : array (L, K, any)
        What the availability remembers of each client.
    shift, mask : int
        Where columns stand.
    present : bool array (T + 1, V, 16)
        Who is available: in the iteration before, and in those that are drawn.
    uniforms : array (16,)
        Scratch: random numbers of a vector.
    """

    options: FloatArray
    source: WordSource
    shares: FloatArray
    client_uniforms: FloatArray
    memory: FloatArray
    shift: int
    mask: int
    present: BoolArray
    uniforms: FloatArray


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
    layout : Layout
        Where columns stand.
    memory_size : int
        Values that it keeps for each client.
    """

    def __init__(
        self, availability: Availability, shares: FloatArray, stream: Stream, layout: "Layout", memory_size: int = 0
    ) -> None:
        check_size(f'availability.kind = "{availability.kind}"', shares.size * memory_size)
        words = stream.words(0, shares.size).T
        uniforms = np.float64(2.0**-53) * (words >> np.uint64(11)).astype(np.float64)
        self._availability = availability
        self._drawn = Presences(
            options_of(availability), make_source(stream, layout, 1), shares, np.ascontiguousarray(uniforms),
            np.zeros((stream.key.size, shares.size, memory_size)), layout.shift, layout.mask,
            np.zeros((1, layout.vectors, WIDTH), np.bool_), empty_lanes(WIDTH),
        )  # fmt: skip

    def draw(self, first: int, count: int) -> BoolArray:
        """Return who is available in the next `count` iterations, the first of them `first`; shape (T, V, 16)."""
        before = self._drawn.present[-1]
        present = empty_lanes(count + 1, *before.shape, dtype=np.bool_)
        present[:] = False
        present[0] = before
        self._drawn = self._drawn._replace(present=present)
        run_method(self._availability, "is_available", _make_frame, self._drawn, first)
        drawn: BoolArray = present[1:]
        return drawn


@kernel_part
def _fill_uniforms(source: WordSource, n: int, v: int, out: FloatArray) -> None:
    """Write a uniform number for each column of a vector in iteration n."""
    word = load(source.origin, 0) + np.uint64(n) * load(source.stride, 0) + np.uint64(v) * load(source.hop, 0)
    store(out, 0, unit_uniform(mix_word(word)))


def _make_frame(unpack: Body, body: Body) -> Stage:
    has_memory = takes_memory(body)

    def frame(first: int, k: int, g: int, table: Presences) -> None:
        self, source, shares, own = unpack(table.options), table.source, table.shares, table.client_uniforms
        memory, shift, mask, out, uniforms = (table.memory, table.shift, table.mask, table.present, table.uniforms)
        trials, num_clients = own.shape
        for t in range(1, out.shape[0]):
            n = first + t - 1
            for v in range(out.shape[1]):
                # The first K words are drawn once per client.
                _fill_uniforms(source, n + 1, v, uniforms)
                for lane in range(uniforms.size if mask else trials):
                    client, trial = (v << shift) + (lane & mask), lane if mask == 0 else 0
                    if client >= num_clients:
                        continue
                    presence = Presence(
                        n, client, num_clients, shares[client], uniforms[lane], own[trial, client],
                        out[t - 1, v, lane],
                    )  # fmt: skip
                    if has_memory:
                        out[t, v, lane] = bool(body(self, presence, memory[trial, client]))
                    else:
                        out[t, v, lane] = bool(body(self, presence))

    return frame
