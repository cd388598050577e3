"""The moving target: one call of a drift's method for each iteration and trial."""

from typing import NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.hooks import Body, options_of, run_method
from psofed.engine.normals import fill_standard_normal, normals_at
from psofed.engine.streams import Stream, WordArray
from psofed.engine.tables import Stage
from psofed.parts.base import Drift
from psofed.parts.contexts import Step


class Moves(NamedTuple):
    """Moves of L trials in T iterations (T, D, L), from a position (D, L), and unit vectors (D, L)."""

    options: FloatArray
    stream: WordArray
    direction: FloatArray
    position: FloatArray
    moves: FloatArray


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
        self._drift, self._stream = drift, np.array(stream)
        self._direction = draw_direction(stream, dimension)
        self._position = np.zeros((dimension, stream.key.size))

    def draw(self, first: int, count: int) -> FloatArray:
        """Return w*_n − w*_0 of the next `count` iterations, the first of them `first`; shape (count, D, L)."""
        moves = np.empty((count, *self._position.shape))
        table = Moves(options_of(self._drift), self._stream, self._direction, self._position, moves)
        run_method(self._drift, "move", _make_frame, table, first)
        return moves


def draw_direction(stream: Stream, dimension: int) -> FloatArray:
    """Draw a unit vector for each trial, uniform over the sphere, shape (D, L)."""
    normals = np.empty((2 * ((dimension + 1) // 2), stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, normals)
    vectors = normals[:dimension].astype(np.float64)
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=0))


def _make_frame(unpack: Body, body: Body) -> Stage:
    def frame(first: int, k: int, g: int, table: Moves) -> None:
        self, stream, direction = unpack(table.options), table.stream, table.direction
        position, out = table.position, table.moves
        dimension, trials = position.shape
        half = (dimension + 1) // 2
        normals, before, unit = np.empty(2 * half), np.empty(dimension), np.empty(dimension)
        for t in range(out.shape[0]):
            for trial in range(trials):
                # The first words are the direction's.
                for j in range(half):
                    normals[2 * j], normals[2 * j + 1] = normals_at(stream, trial, (first + t + 1) * half + j)
                for i in range(dimension):
                    before[i] = position[i, trial]
                    unit[i] = direction[i, trial]
                after = body(self, Step(first + t, before, normals[:dimension], unit))
                for i in range(dimension):
                    position[i, trial] = after[i]
                    out[t, i, trial] = after[i]

    return frame
