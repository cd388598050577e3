"""The frame of drifts: one call of the body for each iteration and trial."""

from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.bodies import Body, Frame, Unpack, make_function
from psofed.engine.compiling import compiled
from psofed.engine.hooks import DRIFT, take_drift
from psofed.engine.normals import fill_standard_normal, normals_at
from psofed.engine.streams import Stream
from psofed.parts.base import Drift
from psofed.parts.contexts import Step


class TargetMoves:
    """The moves w*_n − w*_0 of several trials, drawn in order.

    Parameters
    ----------
    drift : Drift
        How the target moves.
    dimension : int
        D.
    stream : Stream
        Its randomness, which is nobody else's: a drift never changes data, participants, masks or attack.
    """

    def __init__(self, drift: Drift, dimension: int, stream: Stream) -> None:
        self._stream = stream
        self._direction = draw_direction(stream, dimension)
        self._position = np.zeros((dimension, stream.key.size))
        self._move = make_function(drift, "move", DRIFT, _make_frame, _call)

    def draw(self, first: int, count: int) -> FloatArray:
        """Return w*_n − w*_0 of the next `count` iterations, the first of them `first`; shape (count, D, lanes)."""
        out = np.empty((count, *self._position.shape))
        self._move(first, self._stream, self._direction, self._position, out)
        return out


def draw_direction(stream: Stream, dimension: int) -> FloatArray:
    """Draw a unit vector for each trial, uniform over the sphere, shape (D, lanes)."""
    normals = np.empty((2 * ((dimension + 1) // 2), stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, normals)
    vectors = normals[:dimension].astype(np.float64)
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=0))


def _make_frame(unpack: Unpack, body: Body) -> Frame:
    def frame(
        token: int,
        options: FloatArray,
        first: int,
        stream: Stream,
        direction: FloatArray,
        position: FloatArray,
        out: FloatArray,
    ) -> None:
        self = unpack(options)
        dimension, lanes = position.shape
        half = (dimension + 1) // 2
        normals, before, unit = np.empty(2 * half), np.empty(dimension), np.empty(dimension)
        for t in range(out.shape[0]):
            for lane in range(lanes):
                # The first words are the direction's.
                for j in range(half):
                    x, y = normals_at(stream.key[lane], stream.gamma[lane], (first + t + 1) * half + j)
                    normals[2 * j] = x
                    normals[2 * j + 1] = y
                for i in range(dimension):
                    before[i] = position[i, lane]
                    unit[i] = direction[i, lane]
                after = body(self, Step(first + t, before, normals[:dimension], unit))
                for i in range(dimension):
                    position[i, lane] = after[i]
                    out[t, i, lane] = after[i]

    return frame


@compiled
def _call(address: int, *arguments: Any) -> None:
    take_drift(address)(0, *arguments)
