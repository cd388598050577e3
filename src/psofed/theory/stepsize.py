"""Finds the best stepsize: the minimiser of a predicted error over all stable stepsizes.

An attack that adds something, or a target that walks, makes small stepsizes costly, so that the error over (0, μ_max)
first falls and then rises. Without either it falls with the stepsize all the way down, and the answer is 0. μ_max is
the largest stable stepsize (:func:`stable_range`); if it is 0 there is no answer. Some errors fall up to μ_max, such as
the server's MSD where it never hears the clients that diverge. The search therefore ends at 0.97 μ_max (:data:`EDGE`),
and :func:`is_at_edge` tells whether the best stepsize is there.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from psofed.common.errors import NotCoveredError
from psofed.common.validation import check_choice
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.theory.coverage import check_metric_covered
from psofed.theory.metrics import METRICS
from psofed.theory.model import TheoryModel
from psofed.theory.solve import Solver
from psofed.theory.stability import mean_square_stepsize_bound, stability_limit

EDGE = 0.97  # of the largest stable stepsize: the largest one that is tried
AS_GOOD_AS_ZERO = 1e-5  # of the largest stable stepsize: below, the error has stopped falling with the stepsize
_FAR, _CLOSE = 2.5, 1.3  # ratios of the stepsizes that are tried first, without and with a guess
_MOST_PARABOLAS = 40
_DEEPEST = 13 * math.log(_FAR) - 1e-9  # below the limit, in logarithms: as good as zero


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
    check_choice("metric", metric, tuple(METRICS))
    scenario = as_scenario(scenario)
    check_metric_covered(scenario, metric)
    solver = Solver(TheoryModel(scenario, theory, by_honesty=metric == "honest"))
    best = best_stepsize(solver, metric)
    if best > 0:
        solver.check_reach(best)
    return best


@dataclass(frozen=True, eq=False)
class Aim:
    """An error to minimise: a metric in the steady state, or its mean (1/N) Σ_{n<N} over a horizon of N iterations.

    Parameters
    ----------
    solver : Solver
    metric : str
    horizon : int or None
        N; None for the steady state.
    """

    solver: Solver
    metric: str = "network"
    horizon: int | None = None

    def best(self, limit: float, guess: float = 0.0) -> float:
        """Return the stepsize below a `limit` with the lowest error; a `guess` of it saves time."""
        model = self.solver.model
        is_cheap = model.fleet.is_white and not model.is_sampled and self.horizon is None
        return minimise(self.error, limit, 2e-5 if is_cheap else 5e-4, guess)

    def error(self, stepsize: float) -> float:
        """Return the error at a stable stepsize."""
        solver = self.solver
        if self.horizon is not None:
            level = solver.mean_level(stepsize, self.horizon)
        else:
            # Over correlated inputs digits cost, and the minimum is flat.
            level = (solver if solver.model.fleet.is_white else solver.rough).level(stepsize)
        error: float = getattr(level.metrics(solver.model), METRICS[self.metric])
        if math.isnan(error) and not math.isnan(level.server):
            if self.metric == "honest":
                raise NotCoveredError("All clients are Byzantine, so there is no honest clients' MSE.")
            raise NotCoveredError("The theory does not predict the test MSE of models that are not linear.")
        return error


def best_stepsize(solver: Solver, metric: str = "network") -> float:
    """Find the stepsize with the lowest steady-state error of a model; 0 where smaller is always better."""
    model = solver.model
    if not (has_optimum(model) or model.has_direction):
        if not model.is_contraction:
            stable_range(solver)  # refuses where even the smallest stepsizes diverge
        return 0.0
    limit = stable_range(solver)
    best = Aim(solver, metric).best(limit)
    return best if best > AS_GOOD_AS_ZERO * limit else 0.0


def has_optimum(model: TheoryModel) -> bool:
    """Whether small stepsizes have a price: an attack that adds something, or a target to keep up with.

    An attack that only multiplies (flipped, scaled or missing updates) does nothing where there are no updates, and
    poisoned samples or clients' own targets pull the model to one side, the same at all small stepsizes.
    """
    return model.walk > 0 or model.adds


def stable_range(solver: Solver, tolerance: float = 1e-4) -> float:
    """Find the largest stable stepsize of a model, from below to a relative tolerance.

    Raises
    ------
    NoStableStepsizeError
        If there is none.
    """
    guess, digits = mean_square_stepsize_bound(solver.model.fleet), max(1e-8, 1e-2 * tolerance)
    limit = stability_limit(lambda mu: solver.spectral_radius(mu, digits), guess, tolerance)
    if limit == 0.0:
        raise NoStableStepsizeError
    return limit


def minimise(error: Callable[[float], float], limit: float, tolerance: float = 2e-5, guess: float = 0.0) -> float:
    """Minimise an error that falls, then rises, over stepsizes up to EDGE · `limit`, to a relative `tolerance`.

    Each new stepsize is the vertex of the parabola, over the logarithm of the stepsize, through the three best ones so
    far. A `guess` of the best stepsize, where there is one, saves some of the search.

    Examples
    --------
    >>> round(minimise(lambda mu: mu + 0.01 / mu, 1.0), 4)
    0.1
    >>> minimise(lambda mu: -mu, 1.0)
    0.97
    """
    top, step = EDGE * limit, math.log(_CLOSE if guess > 0 else _FAR)
    at = cache(lambda x: error(top * math.exp(-x)))  # x ≥ 0: how far below, in logarithms
    # Walk down from the guess or the limit until the error rises, or up: small stepsizes are the slow ones to solve.
    x = max(math.log(top / guess), 0.0) if guess > 0 else 0.0
    for direction in (step, -step):
        while x < _DEEPEST and at(max(x + direction, 0.0)) < at(x):
            x = max(x + direction, 0.0)
    if x >= _DEEPEST:
        return top * math.exp(-x)
    low, high = max(x - step, 0.0), x + step
    tried = {low, x, high}
    for _ in range(_MOST_PARABOLAS):
        lowest = sorted(tried, key=at)[:3]
        other = _vertex([(place, at(place)) for place in lowest])
        wider = math.copysign(1.0, high + low - 2.0 * x)
        if not low < other < high:
            other = x + 0.5 * wider * max(high - x, x - low)
        if abs(other - x) <= tolerance:
            if math.prod(abs(place - x) for place in lowest if place != x) <= 10.0 * tolerance:
                break
            other = x + wider * math.sqrt(tolerance)  # a parabola through distant points may be right by chance only
        tried.add(other)
        if at(other) < at(x):
            x, other = other, x
        low, high = (other, high) if other < x else (low, other)
    return top * math.exp(-x)


def _vertex(points: list[tuple[float, float]]) -> float:
    """Return where the parabola through three points has its minimum, or NaN."""
    if len(points) < 3 or not math.isfinite(sum(value for _, value in points)):
        return math.nan
    (a, at_a), (b, at_b), (c, at_c) = points
    slope = (at_b - at_a) / (b - a)
    curvature = ((at_c - at_b) / (c - b) - slope) / (c - a)
    return 0.5 * (a + b - slope / curvature) if curvature > 0.0 else math.nan


def is_at_edge(stepsize: float, limit: float) -> bool:
    """Whether the best stepsize is the largest one that is tried, so that the error falls up to the `limit`."""
    return 0.0 < 0.999 * EDGE * limit <= stepsize
