"""Offsets of round-robin windows: which combinations are averaged over, and the masks given these.

Client k shares the window of M entries {i : (i − o_k − nM) mod D < M} in iteration n, with its offset o_k drawn once.
The law of the server's error involves the offsets of all clients at once, so no finite set of moments averaged over
offsets closes. The recursion is therefore solved for given offsets, and the solutions are averaged: over all
combinations if there are few, else over a sample. M = ``num_shared``, D = ``entries.dimension``.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.parts.patterns.round_robin import RoundRobin
from psofed.theory.moments.layout import Entries, Participation
from psofed.theory.steps.common_mask import CommonMask
from psofed.theory.steps.exchange import FixedMasks, MaskMoments

_ENUMERATED_OFFSETS = 4096  # up to here all combinations of offsets are taken
_ENUMERATED_OPENED = 64  # the same with links, delays or availability, where each takes longer
_ENUMERATED_CORRELATED = 32  # the same with correlated inputs
_OFFSET_SEED = 20240817  # of the sample beyond that; always the same, so that predictions are repeatable


@dataclass(frozen=True, eq=False)
class WindowMasks:
    """Round-robin masks of a fleet: windows of M entries that move on by M in every iteration.

    Parameters
    ----------
    drawn : Participation
    entries : Entries
        Tracked entries: all of them with correlated inputs.
    num_shared : int
        M.
    is_opened : bool
        Whether the iteration has more than the paper's.

    Examples
    --------
    >>> masks = WindowMasks(Participation(2, 1), Entries.white(2, 2, 1), 1)
    >>> masks.offsets(0).tolist(), masks.are_sampled
    ([[0, 0], [0, 1]], False)
    """

    drawn: Participation
    entries: Entries
    num_shared: int
    is_opened: bool = False

    @property
    def period(self) -> int:
        """Iterations after which a mask returns."""
        return RoundRobin().mask_period(self.entries.dimension, self.num_shared)

    @property
    def are_sampled(self) -> bool:
        """Whether there are too many combinations of offsets to take them all."""
        free = (self.drawn.clients - 1) * math.log(self.entries.dimension)
        if not self.entries.is_full:
            return free > math.log(_ENUMERATED_OPENED if self.is_opened else _ENUMERATED_OFFSETS)
        return free + math.log(self.entries.dimension / self.period) > math.log(_ENUMERATED_CORRELATED)

    def offsets(self, count: int) -> NDArray[np.int64]:
        """Offsets of all clients, (N, K): all combinations if these are few, else a sample of `count`.

        A larger sample begins with the smaller one.
        """
        clients, dimension = self.drawn.clients, self.entries.dimension
        if self.are_sampled:
            return np.random.default_rng(_OFFSET_SEED).integers(0, dimension, (count, clients))
        # White inputs: entries are exchangeable, so only differences of offsets matter. Correlated inputs: the steady
        # state is averaged over a period, so offsets that all move on by M are the same.
        first = range(dimension // self.period if self.entries.is_full else 1)
        return np.array(list(itertools.product(first, *[range(dimension)] * (clients - 1))))

    def masks(self, offsets: NDArray[np.int64], n: int = 0) -> FloatArray:
        """Masks of iteration n, (…, D), of windows with the given offsets (…)."""
        return RoundRobin().mask_given_offset(self.entries.dimension, self.num_shared, offsets, n)

    def common(self, offset: int) -> tuple[CommonMask, ...]:
        """Exchanges of a period where all clients have one offset; all entries are tracked."""
        pairs = (self._entrywise(np.array(offset), n + 1) for n in range(self.period))
        return tuple(
            CommonMask(self.drawn, self.entries, MaskMoments(row, column, row * column))
            for row, column in pairs
        )

    def scattered(self, offsets: NDArray[np.int64]) -> tuple[FixedMasks, ...]:
        """Exchanges of a period where the clients have the given offsets (K,); over white inputs one stands for all."""
        if not self.entries.is_full:
            mask = self.masks(offsets)
            return (FixedMasks(mask, mask),)
        return tuple(FixedMasks(*self._entrywise(offsets, n + 1)) for n in range(self.period))

    def _entrywise(self, offsets: NDArray[np.int64], n: int) -> tuple[FloatArray, FloatArray]:
        """S(i) and S(j) on all entries (i, j) of a block, (…, D²)."""
        mask = self.masks(offsets, n)
        dimension = mask.shape[-1]
        tile = (*(1 for _ in mask.shape[:-1]), dimension)
        return np.repeat(mask, dimension, axis=-1), np.tile(mask, tile)
