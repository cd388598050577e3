"""Judges ways to learn on one table: settings from the past, errors from what follows, intervals from slow waves.

Time is cut into blocks. In each judged block a way to learn uses the setting (stepsize, shared parameters) that was
best in the later half of the blocks before it. Its error is

    E = (1/K) Σ_k (1/n_k) Σ_b e_{b,k},

with e_{b,k} client k's squared errors in block b and n_k its judged rows: every client weighs the same. The gain of one
way on another is 1 − R with R = ΣF_b / ΣA_b, sums over clients inside. Trials see the same rows, so they say nothing
about how certain R is; time does. Neighbouring blocks are not independent: inputs are correlated in time, and a model
carries its errors along. So the variance of Σ_b u_b, with the residuals u_b = F_b − R A_b, is taken from how they move
slowly, along the first q = 4 cosines over the B judged blocks,

    Λ_j = √(2/B) Σ_b u_b cos(π j (b + ½)/B),      Var R ≈ B (1/q) Σ_j Λ_j² / (Σ_b A_b)²,

and the interval is Student's with q degrees of freedom (Lazarus, Lewis, Stock and Watson 2018; docs/own_data.md says
how often it holds).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.results.estimates import students_factor
from psofed.scenario import Scenario

Clients = tuple[int, ...]

# Blocks of time; the first quarter only serves to choose from.
_BLOCKS = 24
# Errors that differ by less than 0.1 dB count as equal: of such settings the one that sends less is chosen, and such
# gains decide nothing.
TOLERANCE = 10**0.01 - 1
# Slow waves that an interval is taken from; more of them where few degrees of freedom would say nothing, because the
# intervals of all clients are to hold together.
_WAVES, _CLIENT_WAVES = 4, 8


@dataclass(frozen=True)
class Gain:
    """How much less one way's error is than another's, as a share of the other's; negative if it is more.

    Attributes
    ----------
    value : float
    interval : (float, float)
        95 % confidence, or what was asked for; NaN where there are too few blocks.
    """

    value: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        low, high = self.interval
        return low > 0 or high < 0 or self.value == -math.inf

    @property
    def matters(self) -> bool:
        """Whether the sign is clear and the gain exceeds 0.1 dB, in which errors count as equal."""
        return self.is_clear and not -TOLERANCE / (1 + TOLERANCE) < -self.value < TOLERANCE

    @property
    def helps(self) -> bool:
        """Whether it matters and is above zero."""
        return self.matters and self.value > 0

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        return {"value": self.value, "interval_95": list(self.interval), "is_clear": self.is_clear}


@dataclass(frozen=True, eq=False)
class Way:
    """A way to learn: at all settings that were tried, or, with a single row of errors, as it was followed.

    Attributes
    ----------
    name, title : str
        For programs and for people.
    errors : array (settings, blocks, K)
        Sums of squared errors, zero for clients that do not take part and, once followed, in blocks before the judged.
    scenarios : tuple of Scenario
        Federations; of a way that was followed, those to use from now on, one for each of the groups.
    stepsizes : tuple of float
        Of a model without a federation, in the same way.
    groups : tuple of tuples
        Clients that federate with each other.
    shared_counts : frozenset of int
        Numbers of shared parameters in the judged blocks.
    """

    name: str
    title: str
    errors: FloatArray
    scenarios: tuple[Scenario, ...] = ()
    stepsizes: tuple[float, ...] = ()
    groups: tuple[Clients, ...] = ()
    shared_counts: frozenset[int] = frozenset()

    @property
    def costs(self) -> list[int]:
        """The shared parameters, which decide between settings that are equally good."""
        return [scenario.num_shared for scenario in self.scenarios] or [0] * len(self.errors)

    def at(self, places: Sequence[int]) -> "Way":
        """Return some of the settings."""
        scenarios = tuple(self.scenarios[at] for at in places if self.scenarios)
        stepsizes = tuple(self.stepsizes[at] for at in places if self.stepsizes)
        return replace(self, errors=self.errors[places], scenarios=scenarios, stepsizes=stepsizes)


@dataclass(frozen=True, eq=False)
class Judge:
    """Compares ways to learn over blocks of time in which every client's rows weigh the same in all.

    Attributes
    ----------
    edges : array (blocks + 1,)
        First iteration of each block, and the end.
    counts : array (blocks, K)
        Rows of each client in each block; zero for clients that do not count.
    """

    edges: NDArray[np.int64]
    counts: FloatArray

    @classmethod
    def of(cls, samples: Sequence[int], count: int = _BLOCKS) -> "Judge":
        """Cut time into blocks that hold equal shares of the clients' rows, each client weighing as much as any other.

        Examples
        --------
        >>> Judge.of((6, 6), 3).edges.tolist(), Judge.of((4, 400), 4).edges.tolist()
        ([0, 2, 4, 6], [0, 2, 4, 200, 400])
        """
        lengths = np.asarray(samples)
        n = np.arange(lengths.max())
        active = n[:, None] < lengths
        mass = np.cumsum((active / lengths).sum(axis=1))
        inner = np.searchsorted(mass / mass[-1], np.arange(1, count) / count - 1e-12) + 1
        edges = np.unique(np.concatenate([[0], np.minimum(inner, n.size), [n.size]]))
        return cls(edges, np.add.reduceat(active.astype(np.float64), edges[:-1], axis=0))

    def among(self, clients: NDArray[np.bool_]) -> "Judge":
        """Return a judge for whom only some clients count."""
        return replace(self, counts=self.counts * clients)

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return len(self.counts)

    @property
    def first(self) -> int:
        """The first judged block."""
        return max(1, self.blocks // 4)

    @cached_property
    def rows(self) -> FloatArray:
        """Judged rows of each client."""
        return np.asarray(self.counts[self.first :].sum(axis=0))

    @cached_property
    def _weights(self) -> FloatArray:
        is_judged = self.rows > 0
        return np.asarray(is_judged / np.where(is_judged, self.rows, 1.0) / max(is_judged.sum(), 1))

    def sums(self, errors: FloatArray) -> FloatArray:
        """Sum errors (…, iterations, K) within blocks, (…, blocks, K); those that are not finite become infinite."""
        sums = np.add.reduceat(errors, self.edges[:-1], axis=-2)
        return np.where(np.isfinite(sums), sums, np.inf)

    def past_errors(self, errors: FloatArray, end: int) -> FloatArray:
        """Return mean squared errors (…, K) in the later half of the blocks before `end`, of errors (…, blocks, K)."""
        rows = self.counts[end // 2 : end].sum(axis=0)
        sums = np.where(rows > 0, errors[..., end // 2 : end, :].sum(axis=-2), 0.0)
        return np.asarray(sums / np.where(rows > 0, rows, 1.0))

    def best(self, way: Way, end: int) -> int:
        """Return the setting to use from block `end` on.

        Of settings as good as the best within the tolerance the cheapest is taken, and of those the first: settings go
        from small stepsizes to large ones, and what learns more carefully is farther from divergence.
        """
        score = self.past_errors(way.errors, end).sum(axis=1)
        close = score <= (1 + TOLERANCE) * score.min()
        return int(np.lexsort((way.costs, ~close))[0])

    def follow(self, way: Way) -> Way:
        """Choose among the settings of a way to learn in each judged block, from the past only."""
        if len(way.errors) == 1:
            return way
        *picks, last = [self.best(way, end) for end in range(self.first, self.blocks + 1)]
        errors = np.zeros_like(way.errors[:1])
        errors[0, self.first :] = way.errors[picks, range(self.first, self.blocks)]
        used = frozenset(way.costs[pick] for pick in picks)
        return replace(way.at([last]), errors=errors, shared_counts=used)

    def error(self, way: Way) -> float:
        """Return E."""
        return float(self._by_block(way.errors[0])[self.first :].sum())

    def client_errors(self, way: Way) -> FloatArray:
        """Return each client's mean squared error, shape (K,); NaN for one that has no judged row."""
        sums = way.errors[0, self.first :].sum(axis=0)
        return np.where(self.rows > 0, sums / np.maximum(self.rows, 1.0), np.nan)

    def gain(self, way: Way, other: Way, confidence: float = 0.95, blocks: slice | None = None) -> Gain:
        """Return how much less the first's error is than the other's, in all judged blocks or some."""
        first, second = (self._by_block(of.errors[0])[blocks or slice(self.first, None)] for of in (way, other))
        return ratio_gain(first, second, confidence)

    def client_gains(self, way: Way, other: Way) -> list[Gain]:
        """Return every client's gain, with intervals that hold for all clients together (Bonferroni)."""
        confidence = 1 - 0.05 / max(int((self.rows > 0).sum()), 1)
        pairs = zip(*(of.errors[0, self.first :].T for of in (way, other)), strict=True)
        return [ratio_gain(first, second, confidence, _CLIENT_WAVES) for first, second in pairs]

    def _by_block(self, errors: FloatArray) -> FloatArray:
        return np.asarray(np.where(self._weights > 0, errors, 0.0) @ self._weights)


def ratio_gain(first: FloatArray, other: FloatArray, confidence: float = 0.95, most_waves: int = _WAVES) -> Gain:
    """Return 1 − Σ first / Σ other with its interval, from sums over blocks, each of shape (B,).

    Examples
    --------
    >>> gain = ratio_gain(np.array([0.9, 0.8, 0.85, 0.95, 0.9]), np.array([1.0, 1.1, 0.9, 1.0, 0.9]))
    >>> round(gain.value, 3), [round(end, 3) for end in gain.interval], gain.is_clear
    (0.102, [-0.037, 0.241], False)
    """
    keep = (first != 0) | (other != 0)
    first, other = first[keep], other[keep]
    total, blocks = float(other.sum()), len(other)
    if not total or not math.isfinite(total):
        return Gain()
    ratio = float(first.sum()) / total
    if not math.isfinite(ratio):
        return Gain(-math.inf)
    if blocks < 3:
        return Gain(1 - ratio)
    waves = min(most_waves, blocks - 1)
    angles = np.pi / blocks * np.outer(np.arange(1, waves + 1), np.arange(blocks) + 0.5)
    slow = math.sqrt(2 / blocks) * np.cos(angles) @ (first - ratio * other)
    error = math.sqrt(blocks / waves * float(slow @ slow)) / total
    reach = students_factor(waves + 1, confidence) * error
    return Gain(1 - ratio, (1 - ratio - reach, 1 - ratio + reach))
