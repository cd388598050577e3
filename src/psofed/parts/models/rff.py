"""Random Fourier features, ŷ = wᵀz(x) with z_i(x) = √(2/D) cos(ω_iᵀx + b_i).

E[z(x)ᵀz(x')] = exp(−‖x − x'‖²/(2b²)) over ω_i ~ N(0, I/b²), b_i ~ U[0, 2π): a linear model of z is an
approximation, better with more features, of regression with that kernel (Rahimi and Recht, 2007).
"""

import numpy as np

from psofed.fleet.features import FeatureMap
from psofed.scenario.model import Model


def make_features(model: Model, input_dimension: int, dimension: int) -> FeatureMap:
    """Draw ω and b from ``model.seed``; the first features of a larger model are those of a smaller one."""
    frequency_seed, phase_seed = np.random.SeedSequence(model.seed).spawn(2)
    normals = np.random.default_rng(frequency_seed).standard_normal((dimension, input_dimension))
    phases = np.random.default_rng(phase_seed).uniform(0.0, 1.0, dimension)
    return FeatureMap(normals / (2 * np.pi * model.bandwidth), phases, (2.0 / dimension) ** 0.5)
