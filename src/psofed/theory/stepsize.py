"""The best stepsize: the true minimiser of a predicted error, and the paper's closed form."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from psofed.common.validation import check_choice
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.theory.models import Model
from psofed.theory.stability import mean_square_stepsize_bound, stability_limit
from psofed.theory.steady import Solver

_AS_GOOD_AS_ZERO = 1e-5  # of the limit: below, the error has stopped falling with the stepsize
METRICS = ("network", "test", "msd")


def optimal_stepsize(
    scenario: Scenario | str | Path, theory: str = "exact", metric: str = "network"
) -> float:
    """Find the stepsize with the lowest predicted steady-state error under attack, or with a target that walks.

    Without either, or where the attack is no worse at small stepsizes, the error falls all the way: the answer is 0.

    Parameters
    ----------
    scenario : Scenario or path
        Its own stepsize plays no part.
    theory : str
        ``"exact"`` or ``"paper"``.
    metric : str
        ``"network"``, ``"test"`` or ``"msd"``; the last two have the same minimiser.

    Examples
    --------
    >>> from psofed import Scenario
    >>> from psofed.attacks import Gaussian
    >>> optimal_stepsize(Scenario(num_clients=50, dimension=5))
    0.0
    >>> attack = Gaussian(num_byzantine=5, probability=0.25, variance=0.25)
    >>> 0.02 < optimal_stepsize(Scenario(num_clients=50, dimension=5, attack=attack)) < 0.06
    True
    """
    model = Model(as_scenario(scenario), theory)
    if not (has_optimum(model) or model.has_direction):
        return 0.0
    solver = Solver(model)
    limit = stable_range(solver)
    best = minimise(lambda mu: error_at(solver, mu, metric), limit)
    return best if best > _AS_GOOD_AS_ZERO * limit else 0.0


def has_optimum(model: Model) -> bool:
    """Whether small stepsizes have a price: an attack that adds something, or a target to keep up with.

    An attack that only multiplies (flipped, scaled or missing updates) does nothing where there are no updates, and
    poisoned samples or targets of the clients' own pull the model to one side, the same at all small stepsizes.
    """
    if model.walk > 0 or model.law.corruption.constant is not None:
        return True
    affine = model.law.corruption.affine
    return bool(np.any(model.attackers.chance)) and affine.variance + affine.common_variance > 0


def stable_range(solver: Solver, tolerance: float = 1e-4) -> float:
    """Find the largest stable stepsize of a model."""
    return stability_limit(solver.growth, mean_square_stepsize_bound(solver.model.fleet), tolerance=tolerance)


def check_metric(metric: str) -> None:
    """Refuse a metric that is not one."""
    check_choice("metric", metric, METRICS)


def error_at(solver: Solver, stepsize: float, metric: str) -> float:
    """Predicted steady-state error at one stable stepsize."""
    check_metric(metric)
    total = solver.steady_state(stepsize).total
    return float(_metric_of(solver, total.excess, total.server, metric))


def mean_error(solver: Solver, stepsize: float, metric: str, horizon: int) -> float:
    """(1/N) Σ_{n<N} of a metric's exact learning curve at one stepsize, N = `horizon`."""
    check_metric(metric)
    excess, server = solver.curve(stepsize, horizon)
    return float(_metric_of(solver, float(excess.mean()), float(server.mean()), metric))


def _metric_of(solver: Solver, excess: float, server: float, metric: str) -> float:
    fleet, data = solver.model.fleet, solver.model.scenario.data
    if metric == "network":
        return excess + float(fleet.noise_variance.mean())
    if metric == "test":
        return data.test_input_variance * server + fleet.test_noise_variance
    return server


def minimise(error: Callable[[float], float], limit: float, tolerance: float = 2e-5) -> float:
    """Minimise an error that falls, then rises, over stepsizes in (0, `limit`), to a relative `tolerance`.

    Examples
    --------
    >>> round(minimise(lambda mu: mu + 0.01 / mu, 1.0), 4)
    0.1
    """
    grid = [math.log(0.97 * limit) - step * math.log(2.5) for step in range(40)]
    values = [error(math.exp(grid[0])), error(math.exp(grid[1]))]
    # Walk down from the limit until the error has risen again: small stepsizes are the slow ones to solve.
    while values[-1] < min(values[:-1]) and len(values) < len(grid):
        values.append(error(math.exp(grid[len(values)])))
    best = int(np.argmin(values))
    if best == 0:
        low, high = grid[1], math.log(limit)
    elif best == len(values) - 1:
        return math.exp(grid[best])
    else:
        low, high = grid[best + 1], grid[best - 1]
    return math.exp(_golden(lambda x: error(math.exp(x)), low, high, tolerance))


def _golden(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    from scipy.optimize import minimize_scalar

    options = {"xatol": tolerance}
    return float(minimize_scalar(function, bounds=(low, high), method="bounded", options=options).x)
