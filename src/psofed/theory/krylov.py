"""Fixed points x = F x + s and dominant eigenvalues of linear maps F that are only known by their action on vectors.

GMRES follows Saad and Schultz, with these deviations, each for a reason:

1. It solves N systems of one size side by side, x and s of shape (N, size): sets of offsets are many small systems, and
   NumPy's overhead per operation is then paid once for all. A system that has converged continues with the others; its
   next directions may be zero.
2. Projections are matrix products (classical Gram–Schmidt), taken twice where much cancels: "twice is enough" (Kahan
   and Parlett).
3. Restarting ends where a cycle no longer helps: rounding lets it go no further.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray

LinearMap = Callable[[FloatArray], FloatArray]

_SMALL = 40  # unknowns up to which a dense matrix is used
_DENSE_AFTER_ALL = 3000  # unknowns up to which a system that GMRES does not solve is solved directly
_RESTART, _CYCLES = 400, 100
_BASIS = 40_000_000  # numbers in a basis: a third of a gigabyte
_CANCELLED = 0.3  # of a direction's length left after a projection: below, it is taken again
_ACCEPTED = 1e-6  # relative residual beyond which there is no answer


def solve_fixed_points(linear: LinearMap, source: FloatArray, tolerance: float) -> FloatArray:
    """Solve N systems x = F x + `source`, (N, size), to a relative `tolerance` of each residual.

    Examples
    --------
    >>> factors = np.array([[0.5], [0.9]])
    >>> solve_fixed_points(lambda x: factors * x, np.ones((2, 3)), 1e-10).round(6)
    array([[ 2.,  2.,  2.],
           [10., 10., 10.]])
    """
    count, size = source.shape
    peak = np.abs(source).max(axis=1, initial=0.0, keepdims=True)
    scale = np.where(peak == 0.0, 1.0, peak)
    if size <= _SMALL:
        matrices = np.eye(size) - as_matrices(linear, count, size)
        return np.asarray(np.linalg.solve(matrices, (source / scale)[..., None])[..., 0] * scale)
    x, residual = gmres(linear, source / scale, tolerance)
    stuck = ~(residual <= max(_ACCEPTED, tolerance))
    if np.any(stuck):
        if size > _DENSE_AFTER_ALL:
            raise PsofedError(f"The steady state did not converge (relative residual {residual.max():.1e}).")
        # Close to the largest stable stepsize restarts may stall, and a matrix of this size is still affordable.
        matrices = np.eye(size) - as_matrices(linear, count, size)
        x = np.asarray(np.linalg.solve(matrices, (source / scale)[..., None])[..., 0], dtype=np.float64)
    return np.asarray(x * scale)


def gmres(linear: LinearMap, source: FloatArray, tolerance: float) -> tuple[FloatArray, FloatArray]:
    """Solve N systems x − F x = `source` by restarted GMRES: solutions (N, size) and relative residuals (N,)."""
    count, size = source.shape
    restart = max(10, min(_RESTART, _BASIS // source.size))
    x, residual = np.zeros_like(source), source
    norm = scale = np.linalg.norm(source, axis=1)
    wanted = tolerance * scale
    basis = np.empty((count, restart + 1, size))
    for _ in range(_CYCLES):
        if not np.any(norm > wanted):
            break
        basis[:, 0] = _unit(residual, norm)
        hessenberg = np.zeros((count, restart + 1, restart))
        weights = np.zeros((count, 0))
        for j in range(restart):
            column = basis[:, j] - linear(basis[:, j])
            span = basis[:, : j + 1]
            length = whole = np.linalg.norm(column, axis=1)
            for _ in range(2):
                if np.all(length > _CANCELLED * whole) and hessenberg[:, : j + 1, j].any():
                    break
                part = (span @ column[:, :, None])[:, :, 0]
                column = column - (part[:, None] @ span)[:, 0]
                hessenberg[:, : j + 1, j] += part
                length = np.linalg.norm(column, axis=1)
            hessenberg[:, j + 1, j] = length
            basis[:, j + 1] = _unit(column, length)
            if (j + 1) % max(4, j // 8) == 0 or j == restart - 1 or not np.any(length > 1e-14):
                weights, left = _least_squares(hessenberg[:, : j + 2, : j + 1], norm)
                if not np.any(left > wanted):
                    break
        x = x + (weights[:, None] @ basis[:, : weights.shape[1]])[:, 0]
        residual = source - x + linear(x)
        before, norm = norm, np.linalg.norm(residual, axis=1)
        if not np.any((norm > wanted) & (norm <= 0.999 * before)):
            break
    return x, norm / np.where(scale == 0.0, 1.0, scale)


def _least_squares(hessenberg: FloatArray, norm: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Minimise ‖norm e₁ − H y‖ of each system: y (N, j) and what is left (N,)."""
    right = np.zeros(hessenberg.shape[:2])
    right[:, 0] = norm
    orthogonal, triangle = np.linalg.qr(hessenberg)
    corner = np.arange(triangle.shape[-1])
    triangle[:, corner, corner] += np.where(triangle[:, corner, corner] == 0.0, 1.0, 0.0)  # directions of length 0
    weights = np.linalg.solve(triangle, orthogonal.swapaxes(1, 2) @ right[..., None])[..., 0]
    left = right - (hessenberg @ weights[..., None])[..., 0]
    return weights, np.linalg.norm(left, axis=1)


def dominant_eigenvalue(linear: LinearMap, start: FloatArray, tolerance: float = 1e-8) -> float:
    """Spectral radius of a map that takes covariances to covariances.

    Such a map has its spectral radius as an eigenvalue (Krein and Rutman), so the eigenvalue with the largest real part
    is the one to look for.

    Examples
    --------
    >>> round(dominant_eigenvalue(lambda x: np.array([0.9, 0.5]) * x, np.ones(2)), 12)
    0.9
    """
    size = start.size
    if size <= _SMALL:
        matrix = as_matrices(lambda x: linear(x[0])[None], 1, size)[0]
        return float(np.linalg.eigvals(matrix).real.max()) if np.isfinite(matrix).all() else np.inf
    if not np.isfinite(linear(start)).all():
        return np.inf
    operator = LinearOperator((size, size), matvec=linear, dtype=np.float64)
    try:
        values = eigs(
            operator, k=1, which="LR", v0=start, return_eigenvectors=False, tol=tolerance, ncv=20, maxiter=3000
        )
    except ArpackNoConvergence as error:
        values = error.eigenvalues
        if len(values) == 0:
            raise PsofedError("The spectral radius did not converge.") from None
    return float(values.real.max())


def as_matrices(linear: LinearMap, count: int, size: int) -> FloatArray:
    """Return the matrices (N, size, size) of N linear maps."""
    columns = [linear(np.broadcast_to(column, (count, size))) for column in np.eye(size)]
    return np.stack(columns, axis=2)


def _unit(vectors: FloatArray, lengths: FloatArray) -> FloatArray:
    """Divide vectors (N, size) by their lengths; those of length 0 stay 0."""
    return np.asarray(vectors / np.where(lengths == 0.0, 1.0, lengths)[:, None])
