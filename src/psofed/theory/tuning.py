"""Sets up a fleet: the best stepsize for each number M of shared entries, and which M to choose.

For each M the error E(μ) is minimised over stable stepsizes: the steady-state metric, or its mean (1/N) Σ_{n<N}
E[error_n] over a horizon of N iterations. The recommended M is the one with the fewest values sent within 0.1 dB of
the lowest error.

With a budget of b values per iteration, the number P of participants is chosen for each M as well. All P participants
receive M values and send M values, so that 2PM ≤ b. The largest such P is tried first, then half of it, a quarter and
so on while that lowers the error. The recommended design is the one with the lowest error.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import InvalidValueError
from psofed.common.numbers import to_decibels
from psofed.common.settings import takes
from psofed.common.types import FloatArray
from psofed.common.validation import check_integer
from psofed.render import Report, Reported
from psofed.render.numbers import fixed, significant
from psofed.results.metrics import LABELS
from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.settings.theory import TuningSettings
from psofed.theory.coverage import check_metric_covered
from psofed.theory.metrics import METRICS, metrics_of
from psofed.theory.model import TheoryModel
from psofed.theory.prediction import Prediction
from psofed.theory.solve import Solver
from psofed.theory.stepsize import AS_GOOD_AS_ZERO, Aim, NoStableStepsizeError, has_optimum, is_at_edge, stable_range

if TYPE_CHECKING:
    import pandas

    from psofed.render.charts import Chart

_WITHIN = 10**0.1  # converged: within 1 dB of the steady state, above or below
_NEARLY_AS_GOOD = 10**0.01  # 0.1 dB
_FIRST_LOOK = 256  # iterations of the first learning curve that is searched for the settling time
_LONGEST = 100_000
_MOST_PAIR_STEPS = 2e8  # moments times iterations that a settling time may cost: some seconds


@dataclass(frozen=True)
class TuningPoint:
    """Best stepsize and error for one number of shared entries.

    Attributes
    ----------
    num_shared : int
        M.
    num_participants : int
        P.
    stepsize : float
        The best one.
    network_mse, server_msd, test_mse, honest_mse : float
        Predicted steady state there; infinite if unstable.
    max_stepsize : float
        The mean-square stability limit.
    convergence_iterations : int or None
        Iterations until the network MSE is, and stays, within 1 dB of its steady state, above or below. From the exact
        learning curve; None if that takes more than 100,000 iterations, longer than the horizon, or too long to compute
        for so large a fleet.
    numbers_per_iteration : int
        Values that all participants together receive and send per iteration, 2PM.
    horizon_error : float or None
        Mean of the minimised metric over the horizon; None where the steady state was minimised.
    at_edge : bool
        Whether the error falls up to the largest stable stepsize; the best one is then 3 % below that.
    """

    num_shared: int
    num_participants: int
    stepsize: float
    network_mse: float
    server_msd: float
    test_mse: float
    honest_mse: float
    max_stepsize: float
    convergence_iterations: int | None
    numbers_per_iteration: int
    horizon_error: float | None = None
    at_edge: bool = False

    def error(self, metric: str) -> float:
        """Return the error that was minimised."""
        error: float = getattr(self, METRICS[metric])
        return error if self.horizon_error is None else self.horizon_error


@dataclass(frozen=True, eq=False, repr=False)
class Tuning(Reported):
    """Best stepsizes by number of shared parameters, and a recommendation.

    Attributes
    ----------
    metric : str
        What was minimised: ``"network"``, ``"honest"``, ``"test"`` or ``"msd"``.
    points : tuple of TuningPoint
    recommended : TuningPoint
    reason : str
    horizon : int or None
        Iterations over which the mean error was minimised; None for the steady state.
    scenario : Scenario
        What was tuned.
    theory : str
        The theory that predicted the errors.
    budget : int or None
        The most values that all participants together may receive and send per iteration.
    """

    metric: str
    points: tuple[TuningPoint, ...]
    recommended: TuningPoint
    reason: str
    horizon: int | None
    scenario: Scenario
    theory: str
    budget: int | None = None

    def design(self, point: TuningPoint) -> Scenario:
        """Return the scenario with the numbers of a point, but for its stepsize."""
        return self.scenario.replace(num_shared=point.num_shared, num_participants=point.num_participants)

    def curves(self) -> tuple[FloatArray, dict[int, FloatArray]]:
        """Return stepsizes around the best ones, and the predicted errors there by number of shared parameters."""
        top = max(point.max_stepsize for point in self.points)
        bottom = min(0.3 * min(p.stepsize for p in self.points if p.max_stepsize > 0), 0.01 * top)
        stepsizes = np.geomspace(bottom, 0.98 * top, 32)
        curves = {}
        for point in self.points:
            aim, limit = _aim(self.design(point), self), point.max_stepsize
            errors = [aim.error(float(mu)) if mu < limit else math.inf for mu in stepsizes]
            curves[point.num_shared] = np.array(errors)
        return stepsizes, curves

    def report(self) -> Report:
        """Return the best stepsize for each number of shared parameters, and which to use."""
        from psofed.theory.tuning_reports import tuning_report

        return tuning_report(self)

    def chart(self) -> "Chart":
        """Return the predicted error over the stepsize for each M, as a value."""
        from psofed.theory.tuning_reports import tuning_chart

        return tuning_chart(self)

    def to_dataframe(self) -> "pandas.DataFrame":
        """Return a row per number of shared entries."""
        import pandas

        return pandas.DataFrame([asdict(point) | {"recommended": point is self.recommended} for point in self.points])

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts."""
        return {
            "metric": self.metric,
            "horizon": self.horizon,
            "budget": self.budget,
            "points": [asdict(point) for point in self.points],
            "recommendation": asdict(self.recommended) | {"reason": self.reason},
            "theory": self.theory,
            "scenario": self.scenario.to_mapping(),
        }


@takes(TuningSettings)
def tune(scenario: Scenario | str | Path, settings: TuningSettings) -> Tuning:
    """Find the best stepsize for each number of shared parameters, and recommend one of them.

    Under attack, or with a target that walks, that is where the steady-state error has its minimum. Otherwise, and with
    your own data, smaller is always better in the end but learns more slowly; then the mean error over the run is
    minimised, (1/N) Σ_{n<N} E[error_n] from the exact learning curve.

    Parameters
    ----------
    scenario : Scenario or path
        The fleet and the attack on it; the answer replaces its stepsize, `num_shared` and, with a budget,
        `num_participants`.

    Returns
    -------
    Tuning
        Best stepsizes by number of shared parameters, and a recommendation.

    Examples
    --------
    >>> from psofed import Scenario
    >>> from psofed.attacks import Gaussian
    >>> fleet = Scenario(num_clients=20, dimension=3, attack=Gaussian(num_byzantine=5))
    >>> tuning = tune(fleet)
    >>> tuning.recommended.num_shared, tuning.horizon
    (1, None)
    >>> design = tune(fleet, budget=24).recommended
    >>> design.num_shared, design.num_participants, design.numbers_per_iteration
    (1, 12, 24)
    >>> short, long = (tune(fleet.replace(attack=None), shared=[1], horizon=n) for n in (50, 200))
    >>> short.recommended.stepsize > long.recommended.stepsize > 0
    True
    """
    scenario, metric, theory = as_scenario(scenario), settings.metric, settings.theory
    horizon, progress = settings.horizon, settings.progress or (lambda done, total: None)
    _ = scenario.common_stepsize  # what is tuned is one number
    counts: Sequence[int] = settings.shared or range(1, scenario.dimension + 1)
    for count in counts:
        check_integer("shared", count, 1, scenario.dimension, "dimension")
    if settings.budget is not None:
        counts = _affordable(scenario, counts, settings.budget)
    check_metric_covered(scenario, metric)
    own_data = scenario.data.rows is not None
    # Tables end, most before a steady state.
    if horizon is None and (own_data or not has_optimum(TheoryModel(scenario, theory))):
        horizon = scenario.iterations
    search = replace(settings, horizon=horizon)
    points: list[TuningPoint] = []
    for count in counts:
        progress(len(points), len(counts))
        guess = points[-1].stepsize if points else 0.0
        points.append(_best_design(scenario.replace(num_shared=count), search, guess))
    progress(len(counts), len(counts))
    recommended, reason = _recommend(tuple(points), search)
    return Tuning(metric, tuple(points), recommended, reason, horizon, scenario, theory, settings.budget)


def _aim(scenario: Scenario, search: "TuningSettings | Tuning") -> Aim:
    """Return the error of a design that a search minimises."""
    model = TheoryModel(scenario, search.theory, by_honesty=search.metric == "honest")
    return Aim(Solver(model), search.metric, search.horizon)


def values_sent(scenario: Scenario, **changes: int) -> float:
    """Return how many values all participants together receive and send per iteration."""
    traffic = measure_communication(scenario.replace(**changes))
    return float(traffic.numbers_down + traffic.numbers_up)


def _affordable(scenario: Scenario, counts: Sequence[int], budget: int) -> list[int]:
    """Return the numbers of shared parameters that one participant can afford."""
    needed = {count: values_sent(scenario, num_shared=count, num_participants=1) for count in counts}
    least = min(needed.values())
    if least > budget:
        raise InvalidValueError("budget", budget, f"at least {least:g}, what a single participant receives and sends")
    return [count for count in counts if needed[count] <= budget]


def _best_design(scenario: Scenario, search: TuningSettings, guess: float) -> TuningPoint:
    """Return the best point for a number of shared parameters; a budget leaves the number of participants open."""
    if search.budget is None:
        return _Design.of(scenario, search, guess).point(search)
    participants = min(scenario.num_clients, int(search.budget / values_sent(scenario, num_participants=1)))
    best = _Design.of(scenario.replace(num_participants=participants), search, guess)
    while participants > 1:
        participants //= 2
        other = _Design.of(scenario.replace(num_participants=participants), search, best.stepsize)
        if not other.error < best.error:
            break
        best = other
    return best.point(search)


def settling_time(solver: Solver, stepsize: float, steady: float, longest: int = _LONGEST) -> int | None:
    """Count iterations until the network MSE is, and stays, within 1 dB of `steady`, on either side of it.

    Read off the exact learning curve, which is made longer until its second half is settled.
    """
    model, length = solver.model, _FIRST_LOOK
    moments = solver.num_moments(stepsize)
    while length <= longest and length * moments <= _MOST_PAIR_STEPS:
        curve = metrics_of(model, *solver.curve(stepsize, length)).network_mse
        outside = np.nonzero((curve > _WITHIN * steady) | (curve * _WITHIN < steady))[0]
        if outside.size == 0 or outside[-1] < length // 2:
            return int(outside[-1] + 1) if outside.size else 0
        length *= 4
    return None


@dataclass(frozen=True)
class _Design:
    """A scenario with the best stepsize and the error there; without them where no stepsize is stable."""

    scenario: Scenario
    aim: Aim
    limit: float = 0.0
    stepsize: float = math.nan
    error: float = math.inf

    @classmethod
    def of(cls, scenario: Scenario, search: TuningSettings, guess: float) -> "_Design":
        aim = _aim(scenario, search)
        try:  # with correlated inputs, digits cost
            limit = stable_range(aim.solver, 1e-4 if aim.solver.model.fleet.is_white else 1e-2)
        except NoStableStepsizeError:
            return cls(scenario, aim)
        stepsize = aim.best(limit, guess)
        return cls(scenario, aim, limit, stepsize, aim.error(stepsize))

    def point(self, search: TuningSettings) -> TuningPoint:
        """Return all predicted errors of the design, and when it settles."""
        metrics, settled, solver = dict.fromkeys(METRICS.values(), math.inf), None, self.aim.solver
        if self.limit > 0.0:
            # A sample of offsets is as large as its spread at the scenario's own stepsize asks for.
            known = None if solver.model.is_sampled else solver
            scenario = self.scenario.replace(stepsize=self.stepsize)
            best = Prediction(scenario, search.theory, shared=known)
            metrics = best.metrics._asdict()
            if self.stepsize > AS_GOOD_AS_ZERO * self.limit:  # else it takes far longer than is computed
                longest = _LONGEST if search.horizon is None else max(search.horizon, _FIRST_LOOK)
                settled = settling_time(best.solver, self.stepsize, best.network_mse, longest)
        return TuningPoint(
            self.scenario.num_shared,
            self.scenario.num_participants,
            self.stepsize,
            **metrics,
            max_stepsize=self.limit,
            convergence_iterations=settled,
            numbers_per_iteration=int(values_sent(self.scenario)),
            horizon_error=None if search.horizon is None else self.error,
            at_edge=is_at_edge(self.stepsize, self.limit),
        )


def _recommend(points: tuple[TuningPoint, ...], search: TuningSettings) -> tuple[TuningPoint, str]:
    metric, horizon, budget = search.metric, search.horizon, search.budget
    best = min(points, key=lambda point: point.error(metric))
    if best.max_stepsize == 0.0:
        raise NoStableStepsizeError
    close = [point for point in points if point.error(metric) <= _NEARLY_AS_GOOD * best.error(metric)]
    chosen = min(close, key=lambda point: point.numbers_per_iteration)
    title = LABELS[METRICS[metric]].title
    what = f"steady-state {title}" if horizon is None else f"mean {title} over {horizon:,} iterations"
    if budget is not None:
        return best, f"this gives the lowest {what} with at most {budget:,} values sent per iteration."
    if chosen is best:
        return chosen, f"this gives the lowest {what}."
    lost = to_decibels(chosen.error(metric) / best.error(metric))
    return chosen, (
        f"the {what} is only {fixed(lost)} dB above the lowest (M = {best.num_shared}, stepsize "
        f"{significant(best.stepsize)}), and {chosen.numbers_per_iteration:,} values are sent per iteration instead of "
        f"{best.numbers_per_iteration:,}."
    )
