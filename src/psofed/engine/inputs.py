"""Colouring of standard normals into inputs x ~ N(0, R_k)."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from psofed.common.types import FloatArray

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
    noise_deviation : array (K,)
        Standard deviations of the noise ν_k.
    """

    shape: int
    scale: FloatArray
    correlation: float
    factors: FloatArray
    noise_deviation: FloatArray


def make_input_model(fleet: "Fleet", draws: bool = True) -> InputModel:
    """Factor the covariances of a fleet in the cheapest shape; skipped where no inputs are drawn."""
    scale, noise = np.sqrt(fleet.input_variance), np.sqrt(fleet.noise_variance)
    if fleet.explicit_covariances is not None:
        factors = _lower_factors(fleet.explicit_covariances) if draws else np.zeros((0, 0, 0))
        return InputModel(GENERAL, scale, 0.0, factors, noise)
    shape = WHITE if fleet.is_white else EXPONENTIAL
    return InputModel(shape, scale, fleet.correlation, np.zeros((0, 0, 0)), noise)


def _lower_factors(covariances: FloatArray) -> FloatArray:
    # QR of the symmetric root exists also where a measured covariance is singular and Cholesky fails.
    values, vectors = np.linalg.eigh(covariances)
    roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    upper = np.linalg.qr(np.swapaxes(roots, 1, 2), mode="r")
    return np.ascontiguousarray(np.swapaxes(upper, 1, 2))
