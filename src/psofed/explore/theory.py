"""What theory says about a scenario, in steps: first what is looked at first, then what is finer or takes longer.

Everything that does not depend on the stepsize is kept, so that moving it costs one point. Steps are plain dicts that
add up: ``picture.update(step)``.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.errors import NotCoveredError, PsofedError
from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.theory.metrics import TERMS, metrics_of
from psofed.theory.model import TheoryModel
from psofed.theory.prediction import Prediction
from psofed.theory.stability import contraction_bound
from psofed.theory.stepsize import NoStableStepsizeError, has_optimum, minimise, stable_range

if TYPE_CHECKING:
    from psofed.fleet import Fleet

Step = dict[str, Any]
Row = dict[str, Any]

METRICS = ("network_mse", "server_msd", "test_mse")
_PATIENCE = 0.06  # seconds after which what is known so far is shown
_SLOW = 0.15  # seconds for one point: then there are fewer of them
_MANY_SHARED = 12
_FIRST_ITERATIONS = 120
_CURVE_POINTS = 240
_SETTLED = 5e-4  # relative to the steady state: a tenth of a pixel
_LONGEST_CURVE = 6.0  # seconds for a learning curve


class Known:
    """What is known of one fleet at all stepsizes: a solver, and the points that it was asked for.

    Parameters
    ----------
    scenario : Scenario
        Its stepsize plays no part.
    measured : Fleet, optional
        Statistics measured in data of one's own.
    """

    def __init__(self, scenario: Scenario, measured: "Fleet | None" = None) -> None:
        self.scenario = scenario
        self.prediction: Prediction = Prediction(scenario, measured=measured)
        self.model: TheoryModel = self.prediction.model
        self.rows: dict[float, Row] = {}
        self.grid: set[float] = set()  # those of the rows that the picture over the stepsize is made of
        self.best: dict[str, float | None] = {}
        self.seconds: float = 0.0  # that the last point took
        self._limit: float | None = None

    def row(self, stepsize: float) -> Row:
        """Return the steady state at one stepsize: metrics, terms, and whether it is one."""
        if stepsize not in self.rows:
            started = time.thread_time()
            point = self.prediction.at(stepsize)
            terms = point.terms
            self.rows[stepsize] = {
                "stepsize": stepsize,
                **{name: getattr(point, name) for name in METRICS},
                **{name: getattr(terms, name) for name in TERMS},
                "evasion": _evasion_bounds(point),
                "sampling_error": point.steady_state.sampling_error.excess if point.is_stable else 0.0,
            }
            self.seconds = time.thread_time() - started
        return self.rows[stepsize]

    @property
    def is_slow(self) -> bool:
        """Whether one point takes so long that few are asked for."""
        return self.seconds > _SLOW

    @property
    def limit(self) -> float:
        """The limit of stability, to three digits (two where that takes long)."""
        if self._limit is None:
            try:
                self._limit = stable_range(self.prediction.method, 1e-2 if self.is_slow else 1e-3)
            except NoStableStepsizeError:
                self._limit = 0.0
        return self._limit

    def best_stepsize(self, metric: str) -> float | None:
        """Return the stepsize with the lowest error; None where smaller is always better."""
        if metric not in self.best:
            self.best[metric] = self._find_best(metric)
        return self.best[metric]

    def _find_best(self, metric: str) -> float | None:
        if not (has_optimum(self.model) or self.model.has_direction) or not 0 < self.limit < math.inf:
            return None
        tolerance = 3e-2 if self.is_slow else 1e-3
        best = minimise(lambda mu: self.row(mu)[metric], self.limit, tolerance)
        return best if best > 1e-5 * self.limit else None


class Cache:
    """Remembers fleets, the latest used of them."""

    def __init__(self, size: int = 40) -> None:
        self._size = size
        self._known: OrderedDict[Any, Known] = OrderedDict()

    def of(self, scenario: Scenario, measured: "Fleet | None" = None) -> Known:
        """Return what is known of a scenario's fleet."""
        key = scenario.replace(stepsize=1.0, iterations=1, drift=None), scenario.drift, id(measured)
        if key not in self._known:
            self._known[key] = Known(scenario, measured)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]


def theory_steps(
    scenario: Scenario, cache: Cache, metric: str = "network_mse", measured: "Fleet | None" = None
) -> Iterator[Step]:
    """Yield what theory says, step by step; ``{"refusal": …}`` where it says nothing.

    Parameters
    ----------
    scenario : Scenario
    cache : Cache
        Kept from one call to the next.
    metric : str
        Whose best stepsize is sought.
    measured : Fleet, optional
        Statistics measured in data of one's own; `scenario` is then the one that they make.
    """
    try:
        known = cache.of(scenario, measured)
        point = known.row(scenario.stepsize)
    except NotCoveredError as error:
        yield {"refusal": str(error)}
        return
    yield {"point": point, "refusal": ""}
    full = cache.of(scenario.replace(num_shared=scenario.dimension), measured)
    yield {"full": full.row(scenario.stepsize)}
    yield from _over_stepsizes(known, _coarse(known))
    curve = _learning_curve(known, scenario, point)
    yield next(curve)
    yield from _over_shared(scenario, cache, measured, known.is_slow)
    yield from curve
    yield {"limit": known.limit}
    yield from _over_stepsizes(known, _fine(known))
    yield {"best": _with_row(known, known.best_stepsize(metric))}
    yield {"full_best": _with_row(full, full.best_stepsize(metric))}
    if not known.is_slow:
        yield from _over_participants(scenario, cache, measured)
    if scenario.attack is not None and measured is None:
        yield {"liars": _most_liars(scenario)}
        yield {"full_liars": _most_liars(scenario.replace(num_shared=scenario.dimension))}
    yield {"finished": True}


def shared_counts(dimension: int, present: int, most: int = _MANY_SHARED) -> list[int]:
    """Return the numbers of shared entries to show: all if they are few, always 1, D and the present one.

    Examples
    --------
    >>> shared_counts(5, 2), shared_counts(200, 3, most=5)
    ([1, 2, 3, 4, 5], [1, 3, 4, 14, 53, 200])
    """
    if dimension <= most:
        return list(range(1, dimension + 1))
    spread = np.geomspace(1, dimension, most).round().astype(int).tolist()
    return sorted({*spread, 1, present, dimension})


def _coarse(known: Known) -> list[float]:
    """Stepsizes that are certainly stable, roughly spread; they need no limit."""
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


def _over_stepsizes(known: Known, stepsizes: Sequence[float]) -> Iterator[Step]:
    def grid_row(stepsize: float) -> Row:
        row = known.row(stepsize)
        known.grid.add(stepsize)
        return row

    for _ in _in_batches(stepsizes, grid_row):
        yield {"stepsizes": [known.rows[mu] for mu in sorted(known.grid)]}


def _over_shared(scenario: Scenario, cache: Cache, measured: "Fleet | None", is_slow: bool) -> Iterator[Step]:
    counts = shared_counts(scenario.dimension, scenario.num_shared, 4 if is_slow else _MANY_SHARED)

    def point(count: int) -> Row:
        changed = scenario.replace(num_shared=count)
        row = cache.of(changed, measured).row(scenario.stepsize)
        return {"num_shared": count, "numbers": _numbers(changed), **row}

    for rows in _in_batches(counts, point):
        yield {"shared": sorted(rows, key=lambda row: row["num_shared"])}


def _over_participants(scenario: Scenario, cache: Cache, measured: "Fleet | None") -> Iterator[Step]:
    """Everything shared by fewer: the other way to spend less."""
    full = scenario.replace(num_shared=scenario.dimension)
    counts = shared_counts(scenario.num_participants, scenario.num_participants, 6)

    def point(count: int) -> Row:
        changed = full.replace(num_participants=count)
        row = cache.of(changed, measured).row(scenario.stepsize)
        return {"num_participants": count, "numbers": _numbers(changed), **row}

    for rows in _in_batches(counts, point):
        yield {"participants": rows}


def _learning_curve(known: Known, scenario: Scenario, point: Row) -> Iterator[Step]:
    """Yield the learning curve from its start, longer and longer, until it is settled or the run ends."""
    total = scenario.iterations
    length = min(total, _FIRST_ITERATIONS // 4 if known.is_slow else _FIRST_ITERATIONS)
    steady = point["network_mse"]
    while True:
        started = time.thread_time()
        excess, server = known.prediction.method.curve(scenario.stepsize, length)
        seconds = time.thread_time() - started
        network, server, test = metrics_of(known.model, excess, server)
        tail = network[-max(length // 10, 1) :]
        level = math.isfinite(steady) and bool(np.all(np.abs(tail - steady) <= _SETTLED * steady))
        seen = _thinned(length)
        curve: dict[str, Any] = {
            "iteration": seen,
            "network_mse": network[seen],
            "server_msd": server[seen],
            "test_mse": test[seen],
        }
        lists = {name: [float(x) for x in values] for name, values in curve.items()}
        if level and length < total:
            lists["iteration"].append(float(total - 1))
            for name in METRICS:
                lists[name].append(point[name])
        ends = level or length >= total or not np.isfinite(network[-1])
        yield {"curve": lists}
        if ends or 4 * seconds > _LONGEST_CURVE:
            return
        length = min(4 * length, total)


def _thinned(length: int) -> list[int]:
    """Return the iterations to draw of a learning curve: all at first, then fewer and fewer."""
    if length <= _CURVE_POINTS:
        return list(range(length))
    return sorted({0, *np.geomspace(1, length - 1, _CURVE_POINTS).round().astype(int).tolist()})


def _evasion_bounds(point: Prediction) -> tuple[float, float] | None:
    """Return what the server's error on moved inputs lies between; None where theory does not say."""
    try:
        bounds = point.evasion if point.is_stable else None
    except NotCoveredError:
        return None
    return None if bounds is None else (bounds.lower, bounds.upper)


def _with_row(known: Known, stepsize: float | None) -> Row | None:
    return None if stepsize is None else known.row(stepsize)


def _most_liars(scenario: Scenario) -> int | None:
    """Return the most Byzantine clients that are survived; None if any number is, or it cannot be said."""
    from psofed.theory.limits import attack_limits

    try:
        return attack_limits(scenario).num_byzantine
    except PsofedError:
        return None


def _numbers(scenario: Scenario) -> float:
    traffic = measure_communication(scenario)
    return float(traffic.numbers_down + traffic.numbers_up)


def _in_batches(values: Iterable[Any], function: Callable[[Any], Row]) -> Iterator[list[Row]]:
    """Yield what is known so far, now and then and at the end."""
    rows: list[Row] = []
    since = time.thread_time()
    for value in values:
        rows.append(function(value))
        if time.thread_time() - since > _PATIENCE:
            yield list(rows)
            since = time.thread_time()
    yield rows
