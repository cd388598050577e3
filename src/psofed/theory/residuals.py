"""The distance of an honest client's upload from the server's model: the variance that a defence measures it by.

With u the number that client k uploads and g the server's own before the upload, both given that k uploads,

    E[(u − g)²] = E[u²] + E[g²] − 2 E[u g],

which are the moments ``own1``, ``server`` and ``cross1`` after the LMS step (:mod:`psofed.theory.moments.second`).
"""

from functools import lru_cache

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.scenario import Scenario
from psofed.theory.coverage import check_paper_iteration
from psofed.theory.model import TheoryModel
from psofed.theory.steps.exchange import SeparableMasks

# Once no client's variance changes by more than this in an iteration, they count as settled.
_STILL = 1e-6

# Numbers of pair moments beyond which an iteration takes too long.
_MOST_MOMENTS = 400_000


@lru_cache(maxsize=32)
def honest_variance(scenario: Scenario) -> FloatArray:
    """Return the mean of (u − g)² over the entries that client k uploads in iteration n, shape (N, K).

    There is no attack, and models are zero at first. The scenario's attack, defence and aggregation play no part: it is
    the variance under the mean, and other rules are taken to change the level alone. Rows end where the variance has
    settled; the last row holds for all later iterations.

    Raises
    ------
    NotCoveredError
        Where theory does not cover the scenario, or would take too long.

    Examples
    --------
    >>> honest_variance(Scenario(num_clients=6, dimension=2, iterations=200))[[0, -1]].mean(axis=1).round(4)
    array([0.0276, 0.0005])
    """
    check_paper_iteration(scenario, "The variance of honest residuals")
    model = TheoryModel(scenario.replace(attack=None, defence=None, pre_aggregation=None, aggregation="mean"))
    branches = model.branches if not model.is_scattered else ()
    clients, size = scenario.num_clients, model.entries.size
    if len(branches) != 1 or len(branches[0].exchanges) != 1:
        raise NotCoveredError(
            "The variance of honest residuals needs masks that are alike in all iterations."
        )
    if clients * clients * size > _MOST_MOMENTS:
        raise NotCoveredError(f"The variance of honest residuals takes too long for {clients} clients.")
    (exchange,) = branches[0].exchanges
    assert isinstance(exchange, SeparableMasks)
    recursion = model.recursion(scenario.common_stepsize, branches[0], lumped=False)
    weight = exchange.mask.row * model.entries.diagonal
    weight /= weight.sum()
    v, first = recursion.initial, recursion.initial_first if recursion.has_direction else None
    rows: list[FloatArray] = []
    with np.errstate(over="ignore", invalid="ignore"):  # at an unstable stepsize
        for n in range(scenario.iterations):
            z = recursion.lms.clients(v.clients, 1.0, 1.0, first)
            z = z.mixed(model.drawn) if recursion.redrawn else z
            square = model.entries.roll(z.own1 + z.server - z.cross1 - model.entries.flip(z.cross1))
            rows.append(square @ weight)
            if n and np.abs(rows[-1] - rows[-2]).max() <= _STILL * rows[-1].max():
                break
            v = recursion.step(v, n, first=first)
            first = None if first is None else recursion.step_first(first, n)
    variance = np.array(rows)
    if not np.isfinite(variance).all():
        raise NotCoveredError(
            f"The variance of honest residuals grows without bound at stepsize = {scenario.common_stepsize:g}."
        )
    variance.flags.writeable = False
    return variance
