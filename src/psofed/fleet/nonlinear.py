"""Best weights for streams y = f(x) + ν, estimated from one large sample.

With features z = z(x) of client k's inputs, the best weights for the whole fleet are

    w° = (Σ_k R_k)⁻¹ Σ_k r_k,     R_k = E[z_k z_kᵀ],  r_k = E[z_k y_k],

the minimiser of the network MSE. Then y = w°ᵀz + e with e = ν + f(x) − w°ᵀz, noise and what the features cannot
follow, so PSO-Fed's recursion and theory apply with w° for w and Var e for the noise variance. The covariances R_k
are estimated from the same sample; the theory uses them for features.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.fleet import Fleet, draw_inputs
from psofed.parts.base import Model
from psofed.parts.features import FeatureMap
from psofed.scenario import Data, Scenario

# Samples of the whole fleet from which moments are estimated.
_SAMPLES = 200_000
# Features are nearly collinear; this share of R's mean eigenvalue keeps w° small where data say nothing.
_RIDGE = 1e-6


@dataclass(frozen=True, eq=False)
class StreamMoments:
    """Second moments of every client's features and labels.

    Attributes
    ----------
    covariances : array (K, D, D)
        R_k.
    products : array (K, D)
        r_k.
    power : array (K,)
        E[y_k²], noise included.
    """

    covariances: FloatArray
    products: FloatArray
    power: FloatArray

    def best_weights(self) -> FloatArray:
        """Return w°, shape (D,)."""
        pooled = self.covariances.sum(axis=0)
        size = len(pooled)
        ridge = _RIDGE * np.trace(pooled) / size * np.eye(size)
        return np.linalg.solve(pooled + ridge, self.products.sum(axis=0))

    def residual_variance(self, weights: FloatArray) -> FloatArray:
        """Return E[(y_k − wᵀz_k)²] of every client, shape (K,)."""
        quadratic = np.einsum("i,kij,j->k", weights, self.covariances, weights)
        return np.asarray(self.power - 2 * self.products @ weights + quadratic)


def moments_of(samples: Iterable[tuple[FloatArray, FloatArray]], features: FeatureMap) -> StreamMoments:
    """Return the moments of the clients' samples, inputs (n, d) and labels (n,) each."""
    parts = []
    for inputs, labels in samples:
        z, count = features(inputs), len(labels)
        parts.append((z.T @ z / count, labels @ z / count, float(labels @ labels) / count))
    covariances, products, power = zip(*parts, strict=True)
    return StreamMoments(np.array(covariances), np.array(products), np.array(power))


def linear_fleet(moments: StreamMoments, weights: FloatArray) -> Fleet:
    """Return the linear fleet with these second moments, whose target is `weights`."""
    return Fleet(
        target=weights,
        input_variance=np.trace(moments.covariances, axis1=1, axis2=2) / weights.size,
        noise_variance=np.maximum(moments.residual_variance(weights), 0.0),
        correlation=0.0,
        explicit_covariances=moments.covariances,
    )


def fit_best_weights(scenario: Scenario) -> FloatArray:
    """Return w° of a scenario whose streams are not the paper's.

    Examples
    --------
    >>> scenario = Scenario(num_clients=5, dimension=4, data=Data(function="sum"))
    >>> fit_best_weights(scenario).round(2)
    array([0.5, 0.5, 0.5, 0.5])
    """
    return estimate_moments(scenario).best_weights()


def best_mse(scenario: Scenario) -> float:
    """Return the network MSE of w°, the lowest that the model can reach."""
    moments = estimate_moments(scenario)
    return float(moments.residual_variance(moments.best_weights()).mean())


def measure_features(scenario: Scenario) -> Fleet:
    """Return the linear fleet with the same second moments, which the theory uses for a non-linear stream.

    Its inputs have the covariances R_k of the features, its noise the variance of y − w°ᵀz, its target is w°. The
    theory then takes inputs for Gaussian and noise for independent of them, which features and what they leave are
    not: the approximation is good for small stepsizes, where only second moments matter (docs/learning.md: how good).
    """
    moments = estimate_moments(scenario)
    return linear_fleet(moments, moments.best_weights())


def estimate_moments(scenario: Scenario) -> StreamMoments:
    """Estimate the second moments of a scenario's streams from one large sample with a fixed seed."""
    if scenario.data.function is None:
        raise PsofedError(
            f'model.kind = "{scenario.model.kind}" needs something to learn: set data.function or use --data'
        )
    return _estimate_moments(scenario.num_clients, scenario.dimension, scenario.model, scenario.data)


def draw_sample(
    scenario: Scenario, fleet: Fleet, count: int, rng: np.random.Generator, client: int
) -> tuple[FloatArray, FloatArray]:
    """Draw `count` inputs (count, d) and labels f(x) + ν (count,) of one client, in NumPy."""
    covariance = fleet.covariances()[client] if not fleet.is_white else None
    normals = rng.standard_normal((count, fleet.input_dimension))
    if covariance is None:
        inputs = normals * fleet.input_variance[client] ** 0.5
    else:
        values, vectors = np.linalg.eigh(covariance)
        inputs = normals @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    noise = rng.standard_normal(count) * fleet.noise_variance[client] ** 0.5
    return inputs, evaluate_function(scenario, inputs) + noise


def evaluate_function(scenario: Scenario, inputs: FloatArray) -> FloatArray:
    """Return f of inputs (count, d), shape (count,)."""
    from psofed.engine.samples import evaluate

    assert scenario.data.function is not None
    return evaluate(scenario.data.function, inputs)


@lru_cache(maxsize=16)
def _estimate_moments(clients: int, dimension: int, model: Model, data: Data) -> StreamMoments:
    scenario = Scenario(num_clients=clients, dimension=dimension, num_participants=1, model=model, data=data)
    fleet = draw_inputs(scenario)
    features = model.make_features(fleet.input_dimension, dimension)
    count = max(_SAMPLES // clients, 200)
    seeds = np.random.SeedSequence((data.fleet_seed, 2)).spawn(clients)
    return moments_of(
        (draw_sample(scenario, fleet, count, np.random.default_rng(seed), k) for k, seed in enumerate(seeds)), features
    )
