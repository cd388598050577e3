"""Samples that are not drawn in the kernel: streams of functions, tables, the server's test set and root data.

With w° the model that errors are measured from (:mod:`psofed.fleet.measured`), the kernel is given the features z and
the residuals y − w°ᵀz: with a client's error w° − w its prediction error is y − wᵀz = (y − w°ᵀz) + (w° − w)ᵀz, just
as for linear streams, where the residual is the noise.

With the server's error g = w − w_n and noise ν̌, the test MSE is ‖X̌ᵀg + ν̌‖²/N. For N > D it is evaluated as the
quadratic form [g; 1]ᵀ G [g; 1] with G formed once, else from the samples themselves. A step on root data is linear in
g, and is evaluated likewise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.hooks import Hooks, Method, run_method
from psofed.engine.lanes import WIDTH, fma, load, spread, store
from psofed.engine.learning import InputModel, Sampling
from psofed.engine.normals import fill_standard_normal
from psofed.engine.state import Setup, State, make_layout
from psofed.engine.step import WordSource, draw_samples
from psofed.engine.streams import Stream
from psofed.engine.tables import KernelTable
from psofed.parts.base import Function

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario

_KEPT_BYTES = 64 << 20  # of a table's chunks
_ROWS = 21  # which of a trial's seeds draws rows

# cos(2πr) in r² for |r| ≤ ½: Chebyshev fit of degree 9, largest error 6e-14.
_COSINE: tuple[float, ...] = tuple(np.polynomial.chebyshev.Chebyshev.interpolate(
    lambda q: np.cos(2 * np.pi * np.sqrt(q)), 9, domain=[0.0, 0.25]
).convert(kind=np.polynomial.Polynomial, domain=[-1, 1], window=[-1, 1]).coef.tolist())  # fmt: skip


@dataclass(frozen=True, eq=False)
class Chunk:
    """Samples of T iterations. The last axis is the trial, padded or not, or has length 1 if all trials see the same.

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


class FunctionSamples:
    """Streams y = f(x) + ν with drawn x and ν, as features of x.

    Attributes
    ----------
    bytes_per_iteration : int
        Memory that a chunk takes per iteration; the other sources of samples have it too.
    tests_on_next : bool
        Whether the test MSE is the server model's error on the clients' next samples, instead of on a test set.
    """

    tests_on_next = False

    def __init__(self, scenario: "Scenario", fleet: "Fleet", stream: Stream) -> None:
        assert scenario.data.function is not None
        size, layout = fleet.input_dimension, make_layout(scenario.num_clients, over_clients=False)
        self._shape, self._weights = (scenario.num_clients, scenario.dimension), fleet.target
        self._hooks = Hooks()
        self._source = WordSource(stream, layout, (size + 2) // 2)
        self._sampling = Sampling(scenario, stream.key.size, InputModel(fleet), self._hooks, size)
        self._function = scenario.data.function
        self._features = scenario.model.make_features(size, scenario.dimension)
        self.bytes_per_iteration: int = 8 * scenario.num_clients * (scenario.dimension + size + 2) * WIDTH

    def chunk(self, first: int, count: int) -> Chunk:
        """Draw the samples of iterations `first` … `first + count − 1`; each is addressed by iteration and client.

        A stream that remembers is asked for chunks in order.
        """
        (clients, dimension), size = self._shape, self._sampling.sample.shape[1]
        raw, values = np.empty((count, clients, size, WIDTH)), np.empty((count, clients, WIDTH))
        source: Any = KernelTable(self._source)
        sampling: Any = KernelTable(self._sampling)
        draw_samples(first, source, sampling, raw, values)
        self._hooks.check()
        _add_values(self._function, raw, values)
        inputs = raw
        if self._features.phases.size:
            inputs = np.empty((count, clients, dimension, WIDTH))
            _map_features(self._features.frequencies, self._features.phases, self._features.scale, raw, inputs)
        _subtract_fit(self._weights, inputs, values)
        return Chunk(inputs, values, np.full(count, clients))


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
    begin : int
        Iteration of the first rows.
    """

    tests_on_next = True

    def __init__(
        self, inputs: Sequence[FloatArray], residuals: Sequence[FloatArray], epochs: int, begin: int = 0
    ) -> None:
        self._inputs, self._residuals, self._epochs, self._begin = inputs, residuals, epochs, begin
        self.bytes_per_iteration: int = 8 * len(inputs) * (inputs[0].shape[1] + 1)
        self._kept: dict[tuple[int, int], Chunk] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}

    def chunk(self, first: int, count: int) -> Chunk:
        """Return the rows of iterations `first` … `first + count − 1`; zeros where a client has none left.

        Trials and runs that follow ask for the same chunks, and only read them: some are kept.
        """
        chunk = self._kept.get((first, count))
        if chunk is None:
            n = np.arange(first, first + count)[:, None, None] - self._begin
            ends = np.array([len(labels) * self._epochs for labels in self._residuals])[:, None]
            lengths = np.array([max(len(labels), 1) for labels in self._residuals])[:, None]
            chunk = _pick_rows(self._inputs, self._residuals, np.where(n < ends, n % lengths, -1))
            kept = sum(iterations for _, iterations in list(self._kept)) + count
            if kept * self.bytes_per_iteration <= _KEPT_BYTES:
                self._kept[first, count] = chunk
        return chunk

    def drawn(self, seed: int, trials: range, iterations: int) -> "DrawnRows":
        """Return the same rows drawn at random, other ones in every trial."""
        return DrawnRows(self._inputs, self._residuals, seed, trials, iterations)


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
        self, inputs: Sequence[FloatArray], residuals: Sequence[FloatArray], seed: int, trials: range, iterations: int
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
        return _pick_rows(self._inputs, self._residuals, self._rows[first : first + count])


# Where the samples of several trials come from.
TrialSamples = FunctionSamples | TableSamples | DrawnRows


def _pick_rows(inputs: Sequence[FloatArray], residuals: Sequence[FloatArray], rows: NDArray[Any]) -> Chunk:
    """Return each client's rows of these numbers, (T, K, lanes), and zeros for number −1."""
    (count, clients, lanes), has = rows.shape, rows >= 0
    x, y = np.zeros((count, clients, inputs[0].shape[1], lanes)), np.zeros(rows.shape)
    for k in range(clients):
        x[:, k].transpose(0, 2, 1)[has[:, k]] = inputs[k][rows[:, k][has[:, k]]]
        y[:, k][has[:, k]] = residuals[k][rows[:, k][has[:, k]]]
    return Chunk(x, y, has[:, :, 0].sum(axis=1))


def evaluate(function: Function, inputs: FloatArray) -> FloatArray:
    """Return f of inputs (…, d), shape (…,).

    Examples
    --------
    >>> from psofed.parts.functions import Sinc
    >>> evaluate(Sinc(), np.zeros((2, 3, 4)))
    array([[1., 1., 1.],
           [1., 1., 1.]])
    """
    columns = np.ascontiguousarray(np.reshape(inputs, (-1, inputs.shape[-1])).T)
    values = np.zeros((1, 1, columns.shape[1]))
    _add_values(function, columns[None, None], values)
    return values.reshape(inputs.shape[:-1])


def _add_values(function: Function, inputs: FloatArray, values: FloatArray) -> None:
    """Add f of inputs (T, K, d, N) to ``values`` (T, K, N)."""
    run_method(function, "value", _evaluate_all, inputs=inputs, values=values)


def _evaluate_all(method: Method, n: int, k: int, g: int, table: Any) -> None:
    inputs, values = table.inputs, table.values
    iterations, clients, size, count = inputs.shape
    x = np.empty(size)
    for t in range(iterations):
        for client in range(clients):
            for j in range(count):
                for i in range(size):
                    x[i] = inputs[t, client, i, j]
                values[t, client, j] = method(table.options, None, x) + values[t, client, j]


@kernel_part
def _cosine_of_turns(turns: float) -> float:
    r: float = turns - np.floor(turns + 0.5)
    q = r * r
    value = _COSINE[-1]
    for coefficient in _COSINE[-2::-1]:
        value = coefficient + q * value
    return value


@compiled
def _map_features(frequencies: FloatArray, phases: FloatArray, scale: float, raw: FloatArray, out: FloatArray) -> None:
    """Write scale · cos(2π(F x + φ)) of inputs ``raw`` (T, K, d, 16) into ``out`` (T, K, D, 16)."""
    turns = np.empty(WIDTH)
    for t in range(raw.shape[0]):
        for k in range(raw.shape[1]):
            for i in range(phases.size):
                for lane in range(WIDTH):
                    turns[lane] = phases[i]
                for j in range(raw.shape[2]):
                    for lane in range(WIDTH):
                        turns[lane] += frequencies[i, j] * raw[t, k, j, lane]
                for lane in range(WIDTH):
                    out[t, k, i, lane] = scale * _cosine_of_turns(turns[lane])


@compiled
def _subtract_fit(weights: FloatArray, inputs: FloatArray, values: FloatArray) -> None:
    """Subtract w°ᵀz of ``inputs`` (T, K, D, 16) from ``values`` (T, K, 16)."""
    for t in range(values.shape[0]):
        for k in range(values.shape[1]):
            for i in range(weights.size):
                for lane in range(WIDTH):
                    values[t, k, lane] -= weights[i] * inputs[t, k, i, lane]


class ServerSamples(NamedTuple):
    """Samples of several trials, in the form that :func:`measure` or :func:`own_step` evaluates.

    Attributes
    ----------
    rows : array (L, R, D + 1)
        Either the samples [x̌_r, ν̌_r], R = N; or a Gram matrix. Of a test set that is G, R = D + 1, of which only the
        upper triangle is read: off the diagonal it counts twice. Of root data it is Σ_r x_ri [x_r, ν_r], R = D.
    is_gram : bool
        Which of the two.
    scale : float
        1/N for a test set; μ/N for root data, μ the mean of the clients' stepsizes.
    """

    rows: FloatArray
    is_gram: bool
    scale: float


NO_SERVER_SAMPLES = ServerSamples(np.zeros((0, 0, 0)), False, 1.0)


def draw_test_instances(scenario: "Scenario", fleet: "Fleet", stream: Stream) -> FloatArray:
    """Draw [x̌_r, ν̌_r] for r = 0 … N_t − 1, shape (N_t, D + 1, lanes); for streams y = f(x) + ν it is [z, y − w°ᵀz]."""
    function, rows = scenario.data.function, draw_clean_samples(scenario, fleet, stream, scenario.data.test_instances)
    if scenario.is_linear:
        return rows
    assert function is not None
    inputs, noise = rows[:, :-1].transpose(0, 2, 1), rows[:, -1]
    z = scenario.model.make_features(fleet.input_dimension, scenario.dimension)(inputs)
    labels = evaluate(function, inputs) + noise
    rows = np.concatenate([z, (labels - z @ fleet.target)[..., None]], axis=2)
    return np.ascontiguousarray(rows.transpose(0, 2, 1))


def draw_clean_samples(scenario: "Scenario", fleet: "Fleet", stream: Stream, count: int) -> FloatArray:
    """Draw samples [x_r, ν_r] that belong to no client, shape (count, d + 1, lanes).

    Inputs are white with ``data.test_input_variance``, the noise has the clients' average variance.
    """
    width = fleet.input_dimension + 1
    words = (width + 1) // 2
    normals = np.empty((2 * words * count, stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, normals)
    rows = normals.reshape(count, 2 * words, -1)[:, :width].astype(np.float64)
    rows[:, :-1] *= math.sqrt(scenario.data.test_input_variance)
    rows[:, -1] *= math.sqrt(fleet.test_noise_variance)
    return rows


def draw_test_set(setup: Setup) -> ServerSamples:
    """Draw the trials' test sets in the cheaper of the two forms."""
    rows = draw_test_instances(setup.scenario, setup.fleet, setup.stream("test"))
    count, width, _ = rows.shape
    is_gram = count > width
    if is_gram:
        gram = np.zeros((width, width, rows.shape[2]))
        for row in rows:
            gram += row[:, None] * row[None, :]
        gram[np.triu_indices(width, 1)] *= 2.0
        rows = gram
    return ServerSamples(np.ascontiguousarray(rows.transpose(2, 0, 1)), is_gram, 1.0 / count)


def draw_root_data(setup: Setup) -> ServerSamples:
    """Draw the root data of the scenario's rule, as y = wᵀx + ν: there are none for given samples."""
    scenario, rule = setup.scenario, setup.scenario.aggregation
    if not rule.has_root_data:
        return NO_SERVER_SAMPLES
    if not setup.sends_models or setup.has_samples:
        raise NotCoveredError(
            f'aggregation = "{rule.kind}" compares model updates with root data, but algorithm = '
            f'"{scenario.algorithm.kind}" sends no models'
        )
    size: Any = getattr(rule, "root_size")  # noqa: B009 (only these rules have it)
    rows = draw_clean_samples(scenario, setup.fleet, setup.stream("root"), size)
    is_gram = size > scenario.dimension
    if is_gram:
        rows = np.einsum("ril,rjl->ijl", rows[:, :-1], rows)
    return ServerSamples(np.ascontiguousarray(rows.transpose(2, 0, 1)), is_gram, scenario.mean_stepsize / size)


@kernel_part
def measure(state: State, tests: ServerSamples, trial: int, count: int, first: int, out: FloatArray) -> None:
    """Write MSD and test MSE of a trial's server errors in sixteen iterations, ``state.path``, into ``out``.

    ``out[first + j, 1:3, l]`` is that of iteration j, for the first `count` of them.
    """
    path, scratch, rows = state.path, state.measured, tests.rows
    dimension = path.shape[1]
    start = trial * dimension * WIDTH
    msd, total = spread(0.0), spread(0.0)
    for i in range(dimension):
        error = load(path, start + i * WIDTH)
        msd = fma(error, error, msd)
    for r in range(rows.shape[1]):
        value = spread(rows[trial, r, dimension])
        for i in range(r if tests.is_gram else 0, dimension):
            value = fma(rows[trial, r, i], load(path, start + i * WIDTH), value)
        if not tests.is_gram:
            total = fma(value, value, total)
        elif r < dimension:
            total = fma(value, load(path, start + r * WIDTH), total)
        else:
            total = total + value
    store(scratch, 0, msd)
    store(scratch, WIDTH, tests.scale * total)
    for j in range(count):
        out[first + j, 1, trial] = scratch[0, j]
        if rows.shape[1]:  # else tests are the clients' next samples
            out[first + j, 2, trial] = scratch[1, j]


@kernel_part
def own_step(root: ServerSamples, server: FloatArray, out: FloatArray) -> None:
    """Write the change of the server's error by its own step, −μ/N Σ_r x_r (x_rᵀg + ν_r), into ``out`` (L, D)."""
    (trials, dimension), rows = server.shape, root.rows
    for trial in range(trials):
        for i in range(dimension):
            out[trial, i] = 0.0
        for r in range(rows.shape[1]):
            error = rows[trial, r, dimension]
            for i in range(dimension):
                error += rows[trial, r, i] * server[trial, i]
            error *= root.scale
            if root.is_gram:
                out[trial, r] = -error
            else:
                for i in range(dimension):
                    out[trial, i] -= error * rows[trial, r, i]
