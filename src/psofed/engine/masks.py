"""Masks: which entries clients share. They depend on stream, iteration and client alone.

So the mask that a client uploads with is the one it downloads with next.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.hooks import Body, options_of, run_method
from psofed.engine.normals import half_uniform_at
from psofed.engine.streams import Stream, WordArray
from psofed.engine.tables import Stage
from psofed.parts.contexts import Mask

if TYPE_CHECKING:
    from psofed.scenario import Scenario


class MaskDraws(NamedTuple):
    """Masks (T, L, P or 1, M) of ``clients`` (T, L, P), and scratch for one of them."""

    options: FloatArray
    stream: WordArray
    clients: IndexArray
    num_clients: int
    dimension: int
    coordinated: bool
    uniforms: FloatArray
    chosen: IntArray
    entries: IndexArray


class Masks:
    """Draws the masks of several trials."""

    def __init__(self, scenario: "Scenario", stream: Stream) -> None:
        self._scenario, self._stream = scenario, np.array(stream)

    def draw(self, first: int, count: int, clients: IndexArray) -> IndexArray:
        """Return the entries that ``clients`` (T, L, P) share from iteration `first` on, shape (T, L, P or 1, M).

        One row stands for all clients where masks are coordinated, and where everything is shared. Then T = `count`
        may be more than the iterations that clients are given for.
        """
        scenario, coordinated = self._scenario, self._scenario.selection.coordinated
        pattern, shared, dimension = scenario.selection.pattern, scenario.num_shared, scenario.dimension
        rows = 1 if coordinated or shared == dimension else clients.shape[2]
        out = np.empty((count, clients.shape[1], rows, shared), np.int32)
        if shared == dimension:
            out[:] = np.arange(dimension, dtype=np.int32)
            return out
        table = MaskDraws(
            options_of(pattern), self._stream, clients, scenario.num_clients, dimension, coordinated,
            np.empty(shared), np.zeros(shared, np.int64), out,
        )  # fmt: skip
        run_method(pattern, "select", _make_frame, table, first)
        if not type(pattern).__module__.startswith("psofed."):
            ordered = np.sort(out, axis=3)
            if ordered.min() < 0 or ordered.max() >= dimension or (np.diff(ordered, axis=3) == 0).any():
                raise PsofedError(
                    f'pattern "{pattern.kind}" must choose {shared} distinct entries between 0 and {dimension - 1}'
                )
        return out


def _make_frame(unpack: Body, body: Body) -> Stage:
    def frame(first: int, k: int, g: int, table: MaskDraws) -> None:
        self, stream = unpack(table.options), table.stream
        clients, coordinated = table.clients, table.coordinated
        uniforms, chosen, out, num_clients = table.uniforms, table.chosen, table.entries, table.num_clients
        dimension, (iterations, trials, rows, shared) = table.dimension, out.shape
        for t in range(iterations):
            n = first + t
            for trial in range(trials):
                for p in range(rows):
                    client: Any = 0 if coordinated else np.int64(clients[t, trial, p])
                    number = n if coordinated else n * num_clients + client
                    for m in range(shared):
                        uniforms[m] = half_uniform_at(stream, trial, number * shared + m)
                    own = half_uniform_at(stream, trial, client)
                    body(self, Mask(n, client, dimension, shared, uniforms, own), chosen)
                    for m in range(shared):
                        out[t, trial, p, m] = chosen[m]

    return frame
