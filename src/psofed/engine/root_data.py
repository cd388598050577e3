"""Root data: samples that the server holds, and that some rules compare clients with."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.compiling import kernel_part
from psofed.engine.streams import Stream
from psofed.engine.test_set import draw_clean_samples

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario


class RootSet(NamedTuple):
    """Root data in the form that :func:`own_step` evaluates.

    Attributes
    ----------
    rows : array (L, R, D + 1)
        Σ_r x_ri [x_r, ν_r] for i = 0 … D − 1, or, where N ≤ D, the samples [x_r, ν_r] themselves; none if R = 0.
    is_gram : bool
        Which of the two.
    scale : float
        μ/N, μ the mean of the clients' stepsizes.
    """

    rows: FloatArray
    is_gram: bool
    scale: float


def draw_root(scenario: "Scenario", fleet: "Fleet", stream: Stream | None) -> RootSet:
    """Draw the root data of the scenario's rule; `stream` is None where models are not sent."""
    rule: Any = scenario.aggregation
    if not rule.has_root_data:
        return RootSet(np.zeros((0, 0, 0)), False, 0.0)
    if stream is None:
        raise NotCoveredError(
            f'aggregation = "{rule.kind}" compares model updates with root data, but algorithm = '
            f'"{scenario.algorithm.kind}" sends no models'
        )
    rows = draw_clean_samples(scenario, fleet, stream, rule.root_size)
    is_gram = rule.root_size > scenario.dimension
    if is_gram:
        rows = np.einsum("ril,rjl->ijl", rows[:, :-1], rows)
    rows = np.ascontiguousarray(rows.transpose(2, 0, 1))
    return RootSet(rows, is_gram, scenario.mean_stepsize / rule.root_size)


@kernel_part
def own_step(root: RootSet, server: FloatArray, out: FloatArray) -> None:
    """Write the change of the server's error by its own step, −μ/N Σ_r x_r (x_rᵀg + ν_r), into ``out`` (L, D)."""
    trials, dimension = server.shape
    for trial in range(trials):
        for i in range(dimension):
            out[trial, i] = 0.0
        for r in range(root.rows.shape[1]):
            error = root.rows[trial, r, dimension]
            for i in range(dimension):
                error += root.rows[trial, r, i] * server[trial, i]
            error *= root.scale
            if root.is_gram:
                out[trial, r] = -error
            else:
                for i in range(dimension):
                    out[trial, i] -= error * root.rows[trial, r, i]
