"""Forecasts without a federation that every client could make: naive ones, and recursive least squares.

persistence
    The last value of the target.
average
    The mean of the target so far.
seasonal
    The value a day, a week or a year ago, whichever was best on the rows before; only for tables with a time column.
RLS
    Recursive least squares on each client's own rows, with an intercept. With forgetting factor λ it minimises
    Σ_i λ^{n−i} (y_i − wᵀx_i)² in each step n; which λ to use is chosen on the rows before.

Errors are in the unit of the others: deviations of the client's target on the rows before.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.data.standardise import running_deviation
from psofed.engine.compiling import compiled
from psofed.studies.advice.judging import Blocks

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_DAY = 86_400.0
_SEASONS = {"same as a day ago": _DAY, "same as a week ago": 7 * _DAY, "same as a year ago": 365 * _DAY}
_FORGETTING, _FEW_FORGETTING = (1.0, 0.995, 0.98, 0.95), (1.0, 0.98)
# Weight of the assumption w = 0 before the first row, and how uncertain weights may become by forgetting.
_PRIOR, _LARGEST_TRACE = 1.0, 1e6


@dataclass(frozen=True, eq=False)
class Rival:
    """A way to forecast, with all its settings.

    Attributes
    ----------
    name : str
        ``"persistence"``, ``"seasonal"``, ``"rls"`` or ``"average"``.
    titles : tuple of str
        One for each setting.
    errors : array (settings, blocks, K)
        Sums of squared errors.
    """

    name: str
    titles: tuple[str, ...]
    errors: FloatArray


def make_rivals(
    data: "OwnData", features: Sequence[FloatArray], blocks: Blocks, is_heavy: bool
) -> Iterator[Rival]:
    """Yield every rival's errors; `features` are the inputs (samples_k, D) of the federation's model."""
    seasons = _seasons(data)
    naive = [("persistence", {"same as the last value": 0.0})] + ([("seasonal", seasons)] if seasons else [])
    for name, lags in naive:
        sums = [
            blocks.sums(_padded([_naive(data, k, lag) for k in range(data.num_clients)]))
            for lag in lags.values()
        ]
        yield Rival(name, tuple(lags), np.array(sums))
    factors = _FEW_FORGETTING if is_heavy else _FORGETTING
    sums = []
    for factor in factors:
        errors = [np.empty(len(y)) for y in data.targets]
        for x, y, out in zip(features, data.targets, errors, strict=True):
            _run_rls(x, y, factor, out)
        sums.append(blocks.sums(_padded(errors)))
    titles = ("" if factor == 1 else f", forgetting {factor:g}" for factor in factors)
    yield Rival("rls", tuple(f"each alone, RLS{title}" for title in titles), np.array(sums))
    # Targets are scaled by their running mean (psofed.data.standardise), so they are its errors.
    yield Rival("average", ("running mean",), blocks.sums(_padded(data.targets))[None])


def _naive(data: "OwnData", k: int, lag: float) -> FloatArray:
    """Return client k's errors if it forecasts the value `lag` seconds ago, or the last one if that is missing."""
    targets, count = data.table.targets[k], len(data.targets[k])
    forecasts = targets[:-1].copy()
    if lag:
        times = data.table.times[k]
        reach = 0.5 * _interval(times)
        at = np.searchsorted(times, times - lag - reach)
        has = times[at] <= times - lag + reach
        forecasts = np.where(has, targets[at], np.append(targets[0], forecasts))[1:]
    return np.asarray((targets[1:] - forecasts)[-count:] / running_deviation(targets)[:-1][-count:])


def _seasons(data: "OwnData") -> dict[str, float]:
    """Return the seasons that all clients' times can show: at least two rows long, and shorter than the table."""
    times = data.table.times
    if not times or any((np.diff(own) < 0).any() for own in times):
        return {}
    interval = max(map(_interval, times))
    span = max(float(own[-1] - own[0]) for own in times)
    return {name: season for name, season in _SEASONS.items() if 2 * interval <= season < span}


def _interval(times: FloatArray) -> float:
    return float(np.median(np.diff(times)))


def _padded(errors: Sequence[FloatArray]) -> FloatArray:
    """Return squares of errors as an array (iterations, K), zero where a client has no sample."""
    squares = np.zeros((max(map(len, errors)), len(errors)))
    for k, own in enumerate(errors):
        squares[: len(own), k] = own**2
    return squares


@compiled
def _run_rls(inputs: FloatArray, targets: FloatArray, forgetting: float, errors: FloatArray) -> None:
    count, dimension = inputs.shape
    size = dimension + 1
    weights, gain, row = np.zeros(size), np.zeros(size), np.ones(size)
    inverse = np.eye(size) / _PRIOR
    for n in range(count):
        error, scale, trace = targets[n], forgetting, 0.0
        for i in range(dimension):
            row[i] = inputs[n, i]
        for i in range(size):
            error -= weights[i] * row[i]
            gain[i] = 0.0
            for j in range(size):
                gain[i] += inverse[i, j] * row[j]
            scale += gain[i] * row[i]
            trace += inverse[i, i]
        errors[n] = error
        faded = forgetting if trace < _LARGEST_TRACE else 1.0
        for i in range(size):
            weights[i] += gain[i] * error / scale
            for j in range(size):
                inverse[i, j] = (inverse[i, j] - gain[i] * gain[j] / scale) / faded
