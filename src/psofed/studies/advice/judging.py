"""Judges ways to learn on one table: settings from the past, errors from what follows, intervals from blocks of time.

Time is cut into blocks (:mod:`psofed.studies.advice.errors`). In each judged block a way to learn uses the setting
(stepsize, shared entries) that was best in the later half of the blocks before it. Its error is

    E = (1/K) Σ_k (1/n_k) Σ_b e_{b,k},

with e_{b,k} client k's squared errors in block b and n_k its judged rows: every client weighs the same. The gain of one
way on another is 1 − R with R = ΣF_b / ΣA_b, sums over clients inside. Trials see the same rows, so they say nothing
about how sure R is; blocks of time do, since what one block holds, all clients together, says little about
the next. With the residuals u_b = F_b − R A_b of the ratio,

    Var R ≈ B/(B − 1) Σ_b u_b² / (Σ_b A_b)²,

and the interval is Student's with B − 1 degrees of freedom (docs/own_data.md: how often it holds).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.studies.advice.errors import FIRST_JUDGED, Blocks

# Of settings whose past errors differ by less than this, the one that sends less is chosen: 0.1 dB.
NEARLY_AS_GOOD = 10**0.01


@dataclass(frozen=True)
class Gain:
    """How much less one way's error is than another's, as a share of the other's; negative if it is more.

    Attributes
    ----------
    value : float
    interval : (float, float)
        95 % confidence, or what was asked for; NaN where there are too few blocks.
    """

    value: float
    interval: tuple[float, float]

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        low, high = self.interval
        return low > 0 or high < 0 or self.value == -math.inf

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        return {"value": self.value, "interval_95": list(self.interval), "is_clear": self.is_clear}


@dataclass(frozen=True, eq=False)
class Judged:
    """A way to learn as it did in the judged blocks, its setting always chosen before.

    Attributes
    ----------
    errors : array (judged blocks, K)
        Sums of squared errors.
    last : int
        The setting that is best after the last block: what to use from now on.
    """

    errors: FloatArray
    last: int


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
        self._first = min(FIRST_JUDGED, len(self._counts) - 1)
        self.rows: FloatArray = self._counts[self._first :].sum(axis=0)
        is_judged = self.rows > 0
        self._weights = is_judged / np.where(is_judged, self.rows, 1.0) / max(is_judged.sum(), 1)

    def choose(self, errors: FloatArray, costs: Sequence[float] | None = None) -> Judged:
        """Choose among settings, errors (settings, blocks, K), from the past only.

        Of settings nearly as good as the best (0.1 dB) the cheapest is taken, and of those the first: settings go
        from small stepsizes to large ones, and what learns more carefully is farther from divergence.
        """
        prices = np.zeros(len(errors)) if costs is None else np.asarray(costs, np.float64)
        picks = [self._best(errors, block, prices) for block in range(self._first, len(self._counts) + 1)]
        judged = [errors[pick, self._first + at] for at, pick in enumerate(picks[:-1])]
        return Judged(np.array(judged), picks[-1])

    def fixed(self, errors: FloatArray) -> Judged:
        """Judge a way without a setting, errors (blocks, K)."""
        return Judged(errors[self._first :], 0)

    def error(self, judged: Judged) -> float:
        """Return E."""
        return float(self._by_block(judged).sum())

    def client_errors(self, judged: Judged) -> FloatArray:
        """Return each client's mean squared error, shape (K,); NaN for one that has no judged row."""
        return np.where(self.rows > 0, judged.errors.sum(axis=0) / np.maximum(self.rows, 1.0), np.nan)

    def gain(self, judged: Judged, other: Judged) -> Gain:
        """Return how much less the first's error is than the other's."""
        return ratio_gain(self._by_block(judged), self._by_block(other))

    def client_gains(self, judged: Judged, other: Judged) -> list[Gain]:
        """Return every client's gain, with intervals that hold for all clients together (Bonferroni)."""
        clients = int((self.rows > 0).sum())
        return [
            ratio_gain(f, a, 1 - 0.05 / max(clients, 1))
            for f, a in zip(judged.errors.T, other.errors.T, strict=True)
        ]

    def _by_block(self, judged: Judged) -> FloatArray:
        return np.asarray(np.where(self._weights > 0, judged.errors, 0.0) @ self._weights)

    def _best(self, errors: FloatArray, block: int, costs: FloatArray) -> int:
        past = slice(block // 2, block)
        rows = self._counts[past].sum(axis=0)
        seen = rows > 0
        means = np.where(seen, errors[:, past].sum(axis=1), 0.0) / np.where(seen, rows, 1.0)
        score = means.sum(axis=1)
        close = score <= NEARLY_AS_GOOD * score.min()
        return int(np.lexsort((np.arange(len(score)), costs, ~close))[0])


def ratio_gain(first: FloatArray, other: FloatArray, confidence: float = 0.95) -> Gain:
    """Return 1 − Σ first / Σ other with its interval, from sums over blocks, each of shape (B,).

    Examples
    --------
    >>> gain = ratio_gain(np.array([0.9, 0.8, 0.85, 0.95]), np.array([1.0, 1.1, 0.9, 1.0]))
    >>> round(gain.value, 3), [round(end, 3) for end in gain.interval], gain.is_clear
    (0.125, [-0.051, 0.301], False)
    """
    from scipy.special import stdtrit

    keep = (first != 0) | (other != 0)
    first, other = first[keep], other[keep]
    total, blocks = float(other.sum()), len(other)
    unknown = (math.nan, math.nan)
    if not total or not math.isfinite(total) or not blocks:
        return Gain(math.nan, unknown)
    ratio = float(first.sum()) / total
    if not math.isfinite(ratio):
        return Gain(-math.inf, unknown)
    if blocks < 3:
        return Gain(1 - ratio, unknown)
    residuals = first - ratio * other
    error = math.sqrt(blocks / (blocks - 1) * float(residuals @ residuals)) / total
    reach = float(stdtrit(blocks - 1, 0.5 + confidence / 2)) * error
    return Gain(1 - ratio, (1 - ratio - reach, 1 - ratio + reach))
