"""Fixed points and dominant eigenvalues of linear maps that are only known by what they do to a vector."""

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray

LinearMap = Callable[[FloatArray], FloatArray]

_SMALL = 24  # up to here a dense matrix is cheaper than a Krylov method, and ARPACK needs more
_TOLERANCE = 1e-10
_LARGE, _LARGE_TOLERANCE = 20_000, 1e-8  # where each digit costs, eight are more than a prediction needs


def solve_fixed_point(linear: LinearMap, source: FloatArray, guess: FloatArray | None = None) -> FloatArray:
    """Solve x = F x + `source` for a map F = `linear` with spectral radius below one.

    Examples
    --------
    >>> solve_fixed_point(lambda x: 0.5 * x, np.array([1.0, 2.0])).round(6)
    array([2., 4.])
    """
    size = source.size
    peak = float(np.abs(source).max(initial=0.0))
    if peak == 0.0:
        return np.zeros(size)
    if not 1e-100 < peak < 1e100:
        # Squares of such numbers are 0 or infinite; the solution is in proportion to the source.
        return peak * solve_fixed_point(linear, source / peak, guess)
    if size <= _SMALL:
        return np.asarray(np.linalg.solve(np.eye(size) - as_matrix(linear, size), source), dtype=np.float64)
    # The unknowns (server, cross, own) span orders of magnitude that GMRES sees through the residual's norm alone,
    # so the tolerance is far below what is asked of a prediction.
    restart = int(np.clip(2**28 // (8 * size), 10, 80))
    tolerance = _TOLERANCE if size < _LARGE else _LARGE_TOLERANCE
    x, residual = _gmres(linear, source, guess, tolerance, restart)
    if not residual < 1e-6:
        raise PsofedError(f"the steady state did not converge (relative residual {residual:.1e})")
    return x


def _gmres(
    linear: LinearMap, source: FloatArray, guess: FloatArray | None, tolerance: float, restart: int
) -> tuple[FloatArray, float]:
    """Restarted GMRES on x − F x = `source`: the solution and its relative residual.

    As SciPy's, with Gram and Schmidt's projections taken as matrix products: a fraction of the overhead.
    """
    x = np.zeros_like(source) if guess is None else guess.copy()
    scale = float(np.linalg.norm(source))
    residual = source if guess is None else source - x + linear(x)
    norm = float(np.linalg.norm(residual))
    basis = np.empty((restart + 1, source.size))
    for _ in range(100):
        if not norm > tolerance * scale:
            break
        hessenberg, right = np.zeros((restart + 1, restart)), np.zeros(restart + 1)
        rotations: list[tuple[float, float]] = []
        basis[0], right[0], used = residual / norm, norm, 0
        for j in range(restart):
            column = basis[j] - linear(basis[j])
            weights = np.zeros(j + 1)
            for _ in range(2):  # twice is enough (Kahan and Parlett)
                part = basis[: j + 1] @ column
                column = column - part @ basis[: j + 1]
                weights += part
            length = float(np.linalg.norm(column))
            for i, (cosine, sine) in enumerate(rotations):
                following = weights[i + 1]
                weights[i + 1] = cosine * following - sine * weights[i]
                weights[i] = cosine * weights[i] + sine * following
            radius = math.hypot(weights[j], length)
            if radius == 0.0:
                break
            cosine, sine = weights[j] / radius, length / radius
            rotations.append((cosine, sine))
            weights[j] = radius
            hessenberg[: j + 1, j] = weights
            right[j + 1], right[j] = -sine * right[j], cosine * right[j]
            used = j + 1
            if abs(right[used]) <= tolerance * scale or length == 0.0:
                break
            basis[used] = column / length
        if used == 0:
            break
        answer = solve_triangular(hessenberg[:used, :used], right[:used])
        x = x + answer @ basis[:used]
        residual = source - x + linear(x)
        before, norm = norm, float(np.linalg.norm(residual))
        if norm > 0.999 * before:
            break  # as far as rounding lets it
    return x, norm / scale


def dominant_eigenvalue(linear: LinearMap, start: FloatArray) -> float:
    """Largest modulus among the eigenvalues of a map that keeps covariances covariances.

    Such a map has its spectral radius as an eigenvalue (Krein and Rutman).

    Examples
    --------
    >>> round(dominant_eigenvalue(lambda x: np.array([0.9, 0.5]) * x, np.ones(2)), 12)
    0.9
    """
    size = start.size
    if size <= _SMALL:
        return float(np.abs(np.linalg.eigvals(as_matrix(linear, size))).max())
    operator = LinearOperator((size, size), matvec=linear, dtype=np.float64)
    try:
        values = eigs(
            operator, k=1, which="LR", v0=start, return_eigenvectors=False, tol=1e-8, ncv=20, maxiter=3000
        )
    except ArpackNoConvergence as error:
        values = error.eigenvalues
        if len(values) == 0:
            raise PsofedError("the spectral radius did not converge") from None
    return float(np.abs(values).max())


def as_matrix(linear: LinearMap, size: int) -> FloatArray:
    """Return the matrix of a linear map."""
    return np.stack([linear(column) for column in np.eye(size)], axis=1)
