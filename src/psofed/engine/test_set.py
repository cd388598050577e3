"""The server's test set: N_t instances per trial, and the test MSE ‖y̌ − X̌ᵀw_n‖²/N_t of a server error.

With the server's error g = w − w_n and test noise ν̌, the test MSE is ‖X̌ᵀg + ν̌‖²/N_t. For N_t > D it is
evaluated as the quadratic form [g; 1]ᵀ G [g; 1] with G formed once, else from the instances themselves.
"""

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from psofed.common.types import FloatArray
from psofed.engine.compiling import kernel_part
from psofed.engine.lanes import WIDTH, fma, load, spread, store
from psofed.engine.normals import fill_standard_normal
from psofed.engine.samples import draw_function_tests
from psofed.engine.streams import Stream

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario


class TestSet(NamedTuple):
    """Test instances of several trials, in the form that :func:`measure` evaluates.

    Attributes
    ----------
    rows : array (L, R, D + 1)
        Either the instances [x̌_r, ν̌_r] (R = N_t), or the rows of G (R = D + 1), of which only the upper triangle
        is read; off the diagonal it counts twice.
    is_gram : bool
        Which of the two.
    instances : int
        N_t.
    """

    rows: FloatArray
    is_gram: bool
    instances: int


TestSet.__test__ = False  # type: ignore[attr-defined]  # not a test class, whatever pytest thinks of its name

NO_TESTS = TestSet(np.zeros((0, 0, 0)), False, 1)


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


def draw_test_set(scenario: "Scenario", fleet: "Fleet", stream: Stream) -> TestSet:
    """Draw the trials' test sets in the cheaper of the two forms."""
    rows = draw_test_instances(scenario, fleet, stream)
    count, width, _ = rows.shape
    if count <= width:
        return TestSet(np.ascontiguousarray(rows.transpose(2, 0, 1)), False, count)
    gram = np.zeros((width, width, rows.shape[2]))
    for row in rows:
        gram += row[:, None] * row[None, :]
    gram[np.triu_indices(width, 1)] *= 2.0
    return TestSet(np.ascontiguousarray(gram.transpose(2, 0, 1)), True, count)


@kernel_part
def measure(
    path: FloatArray, scratch: FloatArray, tests: TestSet, trial: int, count: int, first: int, out: FloatArray
) -> None:
    """Write MSD and test MSE of a trial's server errors in sixteen iterations, ``path`` (L, D, 16), into ``out``.

    ``out[first + j, 1:3, l]`` is that of iteration j, for the first `count` of them.
    """
    dimension, rows, share = path.shape[1], tests.rows, 1.0 / tests.instances
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
    store(scratch, WIDTH, share * total)
    for j in range(count):
        out[first + j, 1, trial] = scratch[0, j]
        if rows.shape[1]:  # else tests are the clients' next samples
            out[first + j, 2, trial] = scratch[1, j]
