"""The local step of all clients, sixteen columns at a time: draw, predict, learn, add up squares.

A *column* is a client in a trial. Sixteen columns are a vector, and models are an array (vectors, D, 16). In a block of
up to sixteen trials, lane l is trial l and vector k is client k. In a single trial with many clients, client k is lane
``k & 15`` of vector ``k >> 4``. :class:`Layout` says which; the bits are the same.

Models are held as errors, w − w_{k,n}: the recursion is the same, and y = wᵀx + ν need not be formed. With z the D + 1
standard normals of client k in iteration n, at word (n·K + k)·J of the trial's stream, J = ⌈(D + 1)/2⌉:

    x = ς_k z_1…D,   e = (w − w_k)ᵀx + σ_k z_D+1,   w − w_k ← (w − w_k) − μ_k e x
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.lanes import WIDTH, Vector, convert, empty_lanes, filled, fma, load, pick, spread, store
from psofed.engine.learning import AHEAD, ALONG_INPUT, ANY, LMS, Learning, Sampling
from psofed.engine.normals import mix_word, normal_pair
from psofed.engine.state import Layout, copy_array
from psofed.engine.streams import Stream, WordArray
from psofed.engine.tables import Stage, TableData, call

if TYPE_CHECKING:
    from psofed.engine.draws import Draws
    from psofed.engine.iteration import TrialBlock

# Clients whose squared errors are summed before they are added to the others', so that threads can each take some.
SUM_BLOCK = 1 << 16

_f64 = np.float64


class WordSource(TableData):
    """Words of the columns' samples, (16,) each, J = `words` for each client and iteration.

    Word j of vector v in iteration n is origin + n·stride + v·hop + j·gamma.
    """

    def __init__(self, data: Stream, layout: Layout, words: int) -> None:
        key, gamma = np.resize(data.key, WIDTH), np.resize(data.gamma, WIDTH)
        lane = np.arange(WIDTH, dtype=np.uint64) if layout.mask else np.zeros(WIDTH, np.uint64)
        hop = words * (WIDTH if layout.mask else 1)
        self.origin: WordArray = filled(key + lane * np.uint64(words) * gamma, WIDTH, dtype=np.uint64)
        self.stride: WordArray = filled(np.uint64(layout.clients * words) * gamma, WIDTH, dtype=np.uint64)
        self.hop: WordArray = filled(np.uint64(hop) * gamma, WIDTH, dtype=np.uint64)
        self.gamma: WordArray = filled(gamma, WIDTH, dtype=np.uint64)


class Tally(TableData):
    """Sums and values kept of the prediction errors.

    Attributes
    ----------
    sums : array (blocks, 16)
        Sums of the squared errors of an iteration over blocks of clients, by lane; in lane 0 if lanes are clients.
    tests : array (16,)
        Sums of the server's squared errors on the clients' samples.
    honest : array (16,)
        Sums of the honest clients' squared errors.
    errors : array (vectors, 16), or empty
        The errors of an iteration, where a metric needs them.
    squares : array (vectors, 16), or empty
        Sums of each column's squared errors from some iteration on.
    """

    def __init__(self, layout: Layout, keeps_errors: bool, keeps_squares: bool) -> None:
        vectors = layout.vectors
        self.sums: FloatArray = filled(0.0, -(-vectors // (SUM_BLOCK >> layout.shift)), WIDTH)
        self.tests: FloatArray = empty_lanes(WIDTH)
        self.honest: FloatArray = empty_lanes(WIDTH)
        self.errors: FloatArray = filled(0.0, vectors if keeps_errors else 0, WIDTH)
        self.squares: FloatArray = filled(0.0, vectors if keeps_squares else 0, WIDTH)


class StepScratch(TableData):
    """Scratch of one thread: hashed words, normals, errors.

    In :func:`learn_clients` it takes the vectors from `start`, a multiple of SUM_BLOCK clients, to `stop`.
    """

    def __init__(self, dimension: int, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.hashed: WordArray = empty_lanes(AHEAD, WIDTH, dtype=np.uint64)
        self.normals: NDArray[np.float32] = empty_lanes(2 * ((dimension + 2) // 2), WIDTH, dtype=np.float32)
        self.error: FloatArray = empty_lanes(WIDTH)


@kernel_part
def _draw_normals(word: Vector, gamma: Vector, hashed: WordArray, normals: NDArray[np.float32]) -> None:
    """Fill the normals of a vector from its words, which begin at `word`."""
    words = normals.shape[0] // 2
    for first in range(0, words, AHEAD):
        last = min(first + AHEAD, words)
        for j in range(last - first):
            store(hashed, j * WIDTH, mix_word(word))
            word = word + gamma
        for j in range(first, last):
            x, y = normal_pair(load(hashed, (j - first) * WIDTH))
            store(normals, 2 * j * WIDTH, x)
            store(normals, (2 * j + 1) * WIDTH, y)


def _make_learn(over_clients: bool) -> Stage:
    """Return the step on white samples, for lanes over trials or over clients."""

    def learn(n: int, t: int, g: int, block: "TrialBlock") -> None:
        source, inputs, scratch, tally = block.source, block.sampling.inputs, block.scratch, block.tally
        stepsizes, models, learns = block.learning.stepsizes, block.state.models, block.state.learns
        start, stop, error_scratch = scratch.start, scratch.stop, scratch.error
        sums, errors, squares = tally.sums, tally.errors, tally.squares
        dimension, hashed, normals = models.shape[1], scratch.hashed, scratch.normals
        scales, deviations, block_size = inputs.scale, inputs.noise_deviation, SUM_BLOCK >> block.layout.shift
        is_watched, keeps_errors = squares.size and n >= block.draws.watched_from, errors.size
        some_learn = block.draws.learns.size
        gamma, hop = load(source.gamma, 0), load(source.hop, 0)
        word = load(source.origin, 0) + np.uint64(n) * load(source.stride, 0) + np.uint64(start) * hop
        for begin in range(start, stop, block_size):
            total, single = spread(0.0), 0.0
            for v in range(begin, min(begin + block_size, stop)):
                _draw_normals(word, gamma, hashed, normals)
                word = word + hop
                at, first = v * WIDTH, v * dimension * WIDTH
                if over_clients:
                    scale, deviation = load(scales, at), load(deviations, at)
                    against = -1.0 * load(stepsizes, at)
                else:
                    scale, deviation, against = scales[v], deviations[v], -stepsizes[v]
                product = spread(0.0)
                for i in range(dimension):
                    x = scale * convert(load(normals, i * WIDTH), _f64)
                    product = fma(x, load(models, first + i * WIDTH), product)
                error = product + deviation * convert(load(normals, dimension * WIDTH), _f64)
                if over_clients:  # in the order of the clients, so that sums do not depend on the layout
                    store(error_scratch, 0, error)
                    for lane in range(WIDTH):
                        single = fma(error_scratch[lane], error_scratch[lane], single)
                else:
                    total = fma(error, error, total)
                if keeps_errors:
                    store(errors, at, error)
                if is_watched:
                    store(squares, at, fma(error, error, load(squares, at)))
                step = against * error
                if some_learn:
                    step = pick(load(learns, at), step, spread(0.0))
                for i in range(dimension):
                    x, place = scale * convert(load(normals, i * WIDTH), _f64), first + i * WIDTH
                    store(models, place, fma(x, step, load(models, place)))
            store(sums, begin // block_size * WIDTH, total)
            if over_clients:
                sums[begin // block_size, 0] = single

    return learn


# Stages: the vectors of a thread make LMS steps on white samples, and their squared errors are summed.
learn_trials: Any = _make_learn(False)
learn_clients: Any = _make_learn(True)


@kernel_part
def _add_product(residual: Vector, sample: FloatArray, at: int, model: FloatArray, row: int, size: int) -> Vector:
    """Return residual + Σ_i x_i m_i, m the rows of lanes that begin at `row`."""
    product = spread(0.0)
    for i in range(size):
        product = fma(load(sample, at + i * WIDTH), load(model, (row + i) * WIDTH), product)
    return product + residual


@kernel_part
def _draw_sample(n: int, k: int, sampling: Sampling, s: int) -> None:
    """Write the inputs of client k into ``sampling.sample[s]`` and its noise into ``sampling.residual[s]``."""
    inputs, normals, sample = sampling.inputs, sampling.normals, sampling.sample
    size, at = sample.shape[1], s * sample.shape[1] * WIDTH
    if sampling.address != 0:
        call(sampling.address, n, k, s, sampling)
    elif inputs.factors.size:
        for i in range(size):
            total = spread(0.0)
            for j in range(i + 1):
                total = fma(convert(load(normals, j * WIDTH), _f64), inputs.factors[k, i, j], total)
            store(sample, at + i * WIDTH, total)
    else:
        scale, correlation = inputs.scale[k], inputs.correlation
        fresh = np.sqrt(1.0 - correlation * correlation)
        x = scale * convert(load(normals, 0), _f64)
        store(sample, at, x)
        for i in range(1, size):
            x = fma(x, correlation, fresh * (scale * convert(load(normals, i * WIDTH), _f64)))
            store(sample, at + i * WIDTH, x)
    noise = inputs.noise_deviation[k] * convert(load(normals, size * WIDTH), _f64)
    store(sampling.residual, s * WIDTH, noise)


@kernel_part
def _take_sample(t: int, k: int, draws: "Draws", sampling: Sampling, s: int) -> bool:
    """Copy the given sample of client k; return whether it has one, which is not all zeros."""
    inputs, residuals, sample, residual = draws.inputs, draws.residuals, sampling.sample, sampling.residual
    trials, has_sample = residuals.shape[2], False
    lanes, stride = (WIDTH, 0) if trials == 1 else (trials, 1)
    for i in range(sample.shape[1]):
        has_sample = has_sample or inputs[t, k, i, 0] != 0.0
        for lane in range(lanes):
            sample[s, i, lane] = inputs[t, k, i, stride * lane]
    for lane in range(lanes):
        residual[s, lane] = residuals[t, k, stride * lane]
    return has_sample


@kernel_part
def _step_client(n: int, k: int, some_learn: bool, learning: Learning, error: Vector) -> None:
    """Let client k learn from the sample in ``learning.sample[0]`` with the prediction errors `error`."""
    sample, models, target, lanes = learning.sample, learning.models, learning.target, learning.lanes
    dimension, first, shape = models.shape[1], k * models.shape[1] * WIDTH, learning.shape
    if shape != LMS:
        store(lanes, 0, error)
    if shape == ANY:
        call(learning.address, n, k, 0, learning)
        return
    step, keep = -learning.stepsizes[k] * error, 1.0
    if shape == ALONG_INPUT:
        power = spread(0.0)
        for i in range(dimension):
            power = fma(load(sample, i * WIDTH), load(sample, i * WIDTH), power)
        store(lanes, WIDTH, power)
        call(learning.address, n, k, 0, learning)
        step, keep = -1.0 * load(lanes, 2 * WIDTH), learning.keep[k]
    for i in range(dimension):
        at = first + i * WIDTH
        old = load(models, at)
        new = fma(load(sample, i * WIDTH), step, keep * old + (1.0 - keep) * target[i])
        if some_learn:
            new = pick(load(learning.learns, k * WIDTH), new, old)
        store(models, at, new)


def learn_in_general(n: int, t: int, g: int, block: "TrialBlock") -> None:
    """Stage: let all clients learn from any kind of sample, with any learner; lanes are trials.

    Where clients hold no model, their errors are those of ``server`` (1, D, 16), nobody
    learns, and the samples stay in ``sampling``. Metrics are of clean samples, learning of poisoned ones.
    """
    source, learning, sampling, draws = block.source, block.learning, block.sampling, block.draws
    attack, poison = block.attack, block.attack.on_samples
    tally, moves, offsets, server = block.tally, draws.moves, sampling.offsets, block.state.server_lanes
    errors, squares, hold_models = tally.errors, tally.squares, not block.rival.is_on
    sample, residuals, dimension = sampling.sample, sampling.residual, sampling.sample.shape[1]
    models = block.state.models if hold_models else server
    is_watched = squares.size > 0 and n >= draws.watched_from
    poisons = attack.poisons and draws.exchanges[t] > 0
    gamma, hop = load(source.gamma, 0), load(source.hop, 0)
    word = load(source.origin, 0) + np.uint64(n) * load(source.stride, 0)
    total, tests = spread(0.0), spread(0.0)
    for k in range(block.layout.clients):
        s, has_sample = 0 if hold_models else k, True
        own = k * dimension if hold_models else 0
        if sampling.has_samples:
            has_sample = _take_sample(t, k, draws, sampling, s)
        else:
            _draw_normals(word, gamma, sampling.hashed, sampling.normals)
            word = word + hop
            _draw_sample(n, k, sampling, s)
        at, residual = s * dimension * WIDTH, load(residuals, s * WIDTH)
        if sampling.tests_on_next:
            test = _add_product(residual, sample, at, server, 0, dimension)
            tests = fma(test, test, tests)
        if moves.size:
            residual = _add_product(residual, sample, at, moves, t * dimension, dimension)
        if offsets.size:
            residual = _add_product(residual, sample, at, offsets, k * dimension, dimension)
        error = _add_product(residual, sample, at, models, own, dimension)
        total = fma(error, error, total)
        if errors.size:
            store(errors, k * WIDTH, error)
        if is_watched:
            store(squares, k * WIDTH, fma(error, error, load(squares, k * WIDTH)))
        if not has_sample:
            continue
        if poisons:
            store(residuals, s * WIDTH, residual)
            for group in range(poison.size):
                if poison[group] != 0:
                    call(poison[group], n, k, group, attack)
            error = _add_product(load(residuals, s * WIDTH), sample, at, models, own, dimension)
        if hold_models:
            _step_client(n, k, draws.learns.size > 0, learning, error)
    store(tally.sums, 0, total)
    store(tally.tests, 0, tests)


@compiled
def draw_samples(first: int, source: WordSource, sampling: Sampling, inputs: FloatArray, noise: FloatArray) -> None:
    """Write inputs (T, K, d, 16) and noise (T, K, 16) of iterations `first`, `first` + 1, …; lanes are trials."""
    gamma, hop = load(source.gamma, 0), load(source.hop, 0)
    for t in range(inputs.shape[0]):
        word = load(source.origin, 0) + np.uint64(first + t) * load(source.stride, 0)
        for k in range(inputs.shape[1]):
            _draw_normals(word, gamma, sampling.hashed, sampling.normals)
            word = word + hop
            _draw_sample(first + t, k, sampling, 0)
            copy_array(sampling.sample[0], inputs[t, k])
            copy_array(sampling.residual[0], noise[t, k])
