"""The frame of selection patterns: one call of the body for each mask.

Masks depend on stream, iteration and client alone, so the mask a client uploads with is the very one it downloads with
next.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray, IndexArray, IntArray
from psofed.engine.bodies import Body, Frame, Unpack, make_function
from psofed.engine.compiling import compiled
from psofed.engine.hooks import SELECTION, take_selection
from psofed.engine.normals import half_uniform_at
from psofed.engine.streams import Stream
from psofed.parts.base import Pattern
from psofed.parts.contexts import Mask


class Selector:
    """Draws masks for several trials.

    Parameters
    ----------
    pattern : Pattern
        How masks are chosen.
    coordinated : bool
        One mask for all clients, or one for each.
    stream : Stream
        Randomness of the masks.
    num_clients, dimension, num_shared : int
        K, D and M.
    """

    def __init__(
        self,
        pattern: Pattern,
        coordinated: bool,
        stream: Stream,
        num_clients: int,
        dimension: int,
        num_shared: int,
    ) -> None:
        self._pattern, self._stream = pattern, stream
        self._sizes = (num_clients, dimension, coordinated)
        self._dimension, self._num_shared = dimension, num_shared
        self._scratch = (
            np.empty((num_shared, stream.key.size)), np.empty(num_shared), np.empty(num_shared, np.int64),
        )  # fmt: skip
        self._checked = type(pattern).__module__.startswith("psofed.")
        self._select = make_function(pattern, "select", SELECTION, _make_frame, _call)

    def draw(self, first: int, count: int, clients: IndexArray) -> IndexArray:
        """Return the entries that ``clients[t, p, lane]`` share in iteration ``first + t``, shape (T, P, M, lanes).

        Where one mask is for all, T = `count` may be more than the iterations that clients are given for.
        """
        _, participants, lanes = clients.shape
        out = np.empty((count, participants, self._num_shared, lanes), np.int32)
        if self._num_shared == self._dimension:
            out[:] = np.arange(self._dimension, dtype=np.int32)[:, None]
            return out
        self._select(first, self._stream, clients, *self._sizes, *self._scratch, out)
        if not self._checked:
            self._check(out)
        return out

    def _check(self, out: NDArray[Any]) -> None:
        ordered = np.sort(out, axis=2)
        if out.min() < 0 or out.max() >= self._dimension or (np.diff(ordered, axis=2) == 0).any():
            raise PsofedError(
                f'pattern "{self._pattern.kind}" must choose {self._num_shared} distinct entries '
                f"between 0 and {self._dimension - 1}"
            )


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int,
        options: FloatArray,
        first: int,
        stream: Stream,
        clients: IndexArray,
        num_clients: int,
        dimension: int,
        coordinated: bool,
        drawn: FloatArray,
        uniforms: FloatArray,
        chosen: IntArray,
        out: IndexArray,
    ) -> None:
        self = unpack(options)
        iterations, participants, shared, lanes = out.shape
        for m in range(shared):
            chosen[m] = 0
        for t in range(iterations):
            n = first + t
            for p in range(1 if coordinated else participants):
                for m in range(shared):
                    for lane in range(lanes):
                        number: Any = n if coordinated else n * num_clients + np.int64(clients[t, p, lane])
                        place = number * shared + m
                        drawn[m, lane] = half_uniform_at(stream.key[lane], stream.gamma[lane], place)
                for lane in range(lanes):
                    client: Any = 0 if coordinated else np.int64(clients[t, p, lane])
                    own = half_uniform_at(stream.key[lane], stream.gamma[lane], client)
                    for m in range(shared):
                        uniforms[m] = drawn[m, lane]
                    body(self, Mask(n, client, dimension, shared, uniforms, own), chosen)
                    for m in range(shared):
                        out[t, p, m, lane] = chosen[m]
            if coordinated:
                for p in range(1, participants):
                    for m in range(shared):
                        for lane in range(lanes):
                            out[t, p, m, lane] = out[t, 0, m, lane]

    return frame


@compiled(allocates=False)
def _call(address: int, *arguments: Any) -> None:
    take_selection(address)(0, *arguments)
