"""How each client fares, and what is wrong with those that stand out."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.results.outliers import robust_scores, stands_out
from psofed.studies.advice.groups import Groups
from psofed.studies.advice.judging import Gain, Judge, Judged

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

FAULTY, OTHER_LAW, DRIFTS, FEW_ROWS = "faulty sensor", "other law", "drifts", "too few rows"

# A law moves if that is significant, all clients together, and if a law for each half explains this share of the error.
_SIGNIFICANT, _MATTERS = 0.005, 0.07
# Own rows explain a client's target if its error is below this share of the running mean's.
_EXPLAINED = 0.8
_ROWS_PER_PARAMETER = 3


@dataclass(frozen=True)
class Station:
    """One client of the table.

    Attributes
    ----------
    name : str
    rows : int
        With a target.
    alone, federation : float
        Mean squared errors over its judged rows; NaN if it has none. If it is to be left out, `federation` is its error
        in a federation of everybody.
    gain : Gain
        Of the federation; the intervals of all clients hold together (95 %).
    times_median : float
        Its error alone as a multiple of the median client's.
    stands_out : bool
        Whether that is far from the others'.
    flag : str
        ``"faulty sensor"`` (large errors that its inputs do not explain), ``"other law"`` (its inputs have other
        effects than in most clients), ``"drifts"`` (their effect changes in time), ``"too few rows"``, or empty.
    """

    name: str
    rows: int
    alone: float
    federation: float
    gain: Gain
    times_median: float
    stands_out: bool
    flag: str

    @property
    def note(self) -> str:
        """Remark on the client, or an empty string."""
        parts = [self.flag] if self.flag else []
        if self.stands_out:
            parts.append(f"error {self.times_median:.{1 if self.times_median > 1 else 2}f} × median")
        if self.gain.matters and self.gain.value < 0:
            parts.append("better alone")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "gain": self.gain.to_json(), "note": self.note}


def describe_stations(
    data: "OwnData",
    judge: Judge,
    features: Sequence[FloatArray],
    laws: Groups,
    alone: Judged,
    federation: Judged,
    least_squares: Judged,
    average: Judged,
) -> tuple[Station, ...]:
    """Return all clients in the order of the table; `average` is the running mean's forecast."""
    own, joined = judge.client_errors(alone), judge.client_errors(federation)
    gains = judge.client_gains(federation, alone)
    scores, times = robust_scores(own)
    is_far = stands_out(scores, times)
    is_other = np.zeros(own.size, bool)
    if 2 * len(laws[0]) > own.size:  # without a majority there are no others
        is_other[[k for group in laws[1:] if 4 * len(group) < own.size for k in group]] = True
    drifts = _find_drifts(features, data.targets)
    with np.errstate(invalid="ignore"):
        fitted = np.fmin(own, judge.client_errors(least_squares))
        explained = fitted < _EXPLAINED * judge.client_errors(average)
    stations = []
    for k, name in enumerate(data.table.clients):
        flag = ""
        if len(data.targets[k]) < _ROWS_PER_PARAMETER * features[k].shape[1] or math.isnan(
            gains[k].interval[0]
        ):
            flag = FEW_ROWS
        elif drifts[k]:
            flag = DRIFTS
        elif is_other[k] and explained[k]:
            flag = OTHER_LAW
        elif (is_far[k] and times[k] > 1) or is_other[k]:
            flag = FAULTY
        stations.append(
            Station(
                name=name,
                rows=len(data.table.targets[k]),
                alone=float(own[k]),
                federation=float(joined[k]),
                gain=gains[k],
                times_median=float(times[k]),
                stands_out=bool(is_far[k]),
                flag=flag,
            )
        )
    return tuple(stations)


def _find_drifts(features: Sequence[FloatArray], targets: Sequence[FloatArray]) -> list[bool]:
    """Return whose law changes in time."""
    found = [drift_test(x, y) for x, y in zip(features, targets, strict=True)]
    return [p < _SIGNIFICANT / len(found) and share > _MATTERS for p, share in found]


def drift_test(inputs: FloatArray, targets: FloatArray) -> tuple[float, float]:
    """Test whether a client's law, with an intercept, is the same at all times (Nyblom 1989).

    With the residuals e_n of the law on all rows, S_n = Σ_{i≤n} x_i e_i starts and ends at zero. Under one law it is a
    Brownian bridge, and L = (1/N) Σ_n S_nᵀ V⁻¹ S_n, V the long-run covariance of S_N (Newey–West), is the sum of D + 1
    Cramér–von Mises variables: about χ²_{D+1}/π² + (D + 1)(1/6 − 1/π²).

    Returns
    -------
    p, share : float
        How probable such a statistic is under one law, and the share of the squared errors that disappears if each half
        of the time has its own law.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x, noise = rng.standard_normal((300, 2)), 0.5 * rng.standard_normal(300)
    >>> p, share = drift_test(x, x[:, 0] + noise)
    >>> p > 0.05, share < 0.05
    (True, True)
    >>> p, share = drift_test(x, np.linspace(1.0, -1.0, 300) * x[:, 0] + noise)
    >>> p < 1e-6, share > 0.3
    (True, True)
    """
    from scipy.special import chdtrc

    x = np.column_stack([inputs, np.ones(len(inputs))])
    count, size = x.shape
    if count < _ROWS_PER_PARAMETER * size:
        return 1.0, 0.0
    residuals = _residuals(x, targets)
    power = float(residuals @ residuals)
    if power <= 1e-12 * float(targets @ targets):
        return 1.0, 0.0
    halves = [_residuals(x[half], targets[half]) for half in (slice(count // 2), slice(count // 2, None))]
    share = 1 - sum(float(e @ e) * count / (count - 2 * size) for e in halves) / (
        power * count / (count - size)
    )
    scores = x * residuals[:, None]
    # Around the means of each quarter, so that a change of the law does not count as noise. Squares of sums over
    # windows of w rows add up to Newey and West's covariance with w − 1 lags.
    quarters = np.arange(count) * 4 // count
    means = np.array([scores[quarters == quarter].mean(axis=0) for quarter in range(4)])
    width = int(4 * (count / 100) ** (2 / 9)) + 1
    padding = np.zeros((width, size))
    ahead = np.vstack([padding, np.cumsum(scores - means[quarters], axis=0), padding[1:]])
    windows = ahead[width:] - ahead[:-width]
    variance = windows.T @ windows / width / max(1 - 4 * width / count, 0.5)
    variance += 1e-9 * np.trace(variance) / size * np.eye(size)
    paths = np.cumsum(scores, axis=0)
    statistic = float((paths.T * np.linalg.solve(variance, paths.T)).sum()) / count
    return float(chdtrc(size, max(np.pi**2 * (statistic - size * (1 / 6 - 1 / np.pi**2)), 0.0))), share


def _residuals(x: FloatArray, y: FloatArray) -> FloatArray:
    square = x.T @ x
    square += 1e-9 * np.trace(square) * np.eye(len(square))
    return np.asarray(y - x @ np.linalg.solve(square, y @ x))
