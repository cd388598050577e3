"""Random walk: w*_{n+1} = w*_n + q_n with q_n ~ N(0, q I), the usual model of a target that wanders off."""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.streams import Stream
from psofed.scenario.drift import Drift

FIELDS = ("variance",)


def increment_variance(drift: Drift) -> float:
    """Return q, the variance of each entry's step."""
    assert drift.variance is not None
    return drift.variance


def start(drift: Drift, dimension: int, stream: Stream) -> FloatArray:
    """Return w*_0 − w*_0 = 0, shape (D, lanes)."""
    return np.zeros((dimension, stream.key.size))


def draw_moves(drift: Drift, stream: Stream, first: int, state: FloatArray, out: FloatArray) -> None:
    """Fill ``out`` (T, D, lanes) with the walk from iteration `first` on; ``state`` is where it stands.

    The steps are added one after another, so the bits do not depend on how the iterations are cut up.
    """
    from psofed.engine.normals import fill_standard_normal

    count, dimension, lanes = out.shape
    words = (dimension + 1) // 2
    normals = np.empty((2 * words * count, lanes), np.float32)
    fill_standard_normal(stream.key, stream.gamma, first * words, normals)
    steps = normals.reshape(count, 2 * words, lanes)[:, :dimension]
    deviation = increment_variance(drift) ** 0.5
    for t in range(count):
        out[t] = state
        state += deviation * steps[t]
