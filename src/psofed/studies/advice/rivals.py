"""Forecasts without a federation that every client could make: naive ones, and recursive least squares.

persistence
    The last value of the target.
average
    The mean of the target so far.
RLS
    Recursive least squares on each client's own rows, with an intercept. With forgetting factor λ it minimises
    Σ_i λ^{n−i} (y_i − wᵀx_i)² in each step n; which λ to use is chosen on the rows before.

Errors are in the unit of the others: deviations of the client's target on the rows before.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.data.standardise import running_deviation
from psofed.engine.compiling import compiled
from psofed.studies.advice.judging import Blocks

if TYPE_CHECKING:
    from psofed.data.own_data import OwnData

_FORGETTING, _FEW_FORGETTING = (1.0, 0.995, 0.98, 0.95), (1.0, 0.98)
# Weight of the assumption w = 0 before the first row, and how uncertain weights may become by forgetting.
_PRIOR, _LARGEST_TRACE = 1.0, 1e6


def make_rivals(
    data: "OwnData", features: Sequence[FloatArray], blocks: Blocks, is_heavy: bool
) -> dict[str, tuple[list[str], FloatArray]]:
    """Return every rival's titles, one for each setting, and squared errors, (settings, blocks, K).

    `features` are the inputs (samples_k, D) of the federation's model.
    """
    last_value = [
        np.diff(y)[-len(scaled) :] / running_deviation(y)[:-1][-len(scaled) :]
        for y, scaled in zip(data.table.targets, data.targets, strict=True)
    ]
    factors = _FEW_FORGETTING if is_heavy else _FORGETTING
    sums = []
    for factor in factors:
        errors = [np.empty(len(y)) for y in data.targets]
        for x, y, out in zip(features, data.targets, errors, strict=True):
            _run_rls(x, y, factor, out)
        sums.append(blocks.sums(_padded(errors)))
    titles = ["each alone, RLS" + ("" if factor == 1 else f", forgetting {factor:g}") for factor in factors]
    return {
        "persistence": (["last value"], blocks.sums(_padded(last_value))[None]),
        "rls": (titles, np.array(sums)),
        # Targets are scaled by their running mean (psofed.data.standardise), so they are its errors.
        "average": (["running mean"], blocks.sums(_padded(data.targets))[None]),
    }


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
