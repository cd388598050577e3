"""The distance of an honest client's upload from the server's model: the variance that a defence measures it by.

With u the number that client k uploads and g the server's own before the upload, both given that k uploads,

    E[(u − g)²] = E[u²] + E[g²] − 2 E[u g],

all of them moments after the LMS step (:meth:`psofed.theory.iteration.Iteration.upload_distance`).
"""

from functools import lru_cache

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.scenario import Scenario
from psofed.theory.coverage import beyond_paper
from psofed.theory.iteration import Iteration
from psofed.theory.law import Law
from psofed.theory.model import TheoryModel

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
    model = TheoryModel(scenario.replace(attack=None, defence=None, pre_aggregation=None, aggregation="mean"))
    if not (model.is_papers and scenario.algorithm.holds_models):
        raise NotCoveredError(
            f"The variance of honest residuals is not predicted with {beyond_paper(scenario)}, but for "
            'algorithm = "pso-fed" with perfect links, clients that are always available, and LMS with one stepsize.'
        )
    clients, size = scenario.num_clients, model.entries.size
    masks, sets = model.masks() if not model.is_scattered else ((), 0)
    if len(masks) != 1 or sets != 1:
        raise NotCoveredError("The variance of honest residuals needs masks that are alike in all iterations.")
    block = 1 if model.fleet.is_white else scenario.dimension
    if clients * clients * size * block**2 > _MOST_MOMENTS:
        raise NotCoveredError(f"The variance of honest residuals takes too long for {clients} clients.")
    iteration = Iteration(Law(model, scenario.common_stepsize, lumped=False), masks)
    moments = iteration.initial
    rows: list[FloatArray] = []
    with np.errstate(over="ignore", invalid="ignore"):  # at an unstable stepsize
        for n in range(scenario.iterations):
            rows.append(iteration.upload_distance(moments))
            if n and np.abs(rows[-1] - rows[-2]).max() <= _STILL * rows[-1].max():
                break
            moments = iteration.step(moments)
    variance = np.array(rows)
    if not np.isfinite(variance).all():
        raise NotCoveredError(
            f"The variance of honest residuals grows without bound at stepsize = {scenario.common_stepsize:g}."
        )
    variance.flags.writeable = False
    return variance
