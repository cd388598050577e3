"""Online standardisation: every value is scaled by what its client has seen so far, never by what comes later.

For a client's row n, with running mean m and standard deviation s of each column over its rows 0 … n:

    x̃_j = clip((x_j − m_{j,n}) / s_{j,n}),        ỹ = (y − m_{y,n−1}) / s_{y,n−1}

An input may be scaled with itself, since it is known before the prediction is made. The target may not: it is scaled by
the rows before it, so that ŷ = m_{y,n−1} + s_{y,n−1} w·x̃ is a forecast anyone could have made. A missing input counts
as average (x̃ = 0) and leaves m and s alone; so does a column that has not varied yet. ỹ = 0 is the forecast "as on
average so far", hence an MSE of 1 is about what no model at all achieves.
"""

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled


def standardise(
    inputs: FloatArray, targets: FloatArray, warmup: int, clip: float
) -> tuple[FloatArray, FloatArray, int]:
    """Standardise one client's rows.

    Parameters
    ----------
    inputs, targets : array (rows, d), array (rows,)
        In the order of time, NaN where an input is missing.
    warmup : int
        So many rows at the start only feed the running means; they are not samples.
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
    rows, width = inputs.shape
    out_inputs, out_targets = np.empty((rows, width)), np.empty(rows)
    samples, clipped = _standardise(inputs, targets, warmup, clip, out_inputs, out_targets)
    return out_inputs[:samples].copy(), out_targets[:samples].copy(), int(clipped)


@compiled
def _standardise(inputs, targets, warmup, clip, out_inputs, out_targets):
    rows, width = inputs.shape
    count, mean, squares = np.zeros(width), np.zeros(width), np.zeros(width)
    target_mean, target_squares = 0.0, 0.0
    samples, clipped = 0, 0
    for n in range(rows):
        is_sample = n >= warmup and target_squares > 0.0
        for j in range(width):
            x = inputs[n, j]
            value = 0.0
            if not np.isnan(x):
                # Welford's update: no cancellation however far the mean is from 0.
                count[j] += 1.0
                step = x - mean[j]
                mean[j] += step / count[j]
                squares[j] += step * (x - mean[j])
                if squares[j] > 0.0:
                    value = (x - mean[j]) / np.sqrt(squares[j] / count[j])
            if abs(value) > clip:
                value = clip if value > 0.0 else -clip
                clipped += is_sample
            if is_sample:
                out_inputs[samples, j] = value
        if is_sample:
            out_targets[samples] = (targets[n] - target_mean) / np.sqrt(target_squares / n)
            samples += 1
        step = targets[n] - target_mean
        target_mean += step / (n + 1)
        target_squares += step * (targets[n] - target_mean)
    return samples, clipped
