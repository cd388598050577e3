"""Samples as arrays: inputs and labels that are not drawn inside the kernel but handed to it, chunk by chunk.

With w° the model that errors are measured from (:mod:`psofed.fleet.nonlinear`), the kernel is given the features z and
the residuals y − w°ᵀz: with a client's error w° − w its prediction error is y − wᵀz = (y − w°ᵀz) + (w° − w)ᵀz, just
as for linear streams, where the residual is the noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.bodies import raise_python_error
from psofed.engine.compiling import compiled
from psofed.engine.frames.function import evaluate, function_hook
from psofed.engine.inputs import colour, make_input_model
from psofed.engine.normals import fill_standard_normal, mix_word, normal_pair, split_word
from psofed.engine.streams import Stream
from psofed.parts.features import FeatureMap

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario

# cos(2πr) in r² for |r| ≤ ½: Chebyshev fit of degree 9, largest error 6e-14.
_COSINE = np.polynomial.chebyshev.Chebyshev.interpolate(
    lambda q: np.cos(2 * np.pi * np.sqrt(q)), 9, domain=[0.0, 0.25]
).convert(kind=np.polynomial.Polynomial, domain=[-1, 1], window=[-1, 1]).coef  # fmt: skip
_C0, _C1, _C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9 = (float(c) for c in _COSINE)


@dataclass(frozen=True, eq=False)
class Chunk:
    """Samples of T iterations. The last axis is the trial, or has length 1 if all trials see the same.

    Attributes
    ----------
    inputs : array (T, K, D, lanes or 1)
        z; all zero where a client has no sample, which leaves its model as it is.
    residuals : array (T, K, lanes or 1)
        y − w°ᵀz; zero where a client has no sample.
    active : int array (T,)
        How many clients have a sample.
    """

    inputs: FloatArray
    residuals: FloatArray
    active: NDArray[np.int64]


class Samples(Protocol):
    """Where the samples of several trials come from.

    Attributes
    ----------
    bytes_per_iteration : int
        Memory that a chunk takes per iteration.
    tests_on_next : bool
        The test MSE is the server model's error on the clients' next samples, not on a test set.
    """

    bytes_per_iteration: int
    tests_on_next: bool

    def chunk(self, first: int, count: int) -> Chunk:
        """Return the samples of iterations `first` … `first + count − 1`."""


class FunctionSamples:
    """Streams y = f(x) + ν with drawn x and ν, as features of x."""

    tests_on_next = False

    def __init__(self, scenario: "Scenario", fleet: "Fleet", stream: Stream) -> None:
        lanes = stream.key.size
        assert scenario.data.function is not None
        self._shape = (scenario.num_clients, scenario.dimension, lanes)
        self._stream = stream
        self._inputs = make_input_model(fleet)
        self._noise_deviation = np.sqrt(fleet.noise_variance)
        self._function = function_hook(scenario.data.function)
        self._features = scenario.model.make_features(fleet.input_dimension, scenario.dimension)
        self._weights = fleet.target
        self._kernel = _make_fill(lanes)
        self.bytes_per_iteration = 8 * scenario.num_clients * (scenario.dimension + 1) * lanes

    def chunk(self, first: int, count: int) -> Chunk:
        """Draw the samples of iterations `first` … `first + count − 1`; each is addressed by iteration and client."""
        clients, dimension, lanes = self._shape
        inputs = np.empty((count, clients, dimension, lanes))
        residuals = np.empty((count, clients, lanes))
        features = self._features
        self._kernel(
            first, self._stream.key, self._stream.gamma, *self._inputs, self._noise_deviation, self._function,
            features.frequencies, features.phases, features.scale, self._weights, inputs, residuals,
        )  # fmt: skip
        raise_python_error(self._function)
        return Chunk(inputs, residuals, np.full(count, clients))


class TableSamples:
    """Rows of a table in their order, the same in every trial.

    Parameters
    ----------
    inputs : sequence of arrays (samples_k, D)
        Features of every client's rows.
    residuals : sequence of arrays (samples_k,)
        Labels less w°ᵀz.
    epochs : int
        How many times each client goes through its rows; after that it has no sample.
    """

    tests_on_next = True

    def __init__(self, inputs: Sequence[FloatArray], residuals: Sequence[FloatArray], epochs: int) -> None:
        self._inputs, self._residuals, self._epochs = inputs, residuals, epochs
        self.bytes_per_iteration = 8 * len(inputs) * (inputs[0].shape[1] + 1)

    def chunk(self, first: int, count: int) -> Chunk:
        """Return the rows of iterations `first` … `first + count − 1`; zeros where a client has none left."""
        clients, dimension = len(self._inputs), self._inputs[0].shape[1]
        inputs = np.zeros((count, clients, dimension, 1))
        residuals = np.zeros((count, clients, 1))
        active = np.zeros(count, np.int64)
        n = np.arange(first, first + count)
        for k, (rows, labels) in enumerate(zip(self._inputs, self._residuals, strict=True)):
            has = n < len(labels) * self._epochs
            inputs[has, k, :, 0] = rows[n[has] % len(labels)]
            residuals[has, k, 0] = labels[n[has] % len(labels)]
            active += has
        return Chunk(inputs, residuals, active)


class SampleSource(Protocol):
    """Data that do not come from the scenario, such as :class:`psofed.OwnData`."""

    @property
    def inputs(self) -> tuple[FloatArray, ...]:
        """Every client's inputs, arrays (samples_k, d)."""

    @property
    def targets(self) -> tuple[FloatArray, ...]:
        """Every client's labels, arrays (samples_k,)."""

    @property
    def epochs(self) -> int:
        """How many times each client goes through its samples."""

    def fleet(self, features: FeatureMap | None = None) -> "Fleet":
        """Return the fleet as measured."""

    def samples_from(self, iteration: int) -> FloatArray:
        """Return how many samples each client still has from an iteration on."""


def make_table_samples(scenario: "Scenario", source: SampleSource) -> "tuple[Fleet, TableSamples]":
    """Return the fleet of a table and its samples, as features for the scenario's model."""
    features = scenario.model.make_features(source.inputs[0].shape[1], scenario.dimension)
    fleet = source.fleet(features)
    inputs = [features(rows) for rows in source.inputs]
    residuals = [y - z @ fleet.target for y, z in zip(source.targets, inputs, strict=True)]
    return fleet, TableSamples(inputs, residuals, source.epochs)


def draw_function_tests(scenario: "Scenario", fleet: "Fleet", stream: Stream) -> FloatArray:
    """Draw a test set [z, y − w°ᵀz] for streams y = f(x) + ν, shape (N_t, D + 1, lanes).

    Test inputs are white with ``data.test_input_variance``, their noise has the clients' average variance.
    """
    count, size, lanes = scenario.data.test_instances, fleet.input_dimension, stream.key.size
    words = (size + 2) // 2
    normals = np.empty((2 * words * count, lanes), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, normals)
    drawn = normals.reshape(count, 2 * words, lanes).transpose(0, 2, 1).astype(np.float64)
    inputs = drawn[..., :size] * scenario.data.test_input_variance**0.5
    assert scenario.data.function is not None
    labels = evaluate(scenario.data.function, inputs)
    labels += drawn[..., size] * fleet.test_noise_variance**0.5
    features: FeatureMap = scenario.model.make_features(size, scenario.dimension)
    z = features(inputs)
    rows = np.concatenate([z, (labels - z @ fleet.target)[..., None]], axis=2)
    return np.ascontiguousarray(rows.transpose(0, 2, 1))


@compiled(inline=True)
def take_sample(lanes, given_inputs, given_residuals, inputs, error):
    """Copy one client's sample, (D, lanes or 1) and (lanes or 1,), into ``inputs`` (D, lanes) and ``error``."""
    if given_residuals.size == lanes:
        for i in range(inputs.shape[0]):
            for lane in range(lanes):
                inputs[i, lane] = given_inputs[i, lane]
        for lane in range(lanes):
            error[lane] = given_residuals[lane]
    else:
        for i in range(inputs.shape[0]):
            for lane in range(lanes):
                inputs[i, lane] = given_inputs[i, 0]
        for lane in range(lanes):
            error[lane] = given_residuals[0]


@compiled(inline=True)
def has_sample(given_inputs):
    """Whether a client has a sample at all: without one its inputs (D, lanes or 1) are all zero."""
    found = False
    for i in range(given_inputs.shape[0]):
        if given_inputs[i, 0] != 0.0:
            found = True
    return found


@compiled
def error_on_next(lanes, server, given_inputs, given_residuals, out):
    """Write the server model's mean squared error on all clients' next samples into ``out`` (lanes,)."""
    num_clients, dimension, _ = given_inputs.shape
    inputs, error = np.empty((dimension, lanes)), np.empty(lanes)
    for lane in range(lanes):
        out[lane] = 0.0
    for k in range(num_clients):
        take_sample(lanes, given_inputs[k], given_residuals[k], inputs, error)
        for i in range(dimension):
            for lane in range(lanes):
                error[lane] += inputs[i, lane] * server[i, lane]
        for lane in range(lanes):
            out[lane] += error[lane] * error[lane] / num_clients


@compiled(inline=True)
def _cosine_of_turns(turns):
    r = turns - np.floor(turns + 0.5)
    q = r * r
    value = _C8 + q * _C9
    value = _C7 + q * value
    value = _C6 + q * value
    value = _C5 + q * value
    value = _C4 + q * value
    value = _C3 + q * value
    value = _C2 + q * value
    value = _C1 + q * value
    return _C0 + q * value


@cache
def _make_fill(lanes: int) -> Any:
    """Compile the drawing of samples for a number of lanes."""

    @compiled
    def fill(
        first, key, gamma, shape, scale, correlation, factors, noise_deviation, function,
        frequencies, phases, feature_scale, weights, inputs, residuals,
    ):  # fmt: skip
        count, num_clients, dimension, _ = inputs.shape
        size = frequencies.shape[1]
        words = (size + 2) // 2
        normals = np.empty((2 * words, lanes), np.float32)
        raw = np.empty((size, lanes))
        turns = np.empty(lanes)
        value = np.empty(lanes)
        for t in range(count):
            for k in range(num_clients):
                base = ((first + t) * num_clients + k) * words
                for j in range(words):
                    for lane in range(lanes):
                        high, low = split_word(mix_word(key[lane] + np.uint64(base + j) * gamma[lane]))
                        x, y = normal_pair(high, low)
                        normals[2 * j, lane] = x
                        normals[2 * j + 1, lane] = y
                colour(lanes, shape, scale, correlation, factors, k, normals, raw)
                function.call(function.token, function.options, raw, value)
                for lane in range(lanes):
                    value[lane] += noise_deviation[k] * normals[size, lane]
                for i in range(dimension):
                    if phases.size:
                        for lane in range(lanes):
                            turns[lane] = phases[i]
                        for j in range(size):
                            for lane in range(lanes):
                                turns[lane] += frequencies[i, j] * raw[j, lane]
                        for lane in range(lanes):
                            inputs[t, k, i, lane] = feature_scale * _cosine_of_turns(turns[lane])
                    else:
                        for lane in range(lanes):
                            inputs[t, k, i, lane] = raw[i, lane]
                    for lane in range(lanes):
                        value[lane] -= weights[i] * inputs[t, k, i, lane]
                for lane in range(lanes):
                    residuals[t, k, lane] = value[lane]

    return fill
