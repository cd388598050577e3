"""Fixed points x = F x + s and dominant eigenvalues of linear maps F that are only known by their action on a vector.

GMRES follows Saad and Schultz, with these deviations, each for a reason:

1. It solves a batch of N systems of one size side by side, x and s of shape (N, size). Round-robin windows with an
offset
   per client are many small systems of the same shape; NumPy's overhead per operation is then paid once for the batch.
2. Projections are matrix products (classical Gram–Schmidt), taken twice where much cancels: "twice is enough" (Kahan
   and Parlett). SciPy's GMRES loops over single vectors: the same iterations and answers to 1e-12, in two to three
   times the time.
3. A system of the batch that has converged continues with the others. Its next directions may be zero, which the
   rotations below let pass.
4. Restarting ends where a cycle no longer helps: rounding lets it go no further.
5. Sources are scaled to one first where their squares would be 0 or infinite.
"""

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray

LinearMap = Callable[[FloatArray], FloatArray]

_SMALL = 24  # up to here a dense matrix is cheaper than a Krylov method, and ARPACK needs more
_TOLERANCE = 1e-10
_LARGE, _LARGE_TOLERANCE = 20_000, 1e-8  # where each digit costs, eight are more than a prediction needs
SAMPLED_TOLERANCE = (
    1e-6  # where a sample of offsets is averaged over, whose errors are a hundred times as large
)
_CYCLES = 100
_CANCELLED = 0.3  # of a direction's length left after a projection: below, it is taken again
_DENSE_AFTER_ALL = 3000  # unknowns up to which a system that GMRES does not solve is solved directly
_ACCEPTED = 1e-6  # relative residual beyond which there is no answer


def solve_fixed_point(linear: LinearMap, source: FloatArray, tolerance: float | None = None) -> FloatArray:
    """Solve x = F x + `source` for a map F = `linear` with spectral radius below one.

    `tolerance` is the relative residual to stop at; by default it depends on the size.

    Examples
    --------
    >>> solve_fixed_point(lambda x: 0.5 * x, np.array([1.0, 2.0])).round(6)
    array([2., 4.])
    """
    size = source.size
    peak = float(np.abs(source).max(initial=0.0))
    if peak == 0.0:
        return np.zeros(size)
    if size <= _SMALL:
        return np.asarray(np.linalg.solve(np.eye(size) - as_matrix(linear, size), source), dtype=np.float64)
    # The unknowns (server, cross, own) span orders of magnitude that GMRES sees through the residual's norm alone,
    # so the tolerance is far below what is asked of a prediction.
    tolerance = tolerance or (_TOLERANCE if size < _LARGE else _LARGE_TOLERANCE)
    try:
        solved = solve_fixed_points(lambda x: linear(x[0])[None], source[None], tolerance)
    except PsofedError:
        if size > _DENSE_AFTER_ALL:
            raise
        # Close to the largest stable stepsize restarts may stall, and a matrix of this size is still affordable.
        return np.asarray(np.linalg.solve(np.eye(size) - as_matrix(linear, size), source))
    return np.asarray(solved[0])


def solve_fixed_points(linear: LinearMap, source: FloatArray, tolerance: float) -> FloatArray:
    """Solve N systems x = F x + `source`, (N, size), to a relative `tolerance` of each residual.

    Examples
    --------
    >>> factors = np.array([[0.5], [0.9]])
    >>> solve_fixed_points(lambda x: factors * x, np.ones((2, 3)), 1e-10).round(6)
    array([[ 2.,  2.,  2.],
           [10., 10., 10.]])
    """
    peak = np.abs(source).max(axis=1, initial=0.0, keepdims=True)
    scale = np.where((peak > 1e-100) & (peak < 1e100) | (peak == 0.0), 1.0, peak)
    # The basis takes at most a quarter of a gigabyte, unless that leaves too few directions.
    restart = int(np.clip(2**28 // (8 * source.size), 10, 80))
    x, residual = gmres(linear, source / scale, tolerance, restart)
    if not residual.max() < _ACCEPTED:
        raise PsofedError(f"The steady state did not converge (relative residual {residual.max():.1e}).")
    return x * scale


def gmres(
    linear: LinearMap, source: FloatArray, tolerance: float, restart: int
) -> tuple[FloatArray, FloatArray]:
    """Solve N systems x − F x = `source` by restarted GMRES: solutions (N, size) and relative residuals (N,)."""
    count, size = source.shape
    x, residual = np.zeros_like(source), source
    norm = scale = np.linalg.norm(source, axis=1)
    wanted = tolerance * scale
    basis = np.empty((count, restart + 1, size))
    for _ in range(_CYCLES):
        if not np.any(norm > wanted):
            break
        hessenberg, right = np.zeros((count, restart, restart)), np.zeros((count, restart + 1))
        rotation = np.zeros((count, restart + 1, restart + 1))
        rotation[:, 0, 0] = 1.0
        basis[:, 0], right[:, 0] = _unit(residual, norm), norm
        used = 0
        for j in range(restart):
            column = (basis[:, j] - linear(basis[:, j]))[:, :, None]
            span = basis[:, : j + 1]
            whole = np.linalg.norm(column, axis=1)
            part = span @ column
            column = column - (part.swapaxes(1, 2) @ span).swapaxes(1, 2)
            length = np.linalg.norm(column, axis=1)
            if np.any(length < _CANCELLED * whole):
                more = span @ column
                column, part = column - (more.swapaxes(1, 2) @ span).swapaxes(1, 2), part + more
                length = np.linalg.norm(column, axis=1)
            column, length = column[:, :, 0], length[:, 0]
            weights = (rotation[:, : j + 1, : j + 1] @ part)[:, :, 0]
            radius = np.hypot(weights[:, j], length)
            idle = radius == 0.0  # a converged system has run out of directions: nothing is rotated
            safe = np.where(idle, 1.0, radius)
            cosine, sine = np.where(idle, 1.0, weights[:, j] / safe), length / safe
            weights[:, j] = safe
            hessenberg[:, : j + 1, j] = weights
            # The new rotation mixes rows j and j + 1 of all rotations so far.
            upper = rotation[:, j, : j + 1].copy()
            rotation[:, j, : j + 1], rotation[:, j, j + 1] = cosine[:, None] * upper, sine
            rotation[:, j + 1, : j + 1], rotation[:, j + 1, j + 1] = -sine[:, None] * upper, cosine
            right[:, j + 1], right[:, j] = -sine * right[:, j], cosine * right[:, j]
            used = j + 1
            if not np.any(np.abs(right[:, used]) > wanted):
                break
            basis[:, used] = _unit(column, length)
        answer = np.linalg.solve(hessenberg[:, :used, :used], right[:, :used, None])
        x = x + (answer.swapaxes(1, 2) @ basis[:, :used])[:, 0]
        residual = source - x + linear(x)
        before, norm = norm, np.linalg.norm(residual, axis=1)
        if not np.any((norm > wanted) & (norm <= 0.999 * before)):
            break
    return x, norm / np.where(scale == 0.0, 1.0, scale)


def dominant_eigenvalue(linear: LinearMap, start: FloatArray, dense: int = _SMALL) -> float:
    """Spectral radius of a map that takes covariances to covariances.

    Such a map has its spectral radius as an eigenvalue (Krein and Rutman), so the eigenvalue with the largest real part
    is the one to look for. This does not hold for a map with moments eliminated, unless all its numbers are without
    a sign (Perron and Frobenius). Up to `dense` unknowns all eigenvalues of its matrix are computed.

    Examples
    --------
    >>> round(dominant_eigenvalue(lambda x: np.array([0.9, 0.5]) * x, np.ones(2)), 12)
    0.9
    """
    size = start.size
    if size <= dense:
        return float(np.linalg.eigvals(as_matrix(linear, size)).real.max())
    operator = LinearOperator((size, size), matvec=linear, dtype=np.float64)
    try:
        values = eigs(
            operator, k=1, which="LR", v0=start, return_eigenvectors=False, tol=1e-8, ncv=20, maxiter=3000
        )
    except ArpackNoConvergence as error:
        values = error.eigenvalues
        if len(values) == 0:
            raise PsofedError("The spectral radius did not converge.") from None
    return float(values.real.max())


def as_matrix(linear: LinearMap, size: int) -> FloatArray:
    """Return the matrix of a linear map."""
    return np.stack([linear(column) for column in np.eye(size)], axis=1)


def _unit(vectors: FloatArray, lengths: FloatArray) -> FloatArray:
    """Divide vectors (N, size) by their lengths; those of length 0 stay 0."""
    return np.asarray(vectors / np.where(lengths == 0.0, 1.0, lengths)[:, None])
