"""The fleet of your own data: moments that are measured in the clients' samples.

With features z of client k's inputs, R_k = E[zzᵀ], r_k = E[zy] and so on are means over all its samples, and w° is the
least-squares solution on the samples of all clients. Simulation measures errors from w°, so its noise is ν = y − w°ᵀz.
Theory needs noise that is uncorrelated with the inputs: there each client has its own target w° + d_k, the
least-squares fit of its own samples, and the noise is ν = y − (w° + d_k)ᵀz.
"""

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from psofed.common.types import FloatArray
from psofed.data.own_data import OwnData
from psofed.fleet.fleet import Fleet
from psofed.fleet.nonlinear import StreamMoments, linear_fleet, moments_of
from psofed.parts.base import Model
from psofed.parts.features import FeatureMap, identity
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.engine.samples import TableSamples


_SINGULAR = 1e-9  # relative eigenvalues of R_k below which a client's own samples tell nothing about its target


def table_samples(scenario: Scenario) -> "tuple[Fleet, TableSamples]":
    """Return the fleet of a scenario with your own data, and its samples as features for the scenario's model.

    The last ones are kept, since every block of trials asks for them.
    """
    data = scenario.own_data
    assert data is not None
    return _table_samples(data, scenario.model, scenario.dimension)


@lru_cache(maxsize=1)
def _table_samples(data: OwnData, model: Model, dimension: int) -> "tuple[Fleet, TableSamples]":
    from psofed.engine.samples import TableSamples

    features = model.make_features(data.num_columns, dimension)
    fleet = measure_fleet(data, features)
    inputs = [features(rows) for rows in data.inputs]
    residuals = [y - z @ fleet.target for y, z in zip(data.targets, inputs, strict=True)]
    return fleet, TableSamples(inputs, residuals, data.epochs)


def measured_fleet(scenario: Scenario) -> Fleet:
    """Return the fleet of a scenario with your own data as theory needs it: own targets and fourth moments included."""
    data = scenario.own_data
    assert data is not None
    return _measured_fleet(data, scenario.model, scenario.dimension)


@lru_cache(maxsize=1)
def _measured_fleet(data: OwnData, model: Model, dimension: int) -> Fleet:
    features = model.make_features(data.num_columns, dimension)
    fleet, moments = measure_fleet(data, features), measure_moments(data, features)
    lacking = moments.products - moments.covariances @ fleet.target
    inverses = np.linalg.pinv(moments.covariances, rcond=_SINGULAR, hermitian=True)
    offsets = np.einsum("kij,kj->ki", inverses, lacking)
    rows = [features(inputs) for inputs in data.inputs]
    residuals = [y - z @ (fleet.target + d) for y, z, d in zip(data.targets, rows, offsets, strict=True)]
    squares = ((z[:, :, None] * z[:, None, :]).reshape(len(z), -1) for z in rows)  # large: one at a time
    return replace(
        fleet,
        noise_variance=np.array([np.mean(residual**2) for residual in residuals]),
        target_offsets=offsets,
        fourth_moments=np.array([_mean_squares(products) for products in squares]),
        weighted_noise=np.array([_mean_squares(z * e[:, None]) for z, e in zip(rows, residuals, strict=True)]),
    )


def measure_fleet(data: OwnData, features: FeatureMap | None = None) -> Fleet:
    """Return the measured fleet: w° as the target, the variances of the residuals as the noise."""
    moments = measure_moments(data, features)
    return replace(linear_fleet(moments, _best_weights(data, moments)), names=tuple(data.clients))


def measure_moments(data: OwnData, features: FeatureMap | None = None) -> StreamMoments:
    """Estimate second moments of every client's features and labels from all its samples."""
    features = identity(data.num_columns) if features is None else features
    return moments_of(zip(data.inputs, data.targets, strict=True), features)


def best_weights(data: OwnData, features: FeatureMap | None = None) -> FloatArray:
    """Return w°, the least-squares solution on all samples of all clients, each sample counting once."""
    return _best_weights(data, measure_moments(data, features))


def _best_weights(data: OwnData, moments: StreamMoments) -> FloatArray:
    weights = np.array(data.samples, dtype=np.float64)[:, None, None]
    pooled = StreamMoments(
        moments.covariances * weights, moments.products * weights[:, 0], moments.power * weights[:, 0, 0]
    )
    return pooled.best_weights()


def _mean_squares(columns: FloatArray) -> FloatArray:
    """Return E[c cᵀ] over the rows c of `columns`."""
    return columns.T @ columns / len(columns)
