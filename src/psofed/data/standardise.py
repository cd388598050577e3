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
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from psofed.common.types import FloatArray
from psofed.settings.data import StreamSettings


@dataclass
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
    rows : int
        Rows seen so far.
    counts, means, squares : array (d,)
        For each input how many values there were, their mean, and the sum of their squared distances from it.
    target_mean, target_squares : float
        Likewise for the target.

    Examples
    --------
    >>> scaling = Standardiser(1, warmup=2)
    >>> [scaling.take(np.array([x]), y) for x, y in ((1.0, 1.0), (3.0, 3.0))]
    [None, None]
    >>> x, y = scaling.take(np.array([5.0]), 4.0)
    >>> x.round(3).tolist(), y  # (5 − 3)/√(8/3), (4 − 2)/1
    ([1.225], 2.0)
    """

    width: int
    warmup: int = StreamSettings.warmup
    clip: float = StreamSettings.clip
    rows: int = 0
    counts: FloatArray = field(default_factory=lambda: np.empty(0))
    means: FloatArray = field(default_factory=lambda: np.empty(0))
    squares: FloatArray = field(default_factory=lambda: np.empty(0))
    target_mean: float = 0.0
    target_squares: float = 0.0

    def __post_init__(self) -> None:
        if self.counts.size == 0:
            self.counts, self.means, self.squares = (np.zeros(self.width) for _ in range(3))

    def take(self, inputs: FloatArray, target: float) -> tuple[FloatArray, float] | None:
        """Add a row (NaN where an input is missing) and return it scaled, or None while there are too few rows."""
        counts, means, squares = self._with(inputs)
        sample = None
        if self.rows >= self.warmup and self.target_squares > 0.0:
            scaled = _scaled(inputs, counts, means, squares, self.clip)
            sample = scaled, (target - self.target_mean) / self.target_deviation
        self.counts, self.means, self.squares = counts, means, squares
        self.rows += 1
        step = target - self.target_mean
        self.target_mean += step / self.rows
        self.target_squares += step * (target - self.target_mean)
        return sample

    @property
    def is_ready(self) -> bool:
        """Whether enough rows have been seen to scale the next one."""
        return self.rows >= self.warmup and self.target_squares > 0.0

    @property
    def target_deviation(self) -> float:
        """The target's standard deviation so far."""
        return float(np.sqrt(self.target_squares / self.rows)) if self.rows else 0.0

    def scale(self, inputs: FloatArray) -> FloatArray:
        """Scale inputs as those of the next row, without adding them; shape (d,)."""
        return _scaled(inputs, *self._with(inputs), self.clip)

    def restore(self, prediction: float) -> float:
        """Return a scaled prediction in the unit of the target."""
        return self.target_mean + self.target_deviation * prediction

    def to_mapping(self) -> dict[str, Any]:
        """Return the state as plain values."""
        return {
            "warmup": self.warmup,
            "clip": self.clip,
            "rows": self.rows,
            "counts": self.counts.tolist(),
            "means": self.means.tolist(),
            "squares": self.squares.tolist(),
            "target": [self.target_mean, self.target_squares],
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Self:
        """Restore the state from :meth:`to_mapping`; ValueError if it is inconsistent."""
        counts, means, squares = (np.array(mapping[name], dtype=np.float64) for name in ("counts", "means", "squares"))
        if not counts.shape == means.shape == squares.shape or counts.ndim != 1 or counts.size == 0:
            raise ValueError("counts, means and squares must have the same length")
        mean, target_squares = mapping["target"]
        return cls(
            width=counts.size,
            warmup=int(mapping["warmup"]),
            clip=float(mapping["clip"]),
            rows=int(mapping["rows"]),
            counts=counts,
            means=means,
            squares=squares,
            target_mean=float(mean),
            target_squares=float(target_squares),
        )

    def _with(self, inputs: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return counts, means and squares after one more row (Welford's algorithm, which avoids cancellation)."""
        is_present = ~np.isnan(inputs)
        counts = self.counts + is_present
        step = np.where(is_present, inputs - self.means, 0.0)
        means = self.means + step / np.maximum(counts, 1.0)
        return counts, means, self.squares + step * np.where(is_present, inputs - means, 0.0)


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
    rows = len(targets)
    counts, means, squares = _running(inputs)
    target_counts, target_means, target_squares = _running(targets[:, None])
    is_sample = np.zeros(rows, dtype=bool)
    is_sample[1:] = target_squares[:-1, 0] > 0.0
    is_sample[: max(warmup, 0)] = False
    before = np.flatnonzero(is_sample) - 1
    deviations = np.sqrt(target_squares[before, 0] / target_counts[before, 0])
    scaled = _scaled(inputs[is_sample], counts[is_sample], means[is_sample], squares[is_sample], np.inf)
    clipped = int(np.count_nonzero(np.abs(scaled) > clip))
    scaled_targets = (targets[is_sample] - target_means[before, 0]) / deviations
    return np.clip(scaled, -clip, clip), scaled_targets, clipped


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


def _scaled(inputs: FloatArray, counts: FloatArray, means: FloatArray, squares: FloatArray, clip: float) -> FloatArray:
    is_present = ~np.isnan(inputs) & (squares > 0.0)
    deviations = np.sqrt(np.where(is_present, squares, 1.0) / np.maximum(counts, 1.0))
    return np.clip(np.where(is_present, (inputs - means) / deviations, 0.0), -clip, clip)
