"""Fixed points x = F x + s and dominant eigenvalues of linear maps F that are only known by their action on vectors.

GMRES follows Saad and Schultz, with these deviations, each for a reason:

1. N systems of one size, x and s of shape (N, size), are solved as one: sets of offsets are many small systems that are
   much alike, and NumPy's overhead per operation is then paid once for all.
2. Projections are matrix products (classical Gram–Schmidt), taken twice: "twice is enough" (Kahan and Parlett).
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
    if size > _SMALL:
        x, residual = gmres(linear, source / scale, tolerance)
        if residual <= max(_ACCEPTED, tolerance):
            return np.asarray(x * scale)
        if size > _DENSE_AFTER_ALL:
            raise PsofedError(f"The steady state did not converge (relative residual {residual:.1e}).")
        # Close to the largest stable stepsize restarts may stall, and a matrix of this size is still affordable.
    matrices = np.eye(size) - as_matrices(linear, count, size)
    return np.asarray(np.linalg.solve(matrices, (source / scale)[..., None])[..., 0] * scale)


def gmres(linear: LinearMap, source: FloatArray, tolerance: float) -> tuple[FloatArray, float]:
    """Solve x − F x = `source` by restarted GMRES: the solution and its relative residual."""
    restart = max(10, min(_RESTART, _BASIS // source.size))
    x, residual = np.zeros_like(source), source
    norm = scale = float(np.linalg.norm(source))
    basis, hessenberg = np.empty((restart + 1, source.size)), np.zeros((restart + 1, restart))
    for _ in range(_CYCLES):
        if norm <= tolerance * scale:
            break
        basis[0], hessenberg[:] = residual.ravel() / norm, 0.0
        weights = np.zeros(0)
        for j in range(restart):
            direction = basis[j].reshape(source.shape)
            column = (direction - linear(direction)).ravel()
            for _ in range(2):
                part = basis[: j + 1] @ column
                column = column - part @ basis[: j + 1]
                hessenberg[: j + 1, j] += part
            length = hessenberg[j + 1, j] = np.linalg.norm(column)
            basis[j + 1] = column / (length or 1.0)
            if (j + 1) % max(4, j // 8) == 0 or j == restart - 1 or length < 1e-14:
                right = np.eye(j + 2)[0] * norm
                weights = np.linalg.lstsq(hessenberg[: j + 2, : j + 1], right)[0]
                left = np.linalg.norm(right - hessenberg[: j + 2, : j + 1] @ weights)
                if left <= tolerance * scale or length < 1e-14:
                    break
        x = x + (weights @ basis[: weights.size]).reshape(source.shape)
        residual = source - x + linear(x)
        before, norm = norm, float(np.linalg.norm(residual))
        if norm > 0.999 * before:
            break
    return x, norm / (scale or 1.0)


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
