"""Fleets whose moments are measured: in your own data, or in one large sample of streams y = f(x) + ν.

With features z = z(x) of client k's inputs, R_k = E[zzᵀ] and r_k = E[zy] are means over samples of the client, and

    w° = (Σ_k R_k)⁻¹ Σ_k r_k

are the best weights for the whole fleet, the minimiser of the network MSE (of your own data each sample counts once).
Then y = w°ᵀz + e with e = ν + f(x) − w°ᵀz, noise and what the features cannot follow, so PSO-Fed's recursion and theory
apply with w° for w and Var e for the noise variance.

Theory needs noise that is uncorrelated with the inputs. With your own data each client therefore has its own target
w° + d_k, the least-squares fit of its own samples, and the noise is ν = y − (w° + d_k)ᵀz.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from psofed.common.errors import PsofedError
from psofed.common.types import FloatArray
from psofed.data.own_data import OwnData
from psofed.fleet.fleet import Fleet, draw_inputs
from psofed.parts.base import Model
from psofed.parts.features import FeatureMap
from psofed.scenario import Data, Scenario

if TYPE_CHECKING:
    from psofed.engine.samples import TableSamples

# Samples of the whole fleet from which moments are estimated.
_SAMPLES = 200_000
# Features are nearly collinear; this share of R's mean eigenvalue keeps w° small where data say nothing.
_RIDGE = 1e-6
_SINGULAR = 1e-9  # relative eigenvalues of R_k below which a client's own samples tell nothing about its target


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

    @classmethod
    def of(cls, samples: Iterable[tuple[FloatArray, FloatArray]], features: FeatureMap) -> "StreamMoments":
        """Return the moments of the clients' samples, inputs (n, d) and labels (n,) each."""
        parts = []
        for inputs, labels in samples:
            z, count = features(inputs), len(labels)
            parts.append((z.T @ z / count, labels @ z / count, float(labels @ labels) / count))
        return cls(*map(np.array, zip(*parts, strict=True)))

    def linear_fleet(self, counts: ArrayLike = 1.0) -> Fleet:
        """Return the linear fleet with these second moments and w° as its target; `counts` weigh the clients."""
        weights = np.broadcast_to(np.asarray(counts, dtype=np.float64), len(self.power))
        pooled, size = (self.covariances * weights[:, None, None]).sum(axis=0), self.products.shape[1]
        ridge = _RIDGE * np.trace(pooled) / size * np.eye(size)
        target = np.linalg.solve(pooled + ridge, (self.products * weights[:, None]).sum(axis=0))
        quadratic = np.einsum("i,kij,j->k", target, self.covariances, target)
        return Fleet(
            target=target,
            input_variance=np.trace(self.covariances, axis1=1, axis2=2) / size,
            noise_variance=np.maximum(self.power - 2 * self.products @ target + quadratic, 0.0),
            correlation=0.0,
            explicit_covariances=self.covariances,
        )


# --- your own data ---------------------------------------------------------------------------------------------------


def table_samples(scenario: Scenario) -> "tuple[Fleet, TableSamples]":
    """Return the fleet of a scenario with your own data, and its samples as features for the scenario's model.

    The last ones are kept, since every block of trials asks for them.
    """
    return _table_samples(*_own_data(scenario))


def measured_fleet(scenario: Scenario) -> Fleet:
    """Return the fleet of a scenario with your own data as theory needs it: own targets and fourth moments included."""
    return _measured_fleet(*_own_data(scenario))


def _own_data(scenario: Scenario) -> tuple[OwnData, Model, int]:
    assert scenario.own_data is not None
    return scenario.own_data, scenario.model, scenario.dimension


@lru_cache(maxsize=1)
def _table_samples(data: OwnData, model: Model, dimension: int) -> "tuple[Fleet, TableSamples]":
    from psofed.engine.samples import TableSamples

    fleet, rows, _ = _measure(data, model, dimension)
    residuals = [y - z @ fleet.target for y, z in zip(data.targets, rows, strict=True)]
    return fleet, TableSamples(rows, residuals, data.epochs)


@lru_cache(maxsize=1)
def _measured_fleet(data: OwnData, model: Model, dimension: int) -> Fleet:
    fleet, rows, moments = _measure(data, model, dimension)
    lacking = moments.products - moments.covariances @ fleet.target
    inverses = np.linalg.pinv(moments.covariances, rcond=_SINGULAR, hermitian=True)
    offsets = np.einsum("kij,kj->ki", inverses, lacking)
    residuals = [y - z @ (fleet.target + d) for y, z, d in zip(data.targets, rows, offsets, strict=True)]
    squares = ((z[:, :, None] * z[:, None, :]).reshape(len(z), -1) for z in rows)  # large: one at a time
    return replace(
        fleet,
        noise_variance=np.array([np.mean(residual**2) for residual in residuals]),
        target_offsets=offsets,
        fourth_moments=np.array([_mean_squares(products) for products in squares]),
        weighted_noise=np.array([_mean_squares(z * e[:, None]) for z, e in zip(rows, residuals, strict=True)]),
    )


def _measure(data: OwnData, model: Model, dimension: int) -> tuple[Fleet, list[FloatArray], StreamMoments]:
    """Return the linear fleet of your own data, each client's features (samples_k, D), and their moments."""
    features = model.make_features(data.num_columns, dimension)
    moments = StreamMoments.of(zip(data.inputs, data.targets, strict=True), features)
    fleet = replace(moments.linear_fleet(data.samples), names=tuple(data.clients))
    return fleet, [features(inputs) for inputs in data.inputs], moments


def _mean_squares(columns: FloatArray) -> FloatArray:
    """Return E[c cᵀ] over the rows c of `columns`."""
    return columns.T @ columns / len(columns)


# --- streams y = f(x) + ν --------------------------------------------------------------------------------------------


def measure_features(scenario: Scenario) -> Fleet:
    """Return the linear fleet with the same second moments, from one large sample with a fixed seed.

    Its inputs have the covariances R_k of the features, its noise the variance of y − w°ᵀz, its target is w°. The mean
    noise is the lowest network MSE that the model can reach. Theory uses this fleet for a non-linear stream: it takes
    inputs for Gaussian and noise for independent of them, which features and what they leave are not. The approximation
    is good for small stepsizes, where only second moments matter (docs/learning.md: how good).

    Examples
    --------
    >>> scenario = Scenario(num_clients=5, dimension=4, data=Data(function="sum"))
    >>> measure_features(scenario).target.round(2)
    array([0.5, 0.5, 0.5, 0.5])
    """
    if scenario.data.function is None:
        raise PsofedError(
            f'model.kind = "{scenario.model.kind}" needs something to learn: set data.function or use --data'
        )
    return _measure_features(scenario.num_clients, scenario.dimension, scenario.model, scenario.data)


def draw_sample(
    scenario: Scenario, fleet: Fleet, count: int, rng: np.random.Generator, client: int
) -> tuple[FloatArray, FloatArray]:
    """Draw `count` inputs (count, d) and labels f(x) + ν (count,) of one client, in NumPy."""
    from psofed.engine.samples import evaluate

    assert scenario.data.function is not None
    normals = rng.standard_normal((count, fleet.input_dimension))
    if fleet.is_white:
        inputs = normals * fleet.input_variance[client] ** 0.5
    else:
        values, vectors = np.linalg.eigh(fleet.covariances()[client])
        inputs = normals @ (vectors * np.sqrt(np.maximum(values, 0.0))).T
    noise = rng.standard_normal(count) * fleet.noise_variance[client] ** 0.5
    return inputs, evaluate(scenario.data.function, inputs) + noise


@lru_cache(maxsize=16)
def _measure_features(clients: int, dimension: int, model: Model, data: Data) -> Fleet:
    scenario = Scenario(num_clients=clients, dimension=dimension, num_participants=1, model=model, data=data)
    fleet = draw_inputs(scenario)
    features = model.make_features(fleet.input_dimension, dimension)
    count, seeds = max(_SAMPLES // clients, 200), np.random.SeedSequence((data.fleet_seed, 2)).spawn(clients)
    samples = (draw_sample(scenario, fleet, count, np.random.default_rng(seed), k) for k, seed in enumerate(seeds))
    return StreamMoments.of(samples, features).linear_fleet()
