"""How standard normals become inputs x ~ N(0, R_k)."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.engine.compiling import compiled

if TYPE_CHECKING:
    from psofed.fleet import Fleet

WHITE, EXPONENTIAL, GENERAL = 0, 1, 2


class InputModel(NamedTuple):
    """Factors of the covariances R_k, in the cheapest of three shapes.

    Attributes
    ----------
    shape : int
        WHITE: x = ς_k z. EXPONENTIAL: x_i = ρ x_{i−1} + ς_k √(1−ρ²) z_i, so R_k = ς_k² ρ^|i−j|.
        GENERAL: x = C_k z with R_k = C_k C_kᵀ, C_k lower triangular.
    scale : array (K,)
        ς_k.
    correlation : float
        ρ.
    factors : array (K, D, D), or empty
        C_k.
    """

    shape: int
    scale: NDArray[np.float64]
    correlation: float
    factors: NDArray[np.float64]


def make_input_model(fleet: "Fleet") -> InputModel:
    """Choose the cheapest shape for a fleet and factor its covariances."""
    scale = np.sqrt(fleet.input_variance)
    if fleet.explicit_covariances is not None:
        return InputModel(GENERAL, scale, 0.0, _lower_factors(fleet.explicit_covariances))
    shape = WHITE if fleet.is_white else EXPONENTIAL
    return InputModel(shape, scale, fleet.correlation, np.zeros((0, 0, 0)))


@compiled(inline=True)
def colour(lanes, shape, scale, correlation, factors, k, normals, out):
    """Write the inputs of client `k` into ``out`` (D, lanes), from ``normals`` (at least D, lanes)."""
    dimension = out.shape[0]
    if shape == GENERAL:
        for i in range(dimension):
            for lane in range(lanes):
                out[i, lane] = 0.0
            for j in range(i + 1):
                for lane in range(lanes):
                    out[i, lane] += factors[k, i, j] * normals[j, lane]
        return
    for i in range(dimension):
        for lane in range(lanes):
            out[i, lane] = scale[k] * normals[i, lane]
    if shape == EXPONENTIAL:
        fresh = np.sqrt(1.0 - correlation * correlation)
        for i in range(1, dimension):
            for lane in range(lanes):
                out[i, lane] = correlation * out[i - 1, lane] + fresh * out[i, lane]


def _lower_factors(covariances: NDArray[np.float64]) -> NDArray[np.float64]:
    # QR of the symmetric root exists also where a measured covariance is singular and Cholesky fails.
    values, vectors = np.linalg.eigh(covariances)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    upper = np.linalg.qr(np.swapaxes(roots, 1, 2), mode="r")
    return np.ascontiguousarray(np.swapaxes(upper, 1, 2))
