"""For which stepsizes the moments stay bounded: sufficient bounds, and the true mean-square limit.

With λ the eigenvalues of the clients' covariances R_k (``fleet``), μ (a stepsize) suffices for

    convergence in the mean         μ < 2 / max λ(R_k)                                     (cond)
    a contraction of every E‖w̃_k‖²  μ < min_k 2 / (2 λ_max(R_k) + tr R_k)
    the paper's mean square         μ < min{1/λ_max(𝓚⁻¹𝓗), 1/max{λ(𝓓) ∈ ℝ, 0}}             (rhoFcond).

The true limit is the μ with ρ(𝓕(μ)) = 1, found from ``growth(μ)``, which is below one exactly where ρ(𝓕(μ)) is.
"""

import math
from collections.abc import Callable

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

    The bound is min{1/λ_max(𝓚⁻¹𝓗), 1/max{λ(𝓓) ∈ ℝ, 0}}. Both matrices fall apart into the blocks of pairs of
    clients: in the eigenvectors of R_k and R_l, 𝓚 and 𝓗 are λ_i + λ_j and λ_i λ_j for k ≠ l; for k = l they are
    λ_i + λ_j and 2λ_i λ_j, but for the diagonal i = j, where they are 2Λ and 2Λ² + λλᵀ.

    Examples
    --------
    >>> from psofed import Data, Scenario, draw_fleet
    >>> fleet = draw_fleet(Scenario(num_clients=5, dimension=5, data=Data(input_variance=1.2)))
    >>> round(mean_square_stepsize_bound(fleet), 4)  # white inputs: 2 / ((D + 2) ς²)
    0.2381
    """
    if fleet.is_white:
        # In the terms below λ_i = ς²: the largest is (D + 2) ς²/2, of the diagonal of k = l.
        return contraction_bound(fleet)
    values = _eigenvalues(fleet)
    rate, real = 0.0, 0.0
    for own in np.unique(values, axis=0):
        live = own[own > 0]
        if live.size == 0:
            continue
        # k = l: the diagonal couples through the trace, the rest is elementwise
        fourth = 2.0 * np.diag(live**2) + np.outer(live, live)
        rate = max(rate, float(np.linalg.eigvals(fourth / (2.0 * live[:, None])).real.max()))
        real = max(real, _largest_real(np.diag(live), fourth / 2.0))
        i, j = np.triu_indices(live.size, 1)
        rate = max(rate, float((2.0 * live[i] * live[j] / (live[i] + live[j])).max(initial=0.0)))
        real = max(real, _quadratic_root(live[i] + live[j], 2.0 * live[i] * live[j]))
        real = max(real, float(live.max()) / 2.0)  # server and client: 𝓗 is zero, 𝓚 is R_k
    distinct = np.unique(values[values > 0])
    if distinct.size:
        first, second = _pairs(distinct)
        # k ≠ l
        rate = max(rate, float((first * second / (first + second)).max()))
        real = max(real, _quadratic_root(first + second, first * second))
    largest = max(rate, real)
    return 1.0 / largest if largest > 0 else math.inf


def stability_limit(growth: Callable[[float], float], guess: float, tolerance: float = 1e-7) -> float:
    """Find the largest stepsize with growth(μ) < 1, near `guess` and upwards, from below to a relative `tolerance`.

    `growth` is below one exactly where the recursion is stable: for small stepsizes, up to the limit.

    Examples
    --------
    >>> round(stability_limit(lambda mu: (1 - mu) ** 2 + mu**2, guess=0.3), 6)
    1.0
    """
    if not math.isfinite(guess):
        return math.inf
    low = guess
    while growth(low) >= 1.0:
        low *= 0.5
        if low < 1e-12:
            return 0.0
    high = 1.25 * low
    while True:
        value = growth(high)
        if value >= 1.0:
            break
        low, high = high, 1.25 * high
        if high > 1e6 * guess:
            return math.inf
    f_low, f_high = _log(growth(low)), _log(value)
    for _ in range(60):
        if high - low <= tolerance * high:
            break
        middle = 0.5 * (low + high)
        if math.isfinite(f_high):
            secant = low - f_low * (high - low) / (f_high - f_low)
            # A secant step, kept a little inside so that the bracket shrinks from both ends
            margin = 0.02 * (high - low)
            middle = min(max(secant, low + margin), high - margin)
        value = _log(growth(middle))
        if value < 0.0:
            low, f_low = middle, value
        else:
            high, f_high = middle, value
        if abs(value) < 1e-10:
            break
    return low


def _log(value: float) -> float:
    return math.log(value) if 0 < value < math.inf else (math.inf if value > 0 else -math.inf)


def _eigenvalues(fleet: Fleet) -> FloatArray:
    """λ_i(R_k), shape (K, D)."""
    if fleet.is_white:
        return np.repeat(fleet.input_variance[:, None], fleet.target.size, axis=1)
    return np.asarray(np.linalg.eigvalsh(fleet.covariances()), dtype=np.float64)


def _largest_real(half_k: FloatArray, half_h: FloatArray) -> float:
    """Largest positive real eigenvalue of 𝓓 = [[𝓚/2, −𝓗/2], [I, 0]], 0 if there is none."""
    size = half_k.shape[0]
    matrix = np.block([[half_k, -half_h], [np.eye(size), np.zeros((size, size))]])
    values = np.linalg.eigvals(matrix)
    real = values.real[np.abs(values.imag) <= 1e-9 * np.abs(values)]
    return max(float(real.max(initial=0.0)), 0.0)


def _quadratic_root(k: FloatArray, h: FloatArray) -> float:
    """Largest real root of x² − x k/2 + h/2 over all entries, 0 if there is none."""
    discriminant = (k / 2.0) ** 2 - 2.0 * h
    roots = 0.5 * (k / 2.0 + np.sqrt(np.maximum(discriminant, 0.0)))
    return float(np.where(discriminant >= 0.0, roots, 0.0).max(initial=0.0))


def _pairs(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    # For each value the largest root pairs it with an extreme one (both rates are monotone in the partner), so
    # the ends of the sorted list suffice and a large fleet costs no K² pairs.
    ends = np.array([values[0], values[-1]])
    return np.repeat(values, 2), np.tile(ends, values.size)
