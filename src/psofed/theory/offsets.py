"""Offsets of round-robin windows: which sets are averaged over, and the masks given these.

Client k shares the window of M entries {i : (i − o_k − nM) mod D < M} in iteration n, with its offset o_k drawn once.
The law of the server's error involves the offsets of all clients at once, so no finite set of moments averaged over
offsets closes. The recursion is therefore solved for given offsets, and the solutions are averaged: over all sets if
there are few, else over a sample. M = ``num_shared``, D = ``dimension``.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.parts.patterns.built_in import RoundRobin
from psofed.theory.masks import CommonMask, KnownMasks

_ENUMERATED = 256  # sets of offsets up to which all are taken
_SEED = 20240817  # of the sample beyond that; always the same, so that predictions are repeatable


@dataclass(frozen=True)
class WindowOffsets:
    """Offsets of a fleet's windows.

    Parameters
    ----------
    clients, dimension, num_shared : int
        K, D and M.
    is_white : bool
        Whether entries are exchangeable.

    Examples
    --------
    >>> windows = WindowOffsets(2, 2, 1, is_white=True)
    >>> windows.offsets(0).tolist(), windows.are_sampled
    ([[0, 0], [0, 1]], False)
    """

    clients: int
    dimension: int
    num_shared: int
    is_white: bool

    @property
    def period(self) -> int:
        """Iterations after which a mask returns."""
        return RoundRobin().mask_period(self.dimension, self.num_shared)

    @property
    def _firsts(self) -> int:
        """Offsets of the first client to consider.

        White inputs: entries are exchangeable, so only differences of offsets matter. Correlated inputs: the steady
        state is averaged over a period, so offsets that all move on by M are the same.
        """
        return 1 if self.is_white else self.dimension // self.period

    @property
    def are_sampled(self) -> bool:
        """Whether there are too many sets to take them all."""
        free = (self.clients - 1) * math.log(self.dimension) + math.log(self._firsts)
        return free > math.log(_ENUMERATED) + 1e-9

    def offsets(self, count: int) -> NDArray[np.int64]:
        """Offsets of all clients, (N, K): all sets if these are few, else a sample of `count`.

        A larger sample begins with the smaller one.
        """
        if self.are_sampled:
            return np.random.default_rng(_SEED).integers(0, self.dimension, (count, self.clients))
        others = [range(self.dimension)] * (self.clients - 1)
        return np.array(list(itertools.product(range(self._firsts), *others)))

    def common(self) -> tuple[CommonMask, ...]:
        """Masks of a period where all clients have one offset, one set for each distinct offset; blocks are whole."""
        offsets = np.arange(self._firsts)
        masks = [self._mask(offsets, n + 1) for n in range(self.period)]
        return tuple(CommonMask(mask, mask[..., None] * mask[:, None]) for mask in masks)

    def scattered(self, offsets: NDArray[np.int64]) -> tuple[KnownMasks, ...]:
        """Masks of a period for sets of the clients' offsets (N, K); over white inputs one iteration stands for all."""
        if self.is_white:
            masks = self._mask(offsets, 0).swapaxes(1, 2)  # (N, D, K)
            return (KnownMasks(masks.reshape(-1, offsets.shape[1], 1)),)
        return tuple(KnownMasks(self._mask(offsets, n + 1)) for n in range(self.period))

    def extreme(self, byzantine: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return sets that are known to be the least stable: equal, alternating, Byzantine clients in phase."""
        k, half = np.arange(self.clients), self.dimension // 2
        rows = [np.zeros_like(k), (k % 2) * half, np.where(byzantine, half, 0)]
        rows += [k * self.num_shared % self.dimension, k % self.dimension]
        return np.unique(np.array(rows), axis=0)

    def neighbours(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sets that differ from one set (K,) in the offset of one client, (K (D − 1), K)."""
        moves = np.arange(1, self.dimension)
        changed = np.eye(self.clients, dtype=np.int64)[:, None] * moves[:, None]
        return (offsets + changed.reshape(-1, self.clients)) % self.dimension

    def _mask(self, offsets: NDArray[np.int64], n: int) -> FloatArray:
        """Masks of iteration n, (…, D)."""
        return RoundRobin().mask_given_offset(self.dimension, self.num_shared, offsets, n)
