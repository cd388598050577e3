"""When uploads arrive: the law of their delays, and how many arrive together where delays are 0 or 1 at random.

Every upload takes l iterations with probability θ_l, independently, and is lost with probability 1 − Σ_l θ_l; losses of
the uplink are part of it. Of the P uploads that are made in an iteration, m arrive at once and c' in the next one, so
that (m, c') is multinomial and independent of everything before. The uploads that arrive in an iteration are these m
and the c that were made in the one before. They are weighted

    λ = 1/(m + c) and β = α/(m + c)    (``grouping = "together"``),    λ = 1/m and β = α/c    (``"by-delay"``),

with 0 in place of 1/0. Given c', the recursion needs averages over m of λ^a β^b m, and over c with its chances π_c
(:class:`ArrivalCounts`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np

from psofed.common.types import FloatArray
from psofed.parts.network import Delay


@dataclass(frozen=True)
class DelayLaw:
    """The law of the delays of all uploads.

    Attributes
    ----------
    chances : tuple of float
        θ_0, θ_1, …; the last one is positive.
    weight : float
        α.
    by_delay : bool
        Whether uploads of equal delay are averaged separately.

    Examples
    --------
    >>> from psofed.delays import Fixed, Geometric
    >>> DelayLaw.of(Fixed(iterations=3), loss=0.1).fixed
    3
    >>> law = DelayLaw.of(Geometric(ratio=0.5, longest=1), loss=0.0)
    >>> law.is_random, law.loss
    (True, 0.25)
    """

    chances: tuple[float, ...] = (1.0,)
    weight: float = 1.0
    by_delay: bool = False

    @classmethod
    def of(cls, delay: Delay | None, loss: float) -> "DelayLaw":
        """Return the law of a delay whose uploads are lost with probability `loss` besides."""
        if delay is None:
            return cls((1.0 - loss,))
        chances = delay.chances()
        assert chances is not None, "the theory refuses other delays"
        last = max(np.flatnonzero(chances), default=0)
        kept = tuple(float(chance) * (1.0 - loss) for chance in chances[: last + 1])
        return cls(kept, delay.weight, delay.grouping == "by-delay")

    @property
    def is_random(self) -> bool:
        """Whether uploads of one iteration arrive in different ones."""
        return sum(chance > 0 for chance in self.chances) > 1

    @property
    def fixed(self) -> int:
        """The delay of all uploads that arrive; 0 where it is random."""
        return 0 if self.is_random else len(self.chances) - 1

    @property
    def loss(self) -> float:
        """Probability that an upload never arrives."""
        return 1.0 - sum(self.chances)


@dataclass(frozen=True, eq=False)
class ArrivalCounts:
    """Averages over the numbers of uploads that arrive together, for delays of 0 and 1.

    Attributes
    ----------
    pending : array (C,)
        π_c: probabilities of c = 0, …, P uploads on their way at the beginning of an iteration.
    arriving : array (C, C)
        P(m | c'): probability that m uploads arrive at once, given that c' are on their way at the end.
    pull : array (C, C)
        λ, given m and c.
    late : array (C, C)
        β, given m and c.
    """

    pending: FloatArray
    arriving: FloatArray
    pull: FloatArray
    late: FloatArray

    @classmethod
    def of(cls, law: DelayLaw, uploads: int) -> "ArrivalCounts":
        """Return the averages for P = `uploads`.

        Examples
        --------
        >>> counts = ArrivalCounts.of(DelayLaw((0.5, 0.25), weight=0.8), uploads=2)
        >>> counts.pending.tolist(), counts.arriving[1].round(3).tolist(), float(counts.late[1, 1])
        ([0.5625, 0.375, 0.0625], [0.333, 0.667, 0.0], 0.4)
        """
        from scipy.stats import binom

        at_once, later = law.chances
        number = np.arange(uploads + 1.0)
        together = number[:, None] + number[None, :]
        m, c = (np.broadcast_to(x, together.shape) for x in (number[:, None], number[None, :]))
        pull = _inverse(m if law.by_delay else together)
        late = law.weight * _inverse(c if law.by_delay else together)
        arriving = binom.pmf(number[None, :], uploads - number[:, None], at_once / (1.0 - later))
        return cls(binom.pmf(number, uploads, later), arriving, pull, late)

    @property
    def at_start(self) -> "ArrivalCounts":
        """The same in the first iteration, when nothing is on its way."""
        return replace(self, pending=np.eye(1, self.pending.size)[0])

    @cached_property
    def average(self) -> Callable[[int, int, int], FloatArray]:
        """E[λ^pull β^late m (m − 1) … | c'] with `order` factors of m, for each c, times π_c: (C, C)."""

        def compute(pull: int, late: int, order: int) -> FloatArray:
            weight = (np.ones_like(self.number), self.number, self.number * (self.number - 1.0))[order]
            values = self.pull**pull * self.late**late * weight[:, None]
            return np.asarray(self.arriving @ values * self.pending)

        return cache(compute)

    @cached_property
    def number(self) -> FloatArray:
        """0, 1, …, P."""
        return np.arange(self.pending.size, dtype=np.float64)


def _inverse(values: FloatArray) -> FloatArray:
    return np.divide(1.0, values, out=np.zeros(values.shape), where=values > 0)
