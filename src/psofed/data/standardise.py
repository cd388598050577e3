"""Online standardisation: every value is scaled with the past values of its client only.

For a client's row n, with running mean m and standard deviation s of each column over its rows 0 … n:

    x̃_j = clip((x_j − m_{j,n}) / s_{j,n}),        ỹ = (y − m_{y,n−1}) / s_{y,n−1}

An input may be scaled with itself, since it is known before the prediction is made. The target may not: it is scaled by
the rows before it, so that ŷ = m_{y,n−1} + s_{y,n−1} w·x̃ is a forecast anyone could have made. A missing input counts
as average (x̃ = 0) and leaves m and s alone; so does a column that has not varied yet. ỹ = 0 is the forecast "as on
average so far", hence an MSE of 1 is about what no model at all achieves.

:class:`Standardiser` does this row by row and keeps its state, for a client that learns from a stream;
:func:`standardise` does it for a whole table at once and gives the same values.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from psofed.common.types import FloatArray
from psofed.settings.data import StreamSettings

_STATE = ("counts", "means", "squares")


class Standardiser:
    """Scales one client's rows as they arrive.

    Parameters
    ----------
    width : int
        d, the number of inputs.
    warmup : int
        Number of rows at the start that only feed the running means and are not samples.
    clip : float
        Inputs beyond this many standard deviations are set to it.

    Attributes
    ----------
    counts, means, squares : array (d + 1,)
        For each input, and the target last, how many values there were, their mean, and the sum of their squared
        distances from it.

    Examples
    --------
    >>> scaling = Standardiser(1, warmup=2)
    >>> [scaling.take(np.array([x]), y) for x, y in ((1.0, 1.0), (3.0, 3.0))]
    [None, None]
    >>> x, y = scaling.take(np.array([5.0]), 4.0)
    >>> x.round(3).tolist(), y  # (5 − 3)/√(8/3), (4 − 2)/1
    ([1.225], 2.0)
    """

    def __init__(self, width: int, warmup: int = StreamSettings.warmup, clip: float = StreamSettings.clip) -> None:
        self.width: int = width
        self.warmup: int = warmup
        self.clip: float = clip
        self.counts: FloatArray = np.zeros(width + 1)
        self.means: FloatArray = np.zeros(width + 1)
        self.squares: FloatArray = np.zeros(width + 1)

    def take(self, inputs: FloatArray, target: float) -> tuple[FloatArray, float] | None:
        """Add a row (NaN where an input is missing) and return it scaled, or None while there are too few rows."""
        following = self._with(inputs, target)
        sample = None
        if self.is_ready:
            deviation = float(np.sqrt(self.squares[-1] / self.rows))
            sample = _scaled(inputs, following, self.clip), (target - self.target_mean) / deviation
        self.counts, self.means, self.squares = following
        return sample

    @property
    def rows(self) -> int:
        """Rows seen so far."""
        return int(self.counts[-1])

    @property
    def is_ready(self) -> bool:
        """Whether enough rows have been seen to scale the next one."""
        return self.rows >= self.warmup and bool(self.squares[-1] > 0.0)

    @property
    def target_mean(self) -> float:
        """The target's mean so far."""
        return float(self.means[-1])

    def scale(self, inputs: FloatArray) -> FloatArray:
        """Scale inputs as those of the next row, without adding them; shape (d,)."""
        return _scaled(inputs, self._with(inputs, np.nan), self.clip)

    def restore(self, prediction: float) -> float:
        """Return a scaled prediction in the unit of the target."""
        return float(self.means[-1] + np.sqrt(self.squares[-1] / max(self.rows, 1)) * prediction)

    def to_mapping(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "warmup": self.warmup,
            "clip": self.clip,
            "rows": self.rows,
            **{name: getattr(self, name)[:-1].tolist() for name in _STATE},
            "target": [self.target_mean, float(self.squares[-1])],
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Restore the state from :meth:`to_mapping`; ValueError if it is inconsistent."""
        arrays, (mean, squares) = [np.array(mapping[name], dtype=np.float64) for name in _STATE], mapping["target"]
        if len({array.shape for array in arrays}) > 1 or arrays[0].ndim != 1 or arrays[0].size == 0:
            raise ValueError("counts, means and squares must have the same length")
        scaling = cls(arrays[0].size, int(mapping["warmup"]), float(mapping["clip"]))
        for name, array, last in zip(_STATE, arrays, (int(mapping["rows"]), float(mean), float(squares)), strict=True):
            setattr(scaling, name, np.append(array, last))
        return scaling

    def _with(self, inputs: FloatArray, target: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return counts, means and squares after one more row (Welford's algorithm, which avoids cancellation)."""
        values = np.append(inputs, target)
        is_present = ~np.isnan(values)
        counts = self.counts + is_present
        step = np.where(is_present, values - self.means, 0.0)
        means = self.means + step / np.maximum(counts, 1.0)
        return counts, means, self.squares + step * np.where(is_present, values - means, 0.0)


def standardise(
    inputs: FloatArray, targets: FloatArray, warmup: int, clip: float
) -> tuple[FloatArray, FloatArray, int]:
    """Standardise one client's rows.

    Parameters
    ----------
    inputs, targets : array (rows, d), array (rows,)
        In the order of time, NaN where an input is missing.
    warmup : int
        Number of rows at the start that only feed the running means and are not samples.
    clip : float
        Inputs beyond this many standard deviations are set to it.

    Returns
    -------
    inputs, targets : array (samples, d), array (samples,)
        Rows after the warm-up; those that come before the target has varied are left out, too.
    clipped : int
        How many inputs were clipped.

    Examples
    --------
    >>> x, y, _ = standardise(np.array([[1.0], [3.0], [5.0]]), np.array([1.0, 3.0, 4.0]), 2, 5.0)
    >>> x.round(3).tolist(), y.tolist()  # (5 − 3)/√(8/3), (4 − 2)/1
    ([[1.225]], [2.0])
    """
    counts, means, squares = _running(np.column_stack([inputs, targets]))
    is_sample = np.append(False, squares[:-1, -1] > 0.0)[: len(targets)]
    is_sample[: max(warmup, 0)] = False
    before = np.flatnonzero(is_sample) - 1
    deviations = np.sqrt(squares[before, -1] / counts[before, -1])
    scaled = _scaled(inputs[is_sample], (counts[is_sample], means[is_sample], squares[is_sample]), np.inf)
    clipped = int(np.count_nonzero(np.abs(scaled) > clip))
    return np.clip(scaled, -clip, clip), (targets[is_sample] - means[before, -1]) / deviations, clipped


def running_deviation(values: FloatArray) -> FloatArray:
    """Return the standard deviation of the values up to each one, shape (rows,)."""
    counts, _, squares = _running(values[:, None])
    return np.asarray(np.sqrt(squares[:, 0] / counts[:, 0]))


def _running(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return counts, means and sums of squared distances after each row, each of the shape of `values`.

    Sums are of distances from each column's first value, and squares of (x − m_{n−1})(x − m_n), as Welford's: so
    neither cancels, however far the mean is from 0.
    """
    is_present = ~np.isnan(values)
    counts = np.cumsum(is_present, axis=0).astype(np.float64)
    columns = np.arange(values.shape[1])
    first = np.nan_to_num(values[np.argmax(is_present, axis=0), columns]) if len(values) else np.zeros(columns.size)
    shifted = np.where(is_present, values - first, 0.0)
    means = np.cumsum(shifted, axis=0) / np.maximum(counts, 1.0)
    previous = np.vstack([np.zeros((1, columns.size)), means[:-1]])[: len(values)]
    squares = np.cumsum(np.where(is_present, (shifted - previous) * (shifted - means), 0.0), axis=0)
    return counts, first + means, squares


def _scaled(inputs: FloatArray, statistics: tuple[FloatArray, FloatArray, FloatArray], clip: float) -> FloatArray:
    """Scale inputs (…, d) with counts, means and squares (…, d + 1), whose last column is the target's."""
    counts, means, squares = (of[..., :-1] for of in statistics)
    is_present = ~np.isnan(inputs) & (squares > 0.0)
    deviations = np.sqrt(np.where(is_present, squares, 1.0) / np.maximum(counts, 1.0))
    return np.clip(np.where(is_present, (inputs - means) / deviations, 0.0), -clip, clip)
