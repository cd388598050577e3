"""Jump: at one iteration w* moves by a vector of given length in a random direction, and stays there."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.streams import Stream
from psofed.scenario.drift import Drift, draw_direction

FIELDS = ("size", "at")


def start(drift: Drift, dimension: int, stream: Stream) -> FloatArray:
    """Return the jump itself, drawn once per trial, shape (D, lanes)."""
    assert drift.size is not None
    return drift.size * draw_direction(stream, dimension)


def draw_moves(drift: Drift, stream: Stream, first: int, state: FloatArray, out: FloatArray) -> None:
    """Fill ``out`` (T, D, lanes) with 0 before iteration `at` and the jump from then on."""
    assert drift.at is not None
    after = np.arange(first, first + len(out)) >= drift.at
    out[:] = after[:, None, None] * state
