"""Compute what a page shows step by step: the headline first, refinements later.

Theory: a fleet's model and solver do not depend on the stepsize. :func:`fleet_of` keeps them, so that moving the
stepsize costs one point.

Simulation: few trials everywhere first, then more, so that intervals shrink on the screen. Every point equals
``psofed simulate --trials N`` with the same seed, to the bit: a later step repeats the trials of the earlier ones.
"""

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import cached_property, lru_cache

import numpy as np

from psofed.common.errors import InvalidValueError, NotCoveredError
from psofed.common.types import ProgressCallback
from psofed.explore.answers import METRICS, ErrorLevel, Point, Simulation, Theory
from psofed.render.charts import log_bins
from psofed.results import SimulationResult
from psofed.results.metrics import HONEST
from psofed.scenario import Scenario
from psofed.theory.prediction import Prediction, predict_roughly
from psofed.theory.stepsize import NoStableStepsizeError, has_optimum, minimise, stable_range

_BATCH = 0.06  # seconds of computing between two updates of a curve
_SLOW = 0.15  # seconds; fleets whose points take longer get fewer of them
_CURVE_POINTS = 240
_SETTLED = 5e-4  # relative to the steady state: a tenth of a pixel
TRIALS = (16, 64, 256)
_FACTORS = (0.1, 0.25, 0.5, 1.5, 2.0, 3.0)  # of the current stepsize
_LONGEST_CURVE = 6.0  # seconds for a learning curve


class FleetTheory:
    """One fleet at all stepsizes: its solver and the points computed so far.

    Parameters
    ----------
    scenario : Scenario
        Its stepsize is ignored.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.prediction: Prediction = predict_roughly(scenario, theory_of(scenario))
        self.points: dict[float, Point] = {}
        self._seconds = 0.0  # that the last point took

    def point(self, stepsize: float) -> Point:
        """Return the steady state at one stepsize."""
        point = self.points.get(stepsize)
        if point is None:
            started = time.thread_time()
            prediction = self.prediction.at(stepsize)
            levels = {name: ErrorLevel(float(getattr(prediction, name))) for name in METRICS}
            point = Point(stepsize, levels, terms=asdict(prediction.terms))
            self.points[stepsize] = point
            self._seconds = time.thread_time() - started
        return point

    def point_or_nothing(self, stepsize: float) -> Point:
        """Return the same, without errors where the theory does not cover this stepsize."""
        try:
            return self.point(stepsize)
        except NotCoveredError:
            return Point(stepsize)

    def worst(self, point: Point) -> Point:
        """Return a point with its error under the worst additive attack of the same power, if there is one."""
        if math.isnan(point.worst):
            try:
                worst = self.prediction.at(point.x).worst_network_mse()
            except (InvalidValueError, NotCoveredError):
                return point
            point = self.points[point.x] = replace(point, worst=worst)
        return point

    @property
    def curve(self) -> tuple[Point, ...]:
        """All points so far, by stepsize."""
        return tuple(self.points[stepsize] for stepsize in sorted(self.points))

    @property
    def is_slow(self) -> bool:
        """Whether points take so long that only a few are computed."""
        return self._seconds > _SLOW

    @cached_property
    def limit(self) -> float:
        """The largest stable stepsize, to three digits (two for slow fleets); 0 if none is stable."""
        try:
            return stable_range(self.prediction.solver, 1e-2 if self.is_slow else 1e-3)
        except NoStableStepsizeError:
            return 0.0

    def best(self, metric: str) -> Point:
        """Return the steady state at the stepsize with the lowest error; stepsize 0 if smaller is always better."""
        model = self.prediction.model
        if not (has_optimum(model) or model.has_direction) or not 0 < self.limit < math.inf:
            return Point(0.0)

        def error(stepsize: float) -> float:
            value = self.point_or_nothing(stepsize).mean(metric)
            return math.inf if value is None else value

        stepsize = minimise(error, self.limit, 1e-2 if self.is_slow else 1e-3)
        return self.point_or_nothing(stepsize) if stepsize > 1e-5 * self.limit else Point(0.0)

    def stepsizes(self) -> list[float]:
        """Return stepsizes for a curve: dense near zero, where an attack weighs most, and near the limit."""
        if not 0 < self.limit < math.inf:
            return []
        low, high = (4, 3) if self.is_slow else (20, 16)
        fractions = [*np.geomspace(0.008, 0.4, low), *(1 - np.geomspace(0.55, 0.02, high))]
        return [float(self.limit * fraction) for fraction in fractions]


@lru_cache(maxsize=40)
def _fleet(scenario: Scenario) -> FleetTheory:
    return FleetTheory(scenario)


def fleet_of(scenario: Scenario) -> FleetTheory:
    """Return the fleet of a scenario, whatever its stepsize; the most recently used ones are kept."""
    common = isinstance(scenario.stepsize, float | int)
    return _fleet(scenario.replace(stepsize=1.0) if common else scenario)


def theory_steps(scenario: Scenario, metric: str = "network_mse") -> Iterator[Theory]:
    """Yield the theory's answer, more of it each time.

    Parameters
    ----------
    scenario : Scenario
        The settings.
    metric : str
        The metric that is shown, whose best stepsize is sought.
    """
    stepsize = scenario.mean_stepsize
    try:
        fleet = fleet_of(scenario)
        present = fleet.point(stepsize)
    except NotCoveredError as error:
        yield Theory(refusal=str(error), finished=True)
        return
    yield (theory := Theory(present))
    yield (theory := replace(theory, limit=fleet.limit))
    yield (theory := replace(theory, best=fleet.best(metric)).with_chart("stepsize", fleet.curve))
    full = fleet_of(scenario.replace(num_shared=scenario.dimension))
    yield (theory := replace(theory, full_best=full.best(metric)))
    for points in _in_batches(_shared_points(scenario, 4 if fleet.is_slow else 12)):
        yield (theory := theory.with_chart("num_shared", points))
    for points in _learning_curve(fleet, scenario, present):
        yield (theory := theory.with_chart("iteration", points))
    for _ in _in_batches(fleet.point_or_nothing(mu) for mu in fleet.stepsizes()):
        yield (theory := theory.with_chart("stepsize", fleet.curve))
    if not fleet.is_slow and not math.isnan((present := fleet.worst(present)).worst):
        yield (theory := replace(theory, present=present))
        for _ in _in_batches(fleet.worst(fleet.point_or_nothing(mu)) for mu in fleet.stepsizes()[::2]):
            yield (theory := theory.with_chart("stepsize", fleet.curve))
    yield replace(theory, finished=True)


def shared_counts(dimension: int, current: int, most: int = 12) -> list[int]:
    """Return the numbers of shared parameters to compute: all if there are few, always 1, D and the current one.

    Examples
    --------
    >>> shared_counts(5, 2), shared_counts(200, 3, most=5)
    ([1, 2, 3, 4, 5], [1, 3, 4, 14, 53, 200])
    """
    if dimension <= most:
        return list(range(1, dimension + 1))
    spread = np.geomspace(1, dimension, most).round().astype(int).tolist()
    return sorted({*spread, 1, current, dimension})


def theory_of(scenario: Scenario) -> str:
    """Return which theory the explorer shows: the exact one, under the independence assumption if it must be."""
    return "exact" if scenario.data.stream.is_independent else "independence"


def _shared_points(scenario: Scenario, most: int) -> Iterator[Point]:
    for count in shared_counts(scenario.dimension, scenario.num_shared, most):
        try:
            fleet = fleet_of(scenario.replace(num_shared=count))
            yield replace(fleet.point(scenario.mean_stepsize), x=float(count))
        except NotCoveredError:
            yield Point(float(count))


def _learning_curve(fleet: FleetTheory, scenario: Scenario, present: Point) -> Iterator[tuple[Point, ...]]:
    """Yield the learning curve from its start, each time longer, until it has settled or the run ends."""
    total = scenario.iterations
    length = min(total, 30 if fleet.is_slow else 120)
    steady = present.levels["network_mse"].mean
    while True:
        started = time.thread_time()
        curve = fleet.prediction.at(scenario.mean_stepsize).learning_curve(length)
        seconds = time.thread_time() - started
        network = curve.network_mse
        tail = network[-max(length // 10, 1) :]
        is_level = math.isfinite(steady) and bool(np.all(np.abs(tail - steady) <= _SETTLED * steady))
        points = [
            Point(float(n), {name: ErrorLevel(float(getattr(curve, name)[n])) for name in METRICS})
            for n in _thinned(length)
        ]
        if is_level and length < total:  # flat from here on
            points.append(replace(present, x=float(total - 1)))
        yield tuple(points)
        is_complete = is_level or length >= total or not np.isfinite(network[-1])
        if is_complete or 4 * seconds > _LONGEST_CURVE:
            return
        length = min(4 * length, total)


def _thinned(length: int) -> list[int]:
    """Return the iterations of a learning curve to draw, denser at its start."""
    if length <= _CURVE_POINTS:
        return list(range(length))
    return sorted({0, *np.geomspace(1, length - 1, _CURVE_POINTS).round().astype(int).tolist()})


def _in_batches(points: Iterable[Point]) -> Iterator[tuple[Point, ...]]:
    """Yield the points so far, now and then and at the end."""
    finished: list[Point] = []
    since = time.thread_time()
    for point in points:
        finished.append(point)
        if time.thread_time() - since > _BATCH:
            yield tuple(finished)
            since = time.thread_time()
    yield tuple(finished)


def simulation_steps(scenario: Scenario, limit: float | None, progress: ProgressCallback) -> Iterator[Simulation]:
    """Yield the simulation's answer, more of it each time.

    Parameters
    ----------
    scenario : Scenario
        The settings.
    limit : float or None
        Largest stable stepsize if theory knows it; larger ones are not simulated.
    progress : callable
        Called with (done, total) trial-iterations of the whole plan; it may raise to stop.
    """
    from psofed.simulation.monte_carlo import simulate

    others = _others(scenario, limit)
    plan = [(axis, x, changed, trials) for trials in TRIALS for axis, x, changed in others]
    plan = [step for step in plan if step[0] == "" or step[3] < TRIALS[-1]]  # the last trials only at the settings
    total, done = sum(trials * changed.iterations for _, _, changed, trials in plan), 0
    answer = Simulation()
    for axis, x, changed, trials in plan:

        def report(part: float, _: int, before: int = done) -> None:
            progress(before + part, total)

        result = simulate(changed, trials, progress=report)
        done += trials * changed.iterations
        progress(done, total)
        point = _point(x, result)
        answer = replace(answer, progress=done / total)
        if axis:
            answer = answer.with_chart(axis, _placed(answer, axis, point))
        else:
            answer = replace(answer, present=point).with_chart("iteration", _curve(result))
            if isinstance(scenario.stepsize, float | int):
                here = replace(point, x=scenario.stepsize)
                answer = answer.with_chart("stepsize", _placed(answer, "stepsize", here))
            here = replace(point, x=scenario.num_shared)
            answer = answer.with_chart("num_shared", _placed(answer, "num_shared", here))
        yield answer
    yield replace(answer, finished=True)


def _others(scenario: Scenario, limit: float | None) -> list[tuple[str, float, Scenario]]:
    """Return the axis, the place on it and the scenario of all points; the first is the current settings."""
    mu, count = scenario.stepsize, scenario.num_shared
    points: list[tuple[str, float, Scenario]] = [("", 0.0, scenario)]
    counts = [m for m in shared_counts(scenario.dimension, count, 6) if m != count]
    points += [("num_shared", m, scenario.replace(num_shared=m)) for m in counts]
    if isinstance(mu, float | int):
        stepsizes = [x * mu for x in _FACTORS if not limit or x * mu < limit]
        points += [("stepsize", x, scenario.replace(stepsize=x)) for x in stepsizes]
    return points


def _placed(answer: Simulation, axis: str, point: Point) -> tuple[Point, ...]:
    """Return the points over an axis with a new one, or with more trials at one."""
    points = {old.x: old for old in answer.charts.get(axis, ())} | {point.x: point}
    return tuple(points[x] for x in sorted(points))


def _point(x: float, result: SimulationResult) -> Point:
    levels = {name: ErrorLevel(estimate.mean, *estimate.interval) for name, estimate in result.estimates().items()}
    levels.setdefault(HONEST, levels["network_mse"])  # without Byzantine clients
    return Point(x, levels, trials=result.trials, diverged=int(result.diverged_trials.size))


def _curve(result: SimulationResult) -> tuple[Point, ...]:
    """Return the learning curve in bins that grow with time, with 95 % intervals."""
    levels = {}
    for metric, values in result.curve.items():
        # Neighbouring iterations are strongly dependent, so averaging a bin does not reduce its uncertainty.
        times, mean, error = log_bins(
            result.iterations.astype(float), values, 1.96 * result.curve_standard_error[metric]
        )
        levels[metric] = [ErrorLevel(*row) for row in zip(mean, mean - error, mean + error, strict=True)]
    levels.setdefault(HONEST, levels["network_mse"])
    return tuple(
        Point(float(n) - 1.0, {metric: column[i] for metric, column in levels.items()}, trials=result.trials)
        for i, n in enumerate(times)
    )
