"""Groups of clients that follow the same law, found from the rows before a moment.

Client k's law is its weights w_k, estimated from its past rows and drawn towards those of all clients together, w̄:

    w_k = w̄ + (S_k + D R̄)⁻¹ (p_k − S_k w̄),        S_k = Σ x xᵀ,   p_k = Σ x y,   R̄ = mean of S_k/n_k.

In the coordinates z_k = R̄^{1/2} (w_k − w̄) a squared distance is the error that one client's law adds to the other's
forecasts, and each coordinate is uncertain by v_k = σ_k²/n_k, times a factor for noise that is correlated in time.

All clients start as one group. A group of m clients is split in two, of which the smaller has s, if

    (π_a π_b/(π_a + π_b)) ‖z_a − z_b‖² > D + 2 √(D t) + 2 t,    t = log C(m, s) + log(m/0.01),

with z_a, z_b the halves' means weighted by 1/v_k and π_a, π_b the sums of these weights. The left side is χ²_D for two
halves that follow one law and were not chosen by the data; the right side bounds the largest of all C(m, s) such
choices (Laurent and Massart 2000, and a union bound). So clients of one law are rarely split, however many they are.
Where noise is small they still can be: values are scaled by each client's own past, and small differences in scale
look like other laws. So the adviser also tries the groups before each split (:mod:`psofed.studies.advice.search`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray

Clients = tuple[int, ...]

_FALSE_SPLITS = 0.01
_ROUNDS = 20


@dataclass(frozen=True)
class LawTree:
    """A group of clients, and the groups of one law each that it was split into, if it was."""

    clients: Clients
    parts: "tuple[LawTree, ...]" = ()

    @property
    def nodes(self) -> "tuple[LawTree, ...]":
        """The tree itself and all below it."""
        return (self, *(node for part in self.parts for node in part.nodes))

    @property
    def groups(self) -> tuple[Clients, ...]:
        """The groups of one law, the largest first."""
        leaves = (node.clients for node in self.nodes if not node.parts)
        return tuple(sorted(leaves, key=lambda group: (-len(group), group)))


@dataclass(frozen=True, eq=False)
class Laws:
    """Laws of all clients as points whose squared distances are errors.

    Attributes
    ----------
    points : array (K, D)
        z_k.
    variances : array (K,)
        v_k, of each coordinate; infinite for a client without rows.
    """

    points: FloatArray
    variances: FloatArray


def estimate_laws(
    inputs: Sequence[FloatArray], targets: Sequence[FloatArray], edges: NDArray[np.int64]
) -> Laws:
    """Estimate every client's law from its rows before the last of `edges`, which cut time into blocks.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = [rng.standard_normal((60, 2)) for _ in range(8)]
    >>> y = [(2 * (k % 2) - 1) * rows[:, 0] + rng.standard_normal(60) for k, rows in enumerate(x)]
    >>> split_by_law(estimate_laws(x, y, np.arange(0, 61, 10))).groups
    ((0, 2, 4, 6), (1, 3, 5, 7))
    """
    dimension, end = inputs[0].shape[1], int(edges[-1])
    past = [(x[:end], y[:end]) for x, y in zip(inputs, targets, strict=True)]
    rows = np.array([len(y) for _, y in past], np.float64)
    squares = np.array([x.T @ x for x, _ in past])
    products = np.array([y @ x for x, y in past])
    some = np.maximum(rows, 1.0)
    covariance = (squares / some[:, None, None]).mean(axis=0) + 1e-9 * np.eye(dimension)
    common = np.linalg.solve(squares.sum(axis=0) + 1e-6 * covariance, products.sum(axis=0))
    drawn = squares + dimension * covariance
    weights = common + np.linalg.solve(drawn, (products - squares @ common)[..., None])[..., 0]
    degrees = np.trace(np.linalg.solve(drawn, squares), axis1=1, axis2=2)
    residuals = [y - x @ w for (x, y), w in zip(past, weights, strict=True)]
    noise = np.array([e @ e for e in residuals]) / np.maximum(rows - degrees, 1.0)
    with np.errstate(divide="ignore"):
        variances = np.where(rows > 0, noise / rows * _inflation(past, residuals, edges), np.inf)
    factor = np.linalg.cholesky(covariance)
    return Laws((weights - common) @ factor, np.maximum(variances, 1e-12))


def split_by_law(laws: Laws, clients: Clients | None = None) -> LawTree:
    """Split clients (by default all) into groups of the same law, again and again."""
    group = np.arange(len(laws.points)) if clients is None else np.array(clients)
    half = _split(laws.points[group], 1.0 / laws.variances[group])
    parts = () if half is None else (group[half], group[~half])
    return LawTree(tuple(group.tolist()), tuple(split_by_law(laws, tuple(part.tolist())) for part in parts))


def _split(points: FloatArray, weights: FloatArray) -> NDArray[np.bool_] | None:
    """Return the half of a group to part from the other, or None if one law may hold for all."""
    count, dimension = points.shape
    if count < 2 or not weights.any():
        return None
    centred = points - weights @ points / weights.sum()
    reach = weights * (centred**2).sum(axis=1)
    _, _, directions = np.linalg.svd(centred * np.sqrt(weights)[:, None], full_matrices=False)
    farthest = np.arange(count) == np.argmax(reach)
    best, excess = None, 1.0
    for half in (centred @ directions[0] > 0, farthest):
        for _ in range(_ROUNDS):
            if not (half & (weights > 0)).any() or not (~half & (weights > 0)).any():
                break
            means = [weights[side] @ points[side] / weights[side].sum() for side in (half, ~half)]
            nearer = ((points - means[0]) ** 2).sum(axis=1) < ((points - means[1]) ** 2).sum(axis=1)
            if (nearer == half).all():
                break
            half = nearer
        first, second = weights[half].sum(), weights[~half].sum()
        if not first or not second:
            continue
        gap = weights[half] @ points[half] / first - weights[~half] @ points[~half] / second
        ratio = (
            first * second / (first + second) * float(gap @ gap) / _bound(count, int(half.sum()), dimension)
        )
        if ratio > excess:
            best, excess = half, ratio
    return best


def _bound(count: int, part: int, dimension: int) -> float:
    choices = math.lgamma(count + 1) - math.lgamma(part + 1) - math.lgamma(count - part + 1)
    t = choices + math.log(count / _FALSE_SPLITS)
    return dimension + 2 * math.sqrt(dimension * t) + 2 * t


def _inflation(
    past: Sequence[tuple[FloatArray, FloatArray]], residuals: Sequence[FloatArray], edges: NDArray[np.int64]
) -> float:
    """Return by what factor correlation in time makes laws less certain: sums of x e within blocks against rows."""
    in_blocks = by_row = 0.0
    blocks = len(edges) - 1
    for (x, _), e in zip(past, residuals, strict=True):
        scores = x * e[:, None]
        starts = edges[:-1][edges[:-1] < len(e)]
        if starts.size:
            in_blocks += float((np.add.reduceat(scores, starts, axis=0) ** 2).sum())
            by_row += float((scores**2).sum())
    if blocks < 2 or not by_row:
        return 1.0
    return max(1.0, in_blocks / by_row * blocks / (blocks - 1))
