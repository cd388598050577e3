"""Masks of patterns with a memory, chosen in plain Python on the draws of the fast engine."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.streams import make_stream
from psofed.parts.contexts import Mask, Shared
from psofed.scenario import Scenario


@dataclass(eq=False)
class LiteralMasks:
    """Masks of one trial that depend on the clients' models and on what they shared before.

    Attributes
    ----------
    current : bool array (K, D)
        S_{k,n}, of the iteration that was last chosen for.
    """

    scenario: Scenario
    seed: int
    trial: int

    def __post_init__(self) -> None:
        scenario = self.scenario
        self._pattern, self._stream = (
            scenario.selection.pattern,
            make_stream(self.seed, "masks", [self.trial]),
        )
        self.is_on: bool = self._pattern.has_memory() and scenario.num_shared < scenario.dimension
        self.current: NDArray[np.bool_] = np.zeros((scenario.num_clients, scenario.dimension), np.bool_)
        if self.is_on:
            self._memory = np.zeros((scenario.num_clients, self._pattern.memory_size(scenario.dimension)))
            self.choose(0, np.zeros((scenario.num_clients, scenario.dimension)))

    def choose(self, n: int, models: FloatArray) -> None:
        """Choose the masks of iteration n from the models (K, D)."""
        if not self.is_on:
            return
        clients, dimension = models.shape
        shared = self.scenario.num_shared
        for k in range(clients):
            uniforms, out = self._halves((n * clients + k) * shared, shared), np.zeros(shared, np.int64)
            mask = Mask(n, k, dimension, shared, uniforms, float(self._halves(k, 1)[0]), models[k].copy())
            self._pattern.select(mask, self._memory[k], out)
            self.current[k] = np.isin(np.arange(dimension), out)

    def note(self, n: int, k: int, message: FloatArray, is_upload: bool) -> None:
        """Let the pattern remember a message (D,) of client k, NaN where an entry is not shared."""
        entries = np.flatnonzero(~np.isnan(message))
        if self.is_on and entries.size:
            self._pattern.remember(Shared(entries, message[entries], k, n, is_upload), self._memory[k])

    def _halves(self, first: int, count: int) -> FloatArray:
        words = self._stream.words(first, count)[:, 0]
        return np.asarray((words >> np.uint64(32)) * 2.0**-32, np.float64)
