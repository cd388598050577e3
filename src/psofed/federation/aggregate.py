"""The server's arithmetic, free of Flower: eq. (5) of the paper on flat vectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[Any]


def aggregate(
    model: Vector, uploads: Sequence[tuple[NDArray[np.int64], Vector]], weights: Sequence[float] | None = None
) -> Vector:
    """Return w_{n+1}, the average over participants of (uploaded entry, or w_n's where not shared).

    w_{n+1} = Σ_k a_k [S_{k,n+1} u_k + (I − S_{k,n+1}) w_n] / Σ_k a_k, with a_k = 1 but for `weights`.

    Parameters
    ----------
    model : array (D,)
        w_n.
    uploads : sequence of (indices, values)
        For every valid participant the positions S_{k,n+1} and its entries there, both of shape (M,).
    weights : sequence of float, optional
        a_k, at least one of them positive.

    Returns
    -------
    array (D,)
        A new vector of the type of `model`; a copy of it if there are no uploads. Sums are in float64.

    Examples
    --------
    >>> uploads = [(np.array([0]), np.array([4.0])), (np.array([1]), np.array([20.0]))]
    >>> aggregate(np.array([0.0, 10.0]), uploads)
    array([ 2., 15.])
    """
    result = model.astype(np.float64)
    if not uploads:
        return model.copy()
    shares = np.ones(len(uploads)) if weights is None else np.asarray(weights, dtype=np.float64)
    shares = shares / shares.sum()
    change = np.zeros_like(result)
    for (indices, values), share in zip(uploads, shares, strict=True):
        change[indices] += share * (values.astype(np.float64) - result[indices])
    return np.asarray((result + change).astype(model.dtype))


def overwrite(model: Vector, indices: NDArray[np.int64], values: Vector) -> Vector:
    """Return a copy of a client's model with the server's values at `indices`: (I − S_{k,n}) w_k + S_{k,n} w.

    Examples
    --------
    >>> overwrite(np.zeros(3), np.array([1]), np.array([5.0]))
    array([0., 5., 0.])
    """
    result = model.copy()
    result[indices] = values
    return result
