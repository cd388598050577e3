"""Samples that belong to no client: the server's test set, and root data that some rules compare clients with.

With the server's error g = w − w_n and noise ν̌, the test MSE is ‖X̌ᵀg + ν̌‖²/N. For N > D it is evaluated as the
quadratic form [g; 1]ᵀ G [g; 1] with G formed once, else from the samples themselves. A step on root data is linear in
g, and is evaluated likewise.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.compiling import kernel_part
from psofed.engine.lanes import WIDTH, fma, load, spread, store
from psofed.engine.normals import fill_standard_normal
from psofed.engine.samples import draw_function_tests
from psofed.engine.streams import Stream

if TYPE_CHECKING:
    from psofed.engine.state import Setup
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario


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
    """Draw [x̌_r, ν̌_r] for r = 0 … N_t − 1, shape (N_t, D + 1, lanes)."""
    if not scenario.is_linear:
        return draw_function_tests(scenario, fleet, stream)
    return draw_clean_samples(scenario, fleet, stream, scenario.data.test_instances)


def draw_clean_samples(scenario: "Scenario", fleet: "Fleet", stream: Stream, count: int) -> FloatArray:
    """Draw samples [x_r, ν_r] that belong to no client, shape (count, D + 1, lanes)."""
    width = scenario.dimension + 1
    words = (width + 1) // 2
    normals = np.empty((2 * words * count, stream.key.size), np.float32)
    fill_standard_normal(stream.key, stream.gamma, 0, normals)
    rows = normals.reshape(count, 2 * words, -1)[:, :width].astype(np.float64)
    rows[:, :-1] *= math.sqrt(scenario.data.test_input_variance)
    rows[:, -1] *= math.sqrt(fleet.test_noise_variance)
    return rows


def draw_test_set(setup: "Setup") -> ServerSamples:
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


def draw_root_data(setup: "Setup") -> ServerSamples:
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
def measure(
    path: FloatArray, scratch: FloatArray, tests: ServerSamples, trial: int, count: int, first: int, out: FloatArray
) -> None:
    """Write MSD and test MSE of a trial's server errors in sixteen iterations, ``path`` (L, D, 16), into ``out``.

    ``out[first + j, 1:3, l]`` is that of iteration j, for the first `count` of them.
    """
    dimension, rows = path.shape[1], tests.rows
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
