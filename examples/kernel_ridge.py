"""The baseline for random features: kernel ridge regression on samples of all clients, pooled in one place.

ŷ(x) = k(x)ᵀ(K + λI)⁻¹y with the Gaussian kernel that the features approximate. It sees all its samples at once and
inverts an n × n matrix, so it is no online algorithm: it is what the features and LMS give up for speed and privacy.
"""

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.common.types import FloatArray
from psofed.common.validation import check_integer
from psofed.fleet import draw_inputs
from psofed.fleet.measured import draw_sample
from psofed.parts.models.built_in import Rff
from psofed.results import Estimate, estimate
from psofed.scenario import Scenario

_PENALTIES = np.geomspace(1e-6, 10.0, 29)
_TESTS_PER_CLIENT = 200


def kernel_ridge_mse(scenario: Scenario, samples: int = 1000, repeats: int = 5, seed: int = 0) -> Estimate:
    """Estimate the MSE of kernel ridge regression on fresh samples of all clients, noise included.

    Parameters
    ----------
    scenario : Scenario
        With ``data.function``; the kernel is exp(−‖x − x'‖²/(2·model.bandwidth²)).
    samples : int
        Size n of the pooled sample it is fitted to, spread evenly over the clients.
    repeats : int
        Independent samples; the standard error is over these.
    seed : int

    Notes
    -----
    λ minimises the generalised cross-validation score on the sample itself.

    Examples
    --------
    >>> from psofed import Data
    >>> from psofed.models import Rff
    >>> data = Data(function="sine", input_dimension=1, input_variance=1.0, noise_variance=0.01)
    >>> scenario = Scenario(num_clients=5, dimension=20, model=Rff(), data=data)
    >>> 0.009 < kernel_ridge_mse(scenario, samples=400, repeats=3).mean < 0.013
    True
    """
    samples = check_integer("samples", samples, 10)
    repeats = check_integer("repeats", repeats, 1)
    seeds = np.random.SeedSequence(check_integer("seed", seed, 0)).spawn(repeats)
    return estimate(np.array([_fit_and_test(scenario, samples, np.random.default_rng(s)) for s in seeds]))


def _fit_and_test(scenario: Scenario, samples: int, rng: np.random.Generator) -> float:
    inputs, labels = _draw_pooled(scenario, -(-samples // scenario.num_clients), rng)
    inputs, labels = inputs[:samples], labels[:samples]
    values, vectors = np.linalg.eigh(_kernel(inputs, inputs, _bandwidth(scenario)))
    values, projected = np.maximum(values, 0.0), vectors.T @ labels
    scores = [_cross_validation(values, projected, penalty) for penalty in _PENALTIES]
    penalty = _PENALTIES[int(np.argmin(scores))]
    weights = vectors @ (projected / (values + penalty))
    tests, truth = _draw_pooled(scenario, _TESTS_PER_CLIENT, rng)
    return float(np.mean((truth - _kernel(tests, inputs, _bandwidth(scenario)) @ weights) ** 2))


def _bandwidth(scenario: Scenario) -> float:
    if not isinstance(scenario.model, Rff):
        raise InvalidValueError("model.kind", scenario.model.kind, '"rff", which has a kernel')
    return scenario.model.bandwidth


def _draw_pooled(scenario: Scenario, count: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    fleet = draw_inputs(scenario)
    parts = [draw_sample(scenario, fleet, count, rng, k) for k in range(scenario.num_clients)]
    order = rng.permutation(count * scenario.num_clients)
    return np.concatenate([x for x, _ in parts])[order], np.concatenate([y for _, y in parts])[order]


def _kernel(first: FloatArray, second: FloatArray, bandwidth: float) -> FloatArray:
    squares = np.sum(first**2, axis=1)[:, None] + np.sum(second**2, axis=1)[None, :] - 2 * first @ second.T
    return np.asarray(np.exp(-np.maximum(squares, 0.0) / (2 * bandwidth**2)))


def _cross_validation(values: FloatArray, projected: FloatArray, penalty: float) -> float:
    """n‖(I − H)y‖²/tr(I − H)² of the smoother H = K(K + λI)⁻¹, in the kernel matrix's eigenbasis."""
    left = penalty / (values + penalty)
    return float(np.mean((left * projected) ** 2) / np.mean(left) ** 2)
