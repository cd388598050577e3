"""Samples as arrays: inputs and labels that the kernel receives in chunks instead of drawing them.

With w° the model that errors are measured from (:mod:`psofed.fleet.nonlinear`), the kernel is given the features z and
the residuals y − w°ᵀz: with a client's error w° − w its prediction error is y − wᵀz = (y − w°ᵀz) + (w° − w)ᵀz, just
as for linear streams, where the residual is the noise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.bodies import Hook, HookHolder
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.frames.function import evaluate, function_hook
from psofed.engine.frames.stream import Inputs, draw_input, make_inputs
from psofed.engine.hooks import take_function
from psofed.engine.inputs import InputModel, make_input_model
from psofed.engine.lanes import WIDTH
from psofed.engine.lms import add_inner_product, add_squares, fill_row, scale_row
from psofed.engine.normals import WORDS_AHEAD, fill_standard_normal, next_normals
from psofed.engine.streams import Stream
from psofed.parts.features import FeatureMap

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario

_KEPT_BYTES = 64 << 20  # of a table's chunks
_ROWS = 21  # which of a trial's seeds draws rows

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


class TrialSamples(Protocol):
    """Source of the samples of several trials.

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


class _Features(NamedTuple):
    """A feature map as the kernel takes it; without phases the features are the inputs."""

    frequencies: FloatArray
    phases: FloatArray
    scale: float


class FunctionSamples(HookHolder):
    """Streams y = f(x) + ν with drawn x and ν, as features of x."""

    tests_on_next = False

    def __init__(self, scenario: "Scenario", fleet: "Fleet", stream: Stream) -> None:
        lanes = stream.key.size
        assert scenario.data.function is not None
        self._shape = (scenario.num_clients, scenario.dimension, lanes)
        self._stream = stream
        self._inputs = make_input_model(fleet)
        self._over_time = make_inputs(scenario, lanes)
        self._function = function_hook(scenario.data.function)
        self._hooks = (self._function, self._over_time.hook)
        self._features = scenario.model.make_features(fleet.input_dimension, scenario.dimension)
        self._weights = fleet.target
        self.bytes_per_iteration: int = 8 * scenario.num_clients * (scenario.dimension + 1) * lanes

    def chunk(self, first: int, count: int) -> Chunk:
        """Draw the samples of iterations `first` … `first + count − 1`; each is addressed by iteration and client.

        A stream that remembers is asked for chunks in order.
        """
        clients, dimension, lanes = self._shape
        inputs = np.empty((count, clients, dimension, lanes))
        residuals = np.empty((count, clients, lanes))
        features = _Features(self._features.frequencies, self._features.phases, self._features.scale)
        _fill(
            first, self._stream, self._over_time, self._inputs, self._function, features, self._weights, inputs,
            residuals,
        )  # fmt: skip
        self.check()
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
        self.bytes_per_iteration: int = 8 * len(inputs) * (inputs[0].shape[1] + 1)
        self._kept: dict[tuple[int, int], Chunk] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}

    def chunk(self, first: int, count: int) -> Chunk:
        """Return the rows of iterations `first` … `first + count − 1`; zeros where a client has none left.

        Trials and runs that follow ask for the same chunks, and only read them: some are kept.
        """
        found = self._kept.get((first, count))
        if found is None:
            found = self._gather(first, count)
            kept = sum(iterations for _, iterations in list(self._kept)) + count
            if kept * self.bytes_per_iteration <= _KEPT_BYTES:
                self._kept[first, count] = found
        return found

    def drawn(self, seed: int, trials: range, iterations: int) -> "DrawnRows":
        """Return the same rows drawn at random, other ones in every trial."""
        return DrawnRows(self._inputs, self._residuals, seed, trials, iterations)

    def _gather(self, first: int, count: int) -> Chunk:
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


class DrawnRows:
    """Rows of a table drawn independently of each other: in every iteration each client gets any of its own.

    Trials differ. This is the stationary stream with the table's moments that the theory describes.

    Parameters
    ----------
    inputs, residuals : sequences of arrays (samples_k, D) and (samples_k,)
        As of :class:`TableSamples`.
    seed : int
    trials : range
    iterations : int
    """

    tests_on_next = True

    def __init__(
        self,
        inputs: Sequence[FloatArray],
        residuals: Sequence[FloatArray],
        seed: int,
        trials: range,
        iterations: int,
    ) -> None:
        self._inputs, self._residuals = inputs, residuals
        lengths = [len(labels) for labels in residuals]
        self._rows = np.empty((iterations, len(inputs), len(trials)), np.int32)
        for lane, trial in enumerate(trials):
            draws = np.random.default_rng((seed, trial, _ROWS)).integers(lengths, size=self._rows.shape[:2])
            self._rows[:, :, lane] = draws
        self.bytes_per_iteration: int = 8 * len(inputs) * (inputs[0].shape[1] + 1) * len(trials)

    def chunk(self, first: int, count: int) -> Chunk:
        """Return the rows drawn for iterations `first` … `first + count − 1`."""
        rows = self._rows[first : first + count]
        inputs = np.empty((len(rows), len(self._inputs), self._inputs[0].shape[1], rows.shape[2]))
        residuals = np.empty(rows.shape)
        for k, (own, labels) in enumerate(zip(self._inputs, self._residuals, strict=True)):
            inputs[:, k] = own[rows[:, k]].transpose(0, 2, 1)
            residuals[:, k] = labels[rows[:, k]]
        return Chunk(inputs, residuals, np.full(len(rows), len(self._inputs)))


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


@kernel_part
def take_sample(
    given_inputs: FloatArray, given_residuals: FloatArray, inputs: FloatArray, error: FloatArray
) -> None:
    """Copy one client's sample, (D, lanes or 1) and (lanes or 1,), into ``inputs`` (D, lanes) and ``error``."""
    dimension, lanes = inputs.shape
    stride = 0 if given_residuals.size == 1 else 1
    for i in range(dimension):
        for lane in range(lanes):
            inputs[i, lane] = given_inputs[i, stride * lane]
    for lane in range(lanes):
        error[lane] = given_residuals[stride * lane]


@kernel_part(inline=True)
def has_sample(given_inputs: FloatArray) -> bool:
    """Tell whether a client has a sample; without one its inputs (D, lanes or 1) are all zero."""
    found = False
    for i in range(given_inputs.shape[0]):
        if given_inputs[i, 0] != 0.0:
            found = True
    return found


@kernel_part
def error_on_next(
    server: FloatArray,
    given_inputs: FloatArray,
    given_residuals: FloatArray,
    sample: FloatArray,
    error: FloatArray,
    out: FloatArray,
    row: int,
) -> None:
    """Write the server model's mean squared error on all clients' next samples into a row of lanes of ``out``.

    ``sample`` (D, lanes) and ``error`` (lanes,) are scratch.
    """
    num_clients, dimension, _ = given_inputs.shape
    lanes = error.size
    fill_row(out, row, lanes, 0.0)
    for k in range(num_clients):
        take_sample(given_inputs[k], given_residuals[k], sample, error)
        add_inner_product(error, sample, server, 0, dimension)
        add_squares(out, row, error, 0, 1)
    scale_row(out, row, lanes, 1.0 / num_clients)


@kernel_part(inline=True)
def _cosine_of_turns(turns: float) -> float:
    r: float = turns - np.floor(turns + 0.5)
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


@compiled
def _fill(
    first: int,
    stream: Stream,
    over_time: Inputs,
    model: InputModel,
    function: Hook,
    features: _Features,
    weights: FloatArray,
    inputs: FloatArray,
    residuals: FloatArray,
) -> None:
    value_of = take_function(function.address)
    count, num_clients, dimension, lanes = inputs.shape
    size = features.frequencies.shape[1]
    words = (size + 2) // 2
    counter = stream.key + np.uint64(first * num_clients * words) * stream.gamma
    scratch = np.empty((WORDS_AHEAD, lanes), np.uint64)
    normals = np.empty((2 * words, lanes), np.float32)
    raw = np.empty((size, lanes))
    turns = np.empty(lanes)
    value = np.empty(lanes)
    for t in range(count):
        for k in range(num_clients):
            for lane in range(0, lanes, WIDTH):
                next_normals(lane, counter, stream.gamma, scratch, normals)
            draw_input(over_time, model, first + t, k, normals, raw)
            value_of(function.token, function.options, raw, value)
            for lane in range(lanes):
                value[lane] += model.noise_deviation[k] * normals[size, lane]
            for i in range(dimension):
                if features.phases.size:
                    for lane in range(lanes):
                        turns[lane] = features.phases[i]
                    for j in range(size):
                        for lane in range(lanes):
                            turns[lane] += features.frequencies[i, j] * raw[j, lane]
                    for lane in range(lanes):
                        inputs[t, k, i, lane] = features.scale * _cosine_of_turns(turns[lane])
                else:
                    for lane in range(lanes):
                        inputs[t, k, i, lane] = raw[i, lane]
                for lane in range(lanes):
                    value[lane] -= weights[i] * inputs[t, k, i, lane]
            for lane in range(lanes):
                residuals[t, k, lane] = value[lane]
