"""Which round-robin masks are averaged over: the offsets that clients' windows may have, and the masks given these."""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.parts.patterns.round_robin import RoundRobin
from psofed.theory.exchange import CommonMask, MaskMoments
from psofed.theory.fixed_masks import FixedMasks
from psofed.theory.moments import Entries, Participation

_ENUMERATED_OFFSETS = 4096  # up to here all combinations of offsets are gone through
_ENUMERATED_CORRELATED = 32  # likewise with correlated inputs, where each takes longer
_OFFSET_SEED = (
    20240817  # of the sample of offsets beyond that; the same for all, so that predictions are repeatable
)


@dataclass(frozen=True, eq=False)
class WindowMasks:
    """Round-robin masks of a fleet: windows of M entries that move on by M in every iteration.

    Parameters
    ----------
    drawn : Participation
    entries : Entries
        Which entries of the blocks are tracked: all of them with correlated inputs.
    num_shared : int
        M.

    Examples
    --------
    >>> masks = WindowMasks(Participation(2, 1), Entries.white(2, 2, 1), 1)
    >>> masks.offsets(0).tolist(), masks.are_sampled
    ([[0, 0], [0, 1]], False)
    """

    drawn: Participation
    entries: Entries
    num_shared: int

    @property
    def period(self) -> int:
        """Iterations after which a mask returns."""
        return RoundRobin().mask_period(self.entries.dimension, self.num_shared)

    @property
    def are_sampled(self) -> bool:
        """Whether clients with an offset each have too many combinations of them to go through."""
        free = (self.drawn.clients - 1) * math.log(self.entries.dimension)
        if not self.entries.is_full:
            return free > math.log(_ENUMERATED_OFFSETS)
        return free + math.log(self.entries.dimension / self.period) > math.log(_ENUMERATED_CORRELATED)

    def offsets(self, count: int) -> NDArray[np.int64]:
        """Offsets of all clients, (N, K): all combinations if they can be gone through, else `count` drawn ones."""
        clients, dimension = self.drawn.clients, self.entries.dimension
        if self.are_sampled:
            return np.random.default_rng(_OFFSET_SEED).integers(0, dimension, (count, clients))
        if not self.entries.is_full:
            # Entries are exchangeable: only differences of offsets matter.
            return np.array([(0, *rest) for rest in itertools.product(range(dimension), repeat=clients - 1)])
        # The steady state is averaged over a period, so offsets that all move on by M are the same.
        first = range(dimension // self.period)
        return np.array(
            [(o, *rest) for o in first for rest in itertools.product(range(dimension), repeat=clients - 1)]
        )

    def masks(self, offsets: NDArray[np.int64], n: int = 0) -> FloatArray:
        """Masks of iteration n, (…, D), of windows with the given offsets (…)."""
        return RoundRobin().mask_given_offset(self.entries.dimension, self.num_shared, offsets, n)

    def common(self, offset: int) -> tuple[CommonMask, ...]:
        """Exchanges of a period where all clients have one offset; all entries are tracked."""
        exchanges = []
        for n in range(self.period):
            mask = self.masks(np.array(offset), n + 1)
            row, column = np.repeat(mask, mask.size), np.tile(mask, mask.size)
            exchanges.append(CommonMask(self.drawn, self.entries, MaskMoments(row, column, row * column)))
        return tuple(exchanges)

    def scattered(self, offsets: NDArray[np.int64]) -> tuple[FixedMasks, ...]:
        """Exchanges of a period where the clients have the given offsets (K,); over white inputs one stands for all."""
        if not self.entries.is_full:
            mask = self.masks(offsets)
            return (FixedMasks(self.drawn, self.entries, mask, mask),)
        exchanges = []
        for n in range(self.period):
            mask = self.masks(offsets, n + 1)
            dimension = mask.shape[-1]
            exchanges.append(
                FixedMasks(
                    self.drawn, self.entries, np.repeat(mask, dimension, axis=-1), np.tile(mask, dimension)
                )
            )
        return tuple(exchanges)
