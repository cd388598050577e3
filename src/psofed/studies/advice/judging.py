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

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.results.estimates import students_factor
from psofed.scenario import Scenario

# Blocks of time; the first quarter only serves to choose from.
_BLOCKS = 24
# Errors that differ by less than 0.1 dB count as equal: of such settings the one that sends less is chosen, and such
# gains decide nothing.
TOLERANCE = 10**0.01 - 1
# Slow waves that an interval is taken from; more of them where few degrees of freedom would say nothing, because the
# intervals of all clients are to hold together.
_WAVES, _CLIENT_WAVES = 4, 8


@dataclass(frozen=True, eq=False)
class Blocks:
    """Time cut into blocks in which every client's rows weigh the same in all.

    Attributes
    ----------
    edges : array (blocks + 1,)
        First iteration of each block, and the end.
    counts : array (blocks, K)
        Rows of each client in each block.
    """

    edges: NDArray[np.int64]
    counts: FloatArray

    def sums(self, errors: FloatArray) -> FloatArray:
        """Sum errors (…, iterations, K) within blocks, (…, blocks, K); those that are not finite become infinite."""
        sums = np.add.reduceat(errors, self.edges[:-1], axis=-2)
        return np.where(np.isfinite(sums), sums, np.inf)


def cut_into_blocks(samples: Sequence[int], count: int = _BLOCKS) -> Blocks:
    """Cut time into blocks that hold equal shares of the clients' rows, each client weighing as much as any other.

    Examples
    --------
    >>> cut_into_blocks((6, 6), 3).edges.tolist(), cut_into_blocks((4, 400), 4).edges.tolist()
    ([0, 2, 4, 6], [0, 2, 4, 200, 400])
    """
    lengths = np.asarray(samples)
    n = np.arange(lengths.max())
    active = n[:, None] < lengths
    mass = np.cumsum((active / lengths).sum(axis=1))
    inner = np.searchsorted(mass / mass[-1], np.arange(1, count) / count - 1e-12) + 1
    edges = np.unique(np.concatenate([[0], np.minimum(inner, n.size), [n.size]]))
    return Blocks(edges, np.add.reduceat(active.astype(np.float64), edges[:-1], axis=0))


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
    """A way to learn at all its settings.

    Attributes
    ----------
    name, title : str
        For programs and for people.
    errors : array (settings, blocks, K)
        Sums of squared errors, zero for clients that do not take part.
    scenarios : tuple of Scenario
        Federations; empty without one.
    stepsizes : tuple of float
        Stepsizes of a model without a federation, if it has one.
    """

    name: str
    title: str
    errors: FloatArray
    scenarios: tuple[Scenario, ...] = ()
    stepsizes: tuple[float, ...] = ()

    @property
    def costs(self) -> list[int]:
        """The shared parameters, which decide between settings that are equally good."""
        return [scenario.num_shared for scenario in self.scenarios] or [0] * len(self.errors)

    def only(self, num_shared: int) -> "Way":
        """Return the settings with a number of shared parameters."""
        places = [place for place, cost in enumerate(self.costs) if cost == num_shared]
        return replace(self, errors=self.errors[places], scenarios=tuple(self.scenarios[at] for at in places))


@dataclass(frozen=True, eq=False)
class Judged:
    """A way to learn as it did in the judged blocks, its setting always chosen before.

    Attributes
    ----------
    errors : array (judged blocks, K)
        Sums of squared errors.
    last : int
        The setting that is best after the last block: what to use from now on.
    picks : tuple of int
        Settings used in the judged blocks.
    """

    errors: FloatArray
    last: int = 0
    picks: tuple[int, ...] = ()

    def filled(self, members: NDArray[np.bool_], other: "Judged") -> "Judged":
        """Return it for members, and the other for everyone else."""
        return replace(self, errors=np.where(members, self.errors, other.errors))


class Judge:
    """Compares ways to learn over the same blocks.

    Parameters
    ----------
    blocks : Blocks
    clients : bool array (K,), optional
        Who counts; all by default.
    """

    def __init__(self, blocks: Blocks, clients: NDArray[np.bool_] | None = None) -> None:
        self._counts = blocks.counts if clients is None else blocks.counts * clients
        self.blocks: int = len(blocks.counts)
        self.first: int = max(1, self.blocks // 4)
        self.rows: FloatArray = self._counts[self.first :].sum(axis=0)
        is_judged = self.rows > 0
        self._weights = is_judged / np.where(is_judged, self.rows, 1.0) / max(is_judged.sum(), 1)

    def choose(self, way: Way) -> Judged:
        """Choose among the settings of a way to learn, from the past only."""
        picks = [self.best(way, end) for end in range(self.first, self.blocks + 1)]
        judged = [way.errors[pick, self.first + at] for at, pick in enumerate(picks[:-1])]
        return Judged(np.array(judged), picks[-1], tuple(picks[:-1]))

    def past_errors(self, errors: FloatArray, end: int) -> FloatArray:
        """Return mean squared errors (…, K) in the later half of the blocks before `end`, of errors (…, blocks, K)."""
        rows = self._counts[end // 2 : end].sum(axis=0)
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

    def error(self, judged: Judged) -> float:
        """Return E."""
        return float(self._by_block(judged.errors).sum())

    def client_errors(self, judged: Judged) -> FloatArray:
        """Return each client's mean squared error, shape (K,); NaN for one that has no judged row."""
        return np.where(self.rows > 0, judged.errors.sum(axis=0) / np.maximum(self.rows, 1.0), np.nan)

    def gain(self, judged: Judged, other: Judged, confidence: float = 0.95, recent: bool = False) -> Gain:
        """Return how much less the first's error is than the other's; `recent` takes the later half of the blocks."""
        start = len(judged.errors) // 2 if recent else 0
        first, second = (self._by_block(way.errors)[start:] for way in (judged, other))
        return ratio_gain(first, second, confidence)

    def past_gain(self, errors: FloatArray, other: FloatArray, end: int) -> Gain:
        """Return the gain of errors (blocks, K) on others in the judged blocks before `end`."""
        first, second = (self._by_block(of[self.first : end]) for of in (errors, other))
        return ratio_gain(first, second)

    def client_gains(self, judged: Judged, other: Judged) -> list[Gain]:
        """Return every client's gain, with intervals that hold for all clients together (Bonferroni)."""
        confidence = 1 - 0.05 / max(int((self.rows > 0).sum()), 1)
        pairs = zip(judged.errors.T, other.errors.T, strict=True)
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
