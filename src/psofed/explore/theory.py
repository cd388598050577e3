"""Compute the theory's answer about a scenario step by step: the headline first, refinements later.

A fleet's model and solver do not depend on the stepsize. :class:`Cache` keeps them, so that moving the stepsize costs
one point.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import TypeVar

import numpy as np

from psofed.common.errors import NotCoveredError, PsofedError
from psofed.explore.answers import METRICS, Curve, Design, Optimum, Point, Theory
from psofed.parts.base import Drift
from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.theory.metrics import metrics_of
from psofed.theory.model import TheoryModel
from psofed.theory.prediction import Prediction
from psofed.theory.stability import contraction_bound
from psofed.theory.stepsize import NoStableStepsizeError, has_optimum, minimise, stable_range

Input = TypeVar("Input")
Output = TypeVar("Output")

_BATCH = 0.06  # seconds of computing between two updates of a curve
_SLOW = 0.15  # seconds; fleets whose points take longer get fewer of them
_MANY_SHARED = 12
_FIRST_ITERATIONS = 120
_CURVE_POINTS = 240
_SETTLED = 5e-4  # relative to the steady state: a tenth of a pixel
_LONGEST_CURVE = 6.0  # seconds for a learning curve


class Known:
    """One fleet at all stepsizes: its model, its solver and the points computed so far.

    Parameters
    ----------
    scenario : Scenario
        Its stepsize is ignored.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.prediction: Prediction = Prediction(scenario, theory_of(scenario))
        self.model: TheoryModel = self.prediction.model
        self.points: dict[float, Point] = {}
        self.grid: set[float] = set()  # stepsizes of the curve over the stepsize
        self.best: dict[str, float | None] = {}
        self.seconds: float = 0.0  # that the last point took
        self._limit: float | None = None

    def point(self, stepsize: float) -> Point:
        """Return the steady state at one stepsize."""
        if stepsize not in self.points:
            started = time.thread_time()
            found = self.prediction.at(stepsize)
            metrics = {name: getattr(found, name) for name in METRICS}
            self.points[stepsize] = Point(stepsize, **metrics, terms=asdict(found.terms))
            self.seconds = time.thread_time() - started
        return self.points[stepsize]

    def point_or_nan(self, stepsize: float) -> Point:
        """Return the same, with NaN where the theory does not cover this stepsize."""
        try:
            return self.point(stepsize)
        except NotCoveredError:
            return self.points.setdefault(stepsize, _nowhere(stepsize))

    @property
    def is_slow(self) -> bool:
        """Whether points take so long that only a few are computed."""
        return self.seconds > _SLOW

    @property
    def limit(self) -> float:
        """The largest stable stepsize, to three digits (two for slow fleets)."""
        if self._limit is None:
            try:
                self._limit = stable_range(self.prediction.solver, 1e-2 if self.is_slow else 1e-3)
            except NoStableStepsizeError:
                self._limit = 0.0
        return self._limit

    def best_stepsize(self, metric: str) -> float | None:
        """Return the stepsize with the lowest error; None if a smaller one is always better."""
        if metric not in self.best:
            self.best[metric] = self._find_best(metric)
        return self.best[metric]

    def _find_best(self, metric: str) -> float | None:
        if not (has_optimum(self.model) or self.model.has_direction) or not 0 < self.limit < math.inf:
            return None
        tolerance = 3e-2 if self.is_slow else 1e-3

        def error(stepsize: float) -> float:
            value = self.point_or_nan(stepsize).value(metric)
            return math.inf if math.isnan(value) else value

        best = minimise(error, self.limit, tolerance)
        return best if best > 1e-5 * self.limit else None


class Cache:
    """Keeps the most recently used fleets."""

    def __init__(self, size: int = 40) -> None:
        self._size = size
        self._known: OrderedDict[tuple[Scenario, Drift | None], Known] = OrderedDict()

    def of(self, scenario: Scenario) -> Known:
        """Return the fleet of a scenario, whatever its stepsize and length."""
        stepsize = 1.0 if isinstance(scenario.stepsize, float | int) else scenario.stepsize
        key = scenario.replace(stepsize=stepsize, iterations=1, drift=None), scenario.drift
        if key not in self._known:
            self._known[key] = Known(scenario)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]


def theory_steps(scenario: Scenario, cache: Cache, metric: str = "network_mse") -> Iterator[Theory]:
    """Yield the theory's answer, more of it each time.

    Parameters
    ----------
    scenario : Scenario
        The settings.
    cache : Cache
        Kept from one call to the next.
    metric : str
        Metric whose best stepsize is sought.
    """
    try:
        known = cache.of(scenario)
        point = known.point(scenario.common_stepsize)
    except NotCoveredError as error:
        yield Theory(refusal=str(error), finished=True)
        return
    theory = Theory(point=point)
    yield theory
    full_scenario = scenario.replace(num_shared=scenario.dimension)
    full = cache.of(full_scenario)
    yield (theory := replace(theory, full=full.point_or_nan(scenario.common_stepsize)))
    for points in _over_stepsizes(known, _coarse(known)):
        yield (theory := replace(theory, stepsizes=points))
    curves = _learning_curve(known, scenario, point)
    yield (theory := replace(theory, curve=next(curves)))
    for designs in _over(scenario, "num_shared", cache, 4 if known.is_slow else _MANY_SHARED):
        yield (theory := replace(theory, shared=designs))
    for curve in curves:
        yield (theory := replace(theory, curve=curve))
    yield (theory := replace(theory, limit=known.limit))
    for points in _over_stepsizes(known, _fine(known)):
        yield (theory := replace(theory, stepsizes=points))
    yield (theory := replace(theory, best=_optimum(known, metric)))
    yield (theory := replace(theory, full_best=_optimum(full, metric)))
    if not known.is_slow:
        # Sharing all parameters among fewer participants is the other way to send less.
        for designs in _over(full_scenario, "num_participants", cache, 6):
            yield (theory := replace(theory, participants=designs))
    if scenario.attack is not None and (scenario.data.rows is None or not known.is_slow):
        yield (theory := replace(theory, most_byzantine=_most_byzantine(scenario)))
        yield (theory := replace(theory, full_most_byzantine=_most_byzantine(full_scenario)))
    yield replace(theory, finished=True)


def shared_counts(dimension: int, current: int, most: int = _MANY_SHARED) -> list[int]:
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


def _coarse(known: Known) -> list[float]:
    """Return a few stepsizes that are certainly stable, without computing the limit."""
    bound = contraction_bound(known.model.fleet)
    fractions = (0.05, 0.3, 0.9) if known.is_slow else (0.02, 0.06, 0.14, 0.28, 0.5, 0.75, 0.98)
    return [fraction * bound for fraction in fractions] if math.isfinite(bound) else []


def _fine(known: Known) -> list[float]:
    limit = known.limit
    if not math.isfinite(limit) or limit <= 0:
        return []
    if known.is_slow:
        return [fraction * limit for fraction in (0.12, 0.5, 0.8, 0.97)]
    # Dense where the curve bends: near zero, where an attack weighs most, and near the limit.
    return [
        float(limit * x)
        for x in np.concatenate([np.geomspace(0.008, 0.4, 20), 1 - np.geomspace(0.55, 0.02, 16)])
    ]


def _over_stepsizes(known: Known, stepsizes: Sequence[float]) -> Iterator[tuple[Point, ...]]:
    def grid_point(stepsize: float) -> Point:
        point = known.point_or_nan(stepsize)
        known.grid.add(stepsize)
        return point

    for _ in _in_batches(stepsizes, grid_point):
        yield tuple(known.points[mu] for mu in sorted(known.grid))


def _over(scenario: Scenario, setting: str, cache: Cache, most: int) -> Iterator[tuple[Design, ...]]:
    """Yield the designs with other numbers of shared parameters, or of participants."""
    current = getattr(scenario, setting)

    def design(count: int) -> Design:
        changed = scenario.replace(**{setting: count})
        return Design(count, values_sent(changed), _design_point(cache, changed))

    last = scenario.dimension if setting == "num_shared" else current
    return _in_batches(shared_counts(last, current, most), design)


def _learning_curve(known: Known, scenario: Scenario, point: Point) -> Iterator[Curve]:
    """Yield the learning curve from its start, each time longer, until it has settled or the run ends."""
    total = scenario.iterations
    length = min(total, _FIRST_ITERATIONS // 4 if known.is_slow else _FIRST_ITERATIONS)
    steady = point.network_mse
    while True:
        started = time.thread_time()
        levels = known.prediction.solver.curve(scenario.common_stepsize, length)
        seconds = time.thread_time() - started
        metrics = metrics_of(known.model, *levels)
        network = metrics.network_mse
        tail = network[-max(length // 10, 1) :]
        level = math.isfinite(steady) and bool(np.all(np.abs(tail - steady) <= _SETTLED * steady))
        seen = _thinned(length)
        iterations = [float(n) for n in seen]
        values = {name: [float(x) for x in getattr(metrics, name)[seen]] for name in METRICS}
        if level and length < total:  # flat from here on
            iterations.append(float(total - 1))
            for name in METRICS:
                values[name].append(point.value(name))
        ends = level or length >= total or not np.isfinite(network[-1])
        yield Curve(tuple(iterations), {name: tuple(numbers) for name, numbers in values.items()})
        if ends or 4 * seconds > _LONGEST_CURVE:
            return
        length = min(4 * length, total)


def _thinned(length: int) -> list[int]:
    """Return the iterations of a learning curve to draw, denser at its start."""
    if length <= _CURVE_POINTS:
        return list(range(length))
    return sorted({0, *np.geomspace(1, length - 1, _CURVE_POINTS).round().astype(int).tolist()})


def _optimum(known: Known, metric: str) -> Optimum:
    stepsize = known.best_stepsize(metric)
    return Optimum(None if stepsize is None else known.point_or_nan(stepsize))


def theory_of(scenario: Scenario) -> str:
    """Return which theory the explorer shows: the exact one, under the independence assumption if it must be."""
    return "exact" if scenario.data.stream.is_independent else "independence"


def _design_point(cache: Cache, scenario: Scenario) -> Point:
    try:
        return cache.of(scenario).point_or_nan(scenario.common_stepsize)
    except NotCoveredError:
        return _nowhere(scenario.common_stepsize)


def _nowhere(stepsize: float) -> Point:
    return Point(stepsize, math.nan, math.nan, math.nan)


def _most_byzantine(scenario: Scenario) -> int | None:
    """Return the largest number of Byzantine clients with a stable run; None without such a limit."""
    from psofed.theory.limits import attack_limits

    try:
        return attack_limits(scenario, theory_of(scenario)).num_byzantine
    except PsofedError:
        return None


def values_sent(scenario: Scenario) -> float:
    """Return how many values all participants together send and receive per iteration."""
    traffic = measure_communication(scenario)
    return float(traffic.numbers_down + traffic.numbers_up)


def _in_batches(inputs: Iterable[Input], function: Callable[[Input], Output]) -> Iterator[tuple[Output, ...]]:
    """Yield the outputs so far, now and then and at the end."""
    outputs: list[Output] = []
    since = time.thread_time()
    for value in inputs:
        outputs.append(function(value))
        if time.thread_time() - since > _BATCH:
            yield tuple(outputs)
            since = time.thread_time()
    yield tuple(outputs)
