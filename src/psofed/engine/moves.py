"""Where the target stands in each iteration of several trials, relative to where it started."""

from types import ModuleType

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.streams import Stream, make_stream
from psofed.parts.registry import load_part
from psofed.scenario import Scenario
from psofed.scenario.drift import Drift


class TargetMoves:
    """The moves w*_n − w*_0, drawn in order."""

    def __init__(self, drift: Drift, dimension: int, stream: Stream) -> None:
        self._drift = drift
        self._stream = stream
        self._part: ModuleType = load_part("drifts", drift.kind)
        self._state: FloatArray = self._part.start(drift, dimension, stream)

    def draw(self, first: int, count: int) -> FloatArray:
        """Return w*_n − w*_0 of the next `count` iterations, the first of them `first`; shape (count, D, lanes)."""
        out = np.empty((count, *self._state.shape))
        self._part.draw_moves(self._drift, self._stream, first, self._state, out)
        return out


def make_moves(scenario: Scenario, seed: int, trials: range) -> TargetMoves | None:
    """Return the moves of the scenario's target in the given trials, None if it stays where it is."""
    if scenario.drift is None:
        return None
    return TargetMoves(scenario.drift, scenario.dimension, make_stream(seed, "drift", trials))
