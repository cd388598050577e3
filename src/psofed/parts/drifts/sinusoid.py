"""Sinusoid: w*_n = w*_0 + A sin(2πn/T) u with a random unit vector u, drawn once per trial."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.streams import Stream
from psofed.scenario.drift import Drift, draw_direction

FIELDS = ("amplitude", "period")


def start(drift: Drift, dimension: int, stream: Stream) -> FloatArray:
    """Return A u, shape (D, lanes)."""
    assert drift.amplitude is not None
    return drift.amplitude * draw_direction(stream, dimension)


def draw_moves(drift: Drift, stream: Stream, first: int, state: FloatArray, out: FloatArray) -> None:
    """Fill ``out`` (T, D, lanes) with A sin(2πn/T) u."""
    assert drift.period is not None
    n = np.arange(first, first + len(out))
    out[:] = np.sin(2 * np.pi * (n % drift.period) / drift.period)[:, None, None] * state
