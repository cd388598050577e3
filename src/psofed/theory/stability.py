"""For which stepsizes the moments stay bounded: sufficient bounds, and the true mean-square limit.

With λ the eigenvalues of the clients' covariances R_k (``fleet``), μ (a stepsize) suffices for

    convergence in the mean         μ < 2 / max λ(R_k)                                     (cond)
    a contraction of every E‖w̃_k‖²  μ < min_k 2 / (2 λ_max(R_k) + tr R_k)
    the paper's mean square         μ < min{1/λ_max(𝓚⁻¹𝓗), 1/max{λ(𝓓) ∈ ℝ, 0}}             (rhoFcond).

The true limit is the μ with ρ(𝓕(μ)) = 1, found from ``growth(μ)``, which is below one exactly where ρ(𝓕(μ)) is.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from psofed.common.types import FloatArray
from psofed.fleet import Fleet


def mean_stepsize_bound(fleet: Fleet) -> float:
    """Stepsizes below 2 / max λ_i(R_k) converge in the mean (cond).

    Examples
    --------
    >>> from psofed import Data, Scenario, draw_fleet
    >>> mean_stepsize_bound(draw_fleet(Scenario(num_clients=5, dimension=3, data=Data(input_variance=0.5))))
    4.0
    """
    largest = float(fleet.input_variance.max() if fleet.is_white else _eigenvalues(fleet).max())
    return 2.0 / largest if largest > 0 else math.inf


def contraction_bound(fleet: Fleet) -> float:
    """Stepsizes below min_k 2 / (2 λ_max(R_k) + tr R_k) are stable: the LMS step shrinks E‖w̃_k‖² of every client.

    E[(I − μxxᵀ)²] = I − 2μR + μ²(2R² + R tr R) for Gaussian inputs, whose eigenvalues are below 1 there; downloads and
    honest uploads take convex combinations of errors, which never make the largest E‖·‖² larger if masks are random
    (:attr:`.TheoryModel.is_bounded`). Sufficient, not necessary.

    Examples
    --------
    >>> from psofed import Data, Scenario, draw_fleet
    >>> fleet = draw_fleet(Scenario(num_clients=5, dimension=5, data=Data(input_variance=1.2)))
    >>> round(contraction_bound(fleet), 4)  # white inputs: the paper's bound
    0.2381
    """
    if fleet.is_white:
        largest = float((fleet.input_variance * (fleet.target.size + 2)).max())
        return 2.0 / largest if largest > 0 else math.inf
    values = _eigenvalues(fleet)
    largest = float((2.0 * values.max(axis=1) + values.sum(axis=1)).max())
    return 2.0 / largest if largest > 0 else math.inf


def mean_square_stepsize_bound(fleet: Fleet) -> float:
    """Stepsizes below this bound converge in the mean square (rhoFcond), with 𝓚⁻¹ taken on its range.

    The bound is min{1/λ_max(𝓚⁻¹𝓗), 1/max{λ(𝓓) ∈ ℝ, 0}}. Both matrices fall apart into the blocks of pairs of clients.
    In the eigenvectors of R_k and R_l, 𝓚 and 𝓗 are λ_i + λ_j and λ_i λ_j for k ≠ l; for k = l they are λ_i + λ_j and
    2λ_i λ_j, but for the diagonal i = j, where they are 2Λ and 2Λ² + λλᵀ. This diagonal alone decides: there 𝓚⁻¹𝓗 is
    similar to Λ + ½ √λ √λᵀ, whose largest eigenvalue is at least ³⁄₂ λ_max. Other terms of the first kind are at most
    λ_max. Those of the second kind are stepsizes at which I − μ𝓚 + μ²𝓗 has the eigenvalue −1, none below 2/λ_max but
    for k = l, where it takes covariances to covariances and has its spectral radius as an eigenvalue.

    Examples
    --------
    >>> from psofed import Data, Scenario, draw_fleet
    >>> fleet = draw_fleet(Scenario(num_clients=5, dimension=5, data=Data(input_variance=1.2)))
    >>> round(mean_square_stepsize_bound(fleet), 4)  # white inputs: 2 / ((D + 2) ς²)
    0.2381
    """
    if fleet.is_white:
        return contraction_bound(fleet)
    values = np.unique(np.maximum(_eigenvalues(fleet), 0.0), axis=0)
    root = np.sqrt(values)
    fourth = values[:, None] * np.eye(values.shape[1]) + 0.5 * root[:, :, None] * root[:, None]
    largest = float(np.linalg.eigvalsh(fourth).max())
    return 1.0 / largest if largest > 0 else math.inf


def stability_limit(growth: Callable[[float], float], guess: float, tolerance: float = 1e-7) -> float:
    """Find the largest stepsize with growth(μ) < 1, near `guess` and upwards, from below to a relative `tolerance`.

    `growth` is below one exactly where the recursion is stable: for small stepsizes, up to the limit.

    Examples
    --------
    >>> round(stability_limit(lambda mu: (1 - mu) ** 2 + mu**2, guess=0.3), 6)
    1.0
    """
    from scipy.optimize import brentq

    @cache
    def excess(stepsize: float) -> float:
        value = growth(stepsize)
        return min(math.log(max(value, 1e-300)), 1.0) if value != 1.0 else 1e-12

    if not math.isfinite(guess):
        return math.inf
    low = guess
    while excess(low) > 0.0:
        low *= 0.5
        if low < 1e-12:
            return 0.0
    high = 1.25 * low
    while excess(high) < 0.0:
        low, high = high, 1.25 * high
        if high > 1e6 * guess:
            return math.inf
    limit = float(brentq(excess, low, high, xtol=1e-300, rtol=0.1 * tolerance))
    while excess(limit) > -1e-10:
        limit *= 1.0 - 0.1 * tolerance
    return limit


def _eigenvalues(fleet: Fleet) -> FloatArray:
    """λ_i(R_k), shape (K, D)."""
    return np.asarray(np.linalg.eigvalsh(fleet.covariances()), dtype=np.float64)
