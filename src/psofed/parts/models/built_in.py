"""The built-in models."""

import numpy as np

from psofed.parts import Model, option
from psofed.parts.features import FeatureMap, identity


class Linear(Model):
    """The paper's model, ŷ = wᵀx."""

    def make_features(self, input_dimension: int, dimension: int) -> FeatureMap:
        """Return z(x) = x."""
        return identity(input_dimension)


class Rff(Model):
    """Random Fourier features: ŷ = wᵀz(x) with z_i(x) = √(2/D) cos(ω_iᵀx + b_i).

    E[z(x)ᵀz(x')] = exp(−‖x − x'‖²/(2b²)) over ω_i ~ N(0, I/b²), b_i ~ U[0, 2π): a linear model of z is an
    approximation, better with more features, of regression with that kernel.

    Parameters
    ----------
    features : int, optional
        Number of random features. It *is* the scenario's ``dimension``: masks, traffic and attack act on the
        features' weights. Give either, or both if they agree; in a file with ``features``, ``dimension`` may be
        left out.
    bandwidth : float
        b of the kernel.
    seed : int
        Of ω_i and b_i, which server and clients share.

    References
    ----------
    Rahimi, Recht, "Random features for large-scale kernel machines", NIPS 2007.

    Examples
    --------
    >>> Rff(features=64, bandwidth=2.0).num_features
    64
    """

    features: int | None = option(default=None, low=1, text="number of features, which is the scenario's dimension")
    bandwidth: float = option(default=1.0, low=0.0, open_low=True, text="b of the kernel exp(−‖x − x'‖²/(2b²))")
    seed: int = option(default=0, low=0, text="seed of the features, shared by server and clients")

    @property
    def num_features(self) -> int | None:
        """Number of features."""
        return self.features

    def make_features(self, input_dimension: int, dimension: int) -> FeatureMap:
        """Draw ω and b from `seed`; the first features of a larger model are those of a smaller one."""
        frequency_seed, phase_seed = np.random.SeedSequence(self.seed).spawn(2)
        normals = np.random.default_rng(frequency_seed).standard_normal((dimension, input_dimension))
        phases = np.random.default_rng(phase_seed).uniform(0.0, 1.0, dimension)
        return FeatureMap(normals / (2 * np.pi * self.bandwidth), phases, (2.0 / dimension) ** 0.5)
