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
    """Test instances of several trials, in the form that :func:`test_error` evaluates.

    Attributes
    ----------
    rows : array (R, D + 1, lanes)
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
        return TestSet(rows, False, count)
    gram = np.zeros((width, width, rows.shape[2]))
    for row in rows:
        gram += row[:, None] * row[None, :]
    gram[np.triu_indices(width, 1)] *= 2.0
    return TestSet(gram, True, count)


@kernel_part
def test_error(server: FloatArray, tests: TestSet, out: FloatArray, row: int) -> None:
    """Write the test MSE of the server errors ``server`` (D, lanes) into a row of lanes of ``out``."""
    dimension, lanes = server.shape
    share = 1.0 / tests.instances
    for lane in range(0, lanes, WIDTH):
        total = spread(0.0)
        for r in range(tests.rows.shape[0]):
            first = r * (dimension + 1) * lanes + lane
            value = load(tests.rows, first + dimension * lanes)
            for i in range(r if tests.is_gram else 0, dimension):
                value = fma(load(tests.rows, first + i * lanes), load(server, i * lanes + lane), value)
            if not tests.is_gram:
                total = fma(value, value, total)
            elif r < dimension:
                total = fma(value, load(server, r * lanes + lane), total)
            else:
                total = total + value
        store(out, row * lanes + lane, share * total)


test_error.__test__ = False  # type: ignore[attr-defined]
