"""Finds the best stepsize: the minimiser of a predicted error over all stable stepsizes.

An attack that adds something, or a target that walks, makes small stepsizes costly, so that the error over (0, μ_max)
first falls and then rises. Without either it falls with the stepsize all the way down, and the answer is 0. μ_max is
the largest stable stepsize (:func:`stable_range`); if it is 0 there is no answer. Some errors fall up to μ_max, such as
the server's MSD where it never hears the clients that diverge. The search therefore ends at 0.97 μ_max (:data:`EDGE`),
and :func:`is_at_edge` tells whether the best stepsize is there.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from psofed.common.errors import NotCoveredError
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.theory.coverage import check_metric_covered
from psofed.theory.metrics import METRICS, Level, check_metric, metrics_of
from psofed.theory.model import TheoryModel
from psofed.theory.solve import Solver
from psofed.theory.stability import mean_square_stepsize_bound, stability_limit

EDGE = 0.97  # of the largest stable stepsize: the largest one that is tried
AS_GOOD_AS_ZERO = 1e-5  # of the largest stable stepsize: below, the error has stopped falling with the stepsize


class NoStableStepsizeError(NotCoveredError):
    """No stepsize is stable, so there is no steady state to predict or to minimise."""

    def __init__(self) -> None:
        super().__init__(
            "No stepsize is stable: under this attack the models diverge however small the steps are. Fewer Byzantine "
            "clients or a smaller scale may be."
        )


def optimal_stepsize(scenario: Scenario | str | Path, theory: str = "exact", metric: str = "network") -> float:
    """Find the stepsize with the lowest predicted steady-state error under attack, or with a target that walks.

    Without either, or where the attack is no worse at small stepsizes, smaller is always better and the answer is 0.

    Parameters
    ----------
    scenario : Scenario or path
        Its stepsize is ignored.
    theory : str
        ``"exact"``, ``"paper"`` or ``"independence"`` (inputs taken as independent over time).
    metric : str
        ``"network"``, ``"honest"``, ``"test"`` or ``"msd"``; the last two have the same minimiser.

    Raises
    ------
    NotCoveredError
        Where the theory does not cover the scenario, or no stepsize is stable.

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
    check_metric(metric)
    scenario = as_scenario(scenario)
    check_metric_covered(scenario, metric)
    solver = Solver(TheoryModel(scenario, theory, by_honesty=metric == "honest"))
    best = best_stepsize(solver, metric)
    if best > 0:
        solver.check_reach(best)
    return best


def best_stepsize(solver: Solver, metric: str = "network") -> float:
    """Find the stepsize with the lowest steady-state error of a model; 0 where smaller is always better."""
    model = solver.model
    if not (has_optimum(model) or model.has_direction):
        if not model.is_contraction:
            stable_range(solver)  # refuses where even the smallest stepsizes diverge
        return 0.0
    limit = stable_range(solver)
    # Where offsets are sampled, the error is not known well enough for more.
    best = minimise(lambda mu: error_at(solver, mu, metric), limit, 1e-3 if model.is_sampled else 2e-5)
    return best if best > AS_GOOD_AS_ZERO * limit else 0.0


def has_optimum(model: TheoryModel) -> bool:
    """Whether small stepsizes have a price: an attack that adds something, or a target to keep up with.

    An attack that only multiplies (flipped, scaled or missing updates) does nothing where there are no updates, and
    poisoned samples or clients' own targets pull the model to one side, the same at all small stepsizes.
    """
    return model.walk > 0 or model.adds


def stable_range(solver: Solver, tolerance: float = 1e-4) -> float:
    """Find the largest stable stepsize of a model.

    Raises
    ------
    NoStableStepsizeError
        If there is none.
    """
    guess = mean_square_stepsize_bound(solver.model.fleet)
    limit = stability_limit(solver.spectral_radius, guess, tolerance=tolerance)
    if limit == 0.0:
        raise NoStableStepsizeError
    return limit


def error_at(solver: Solver, stepsize: float, metric: str) -> float:
    """Predicted steady-state error at one stable stepsize."""
    # Over correlated inputs digits cost, and the minimum is flat.
    total = (solver if solver.model.fleet.is_white else solver.rough).level(stepsize)
    if total.excess < 0.0 or total.server < 0.0:
        return math.inf  # among sampled offsets, some diverge at this stepsize
    return _error(solver, total, metric)


def mean_error(solver: Solver, stepsize: float, metric: str, horizon: int) -> float:
    """(1/N) Σ_{n<N} of a metric's exact learning curve at one stepsize, N = `horizon`."""
    return _error(solver, solver.mean_level(stepsize, horizon), metric)


def _error(solver: Solver, level: Level, metric: str) -> float:
    metrics = metrics_of(solver.model, level.excess, level.server, level.honest)
    error: float = getattr(metrics, METRICS[metric])
    if math.isnan(error) and not math.isnan(level.server):
        if metric == "honest":
            raise NotCoveredError("All clients are Byzantine, so there is no honest clients' MSE.")
        raise NotCoveredError("The theory does not predict the test MSE of models that are not linear.")
    return error


def minimise(error: Callable[[float], float], limit: float, tolerance: float = 2e-5) -> float:
    """Minimise an error that falls, then rises, over stepsizes up to EDGE · `limit`, to a relative `tolerance`.

    Examples
    --------
    >>> round(minimise(lambda mu: mu + 0.01 / mu, 1.0), 4)
    0.1
    >>> minimise(lambda mu: -mu, 1.0)
    0.97
    """
    # Down to 6.5e-6 of the limit, which is as good as zero
    grid = [math.log(EDGE * limit) - step * math.log(2.5) for step in range(14)]
    values = [error(math.exp(grid[0])), error(math.exp(grid[1]))]
    # Walk down from the limit until the error has risen again: small stepsizes are the slow ones to solve.
    while values[-1] < min(values[:-1]) and len(values) < len(grid):
        values.append(error(math.exp(grid[len(values)])))
    best = int(np.argmin(values))
    if best == len(values) - 1:
        return math.exp(grid[best])
    found = math.exp(_golden(lambda x: error(math.exp(x)), grid[best + 1], grid[max(best - 1, 0)], tolerance))
    return EDGE * limit if best == 0 and error(found) >= values[0] else found


def is_at_edge(stepsize: float, limit: float) -> bool:
    """Whether the best stepsize is the largest one that is tried, so that the error falls up to the `limit`."""
    return 0.0 < 0.999 * EDGE * limit <= stepsize


def _golden(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    from scipy.optimize import minimize_scalar

    options = {"xatol": tolerance}
    return float(minimize_scalar(function, bounds=(low, high), method="bounded", options=options).x)
