"""Ways to learn, run on one table at every stepsize: squared errors by block of time and client.

All predict every row of an iteration before they learn from any: targets of one moment may have a common cause.
"""

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.data.own_data import OwnData
from psofed.data.standardise import running_deviation
from psofed.engine.lanes import WIDTH
from psofed.engine.run import Run
from psofed.fleet.measured import table_samples
from psofed.parts.models.built_in import Rff
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.simulation.baselines import lms_errors
from psofed.simulation.monte_carlo import check_covered
from psofed.simulation.parcels import sending
from psofed.simulation.watch_plan import make_plan
from psofed.studies.advice.judging import Clients, Judge, Way

# Stepsizes are tried from the one that learns fastest down to this share of 1/E‖x‖² or below, these factors apart.
_BOTTOM = 0.004
_FACTOR, _COARSE_FACTOR = 1.9, 3.0
_FEW_SHARED = 6  # up to this dimension all numbers of shared parameters are tried
_HEAVY = 500_000  # numbers in the table: from here on fewer stepsizes and shared parameters are tried
_FORGETTING, _LARGEST_TRACE = (1.0, 0.995, 0.98, 0.95), 1e6  # of recursive least squares

# Random features: bandwidths in units of √d, the typical distance of inputs from their mean; the most features, and
# numbers in the whole table; stepsizes where E‖z‖² = 1.
_BANDWIDTHS, _MOST_FEATURES, _MOST_NUMBERS = (1.5, 0.5), 100, 20_000_000
_FEATURE_STEPSIZES = np.array([0.05, 0.15, 0.45, 1.0])
_MOST_ROWS, _STAGES = 50_000, 3  # that trees learn from, and how often they do

_MOST_UPDATES = 8_000_000  # of clients, a few seconds: tuned_federation tries larger tables fewer times


class Runner:
    """Runs ways to learn on one table.

    Parameters
    ----------
    scenario : Scenario
        The federation of all clients and its data, whatever its stepsize, shared parameters, rule and attack.
    settings : AdviceSettings
        Trials (draws of participants, masks and attack over which errors are averaged), seed, executor and progress.
    """

    def __init__(self, scenario: Scenario, settings: AdviceSettings) -> None:
        data = scenario.own_data
        assert data is not None
        self.scenario: Scenario = scenario
        self.data: OwnData = data
        self.settings: AdviceSettings = settings
        self.everybody: Clients = tuple(range(scenario.num_clients))
        self.judge: Judge = Judge.of(data.samples)
        make_features = scenario.model.make_features(data.num_columns, scenario.dimension)
        self.features: list[FloatArray] = [make_features(rows) for rows in data.inputs]
        norms = np.concatenate([(rows**2).sum(axis=1) for rows in self.features])
        self._power, self._largest = max(float(norms.mean()), 1e-9), max(float(norms.max()), 1e-9)
        self.is_heavy: bool = sum(data.samples) * scenario.dimension > _HEAVY
        self._done, self._planned = 0, 0

    def mask(self, clients: Sequence[int]) -> NDArray[np.bool_]:
        """Return which clients these are, shape (K,)."""
        return np.isin(self.everybody, clients)

    def stepsizes(self, averaged: int = 1) -> FloatArray:
        """Return the stepsizes to try for a model that is averaged over `averaged` clients.

        At the largest no row makes a client overshoot, μ‖x‖² ≤ 2; and it is not beyond the one that learns fastest
        from Gaussian inputs, μ E‖x‖² = D/(1 + (D + 1)/averaged).
        """
        dimension, factor = self.scenario.dimension, _COARSE_FACTOR if self.is_heavy else _FACTOR
        top = min(dimension / (1 + (dimension + 1) / averaged) / self._power, 2.0 / self._largest)
        bottom = min(_BOTTOM, dimension / self.scenario.iterations) / self._power
        count = max(int(np.ceil(np.log(top / bottom) / np.log(factor))), 3) + 1
        return np.asarray(top * factor ** -np.arange(count, dtype=np.float64)[::-1])

    def shared(self, few: bool = False) -> tuple[int, ...]:
        """Return the numbers of shared parameters to try."""
        dimension = self.scenario.dimension
        if len(self.everybody) == 1:
            return (dimension,)
        if dimension <= _FEW_SHARED and not self.is_heavy and not few:
            return tuple(range(1, dimension + 1))
        more = set() if self.is_heavy or few else {2, -(-dimension // 2)}
        return tuple(sorted({1, -(-dimension // 4), dimension} | more))

    def lms(self, pooled: bool = False) -> Way:
        """Run each client alone, or one model of all data, which takes a step for each client in an iteration."""
        grid = self.stepsizes() / (len(self.everybody) if pooled else 1)
        fleet, samples = table_samples(self.scenario)
        size = len(self.everybody), self.scenario.iterations
        with np.errstate(over="ignore", invalid="ignore"):
            runs = [lms_errors(samples, fleet.target, mu, *size)[int(pooled)] for mu in grid.tolist()]
            errors = np.array([self.judge.sums(run) for run in runs])
        name, title = ("pooled", "all data pooled") if pooled else ("alone", "each alone, LMS")
        return Way(name, title, errors, stepsizes=tuple(grid.tolist()))

    def federation(
        self,
        clients: Clients,
        counts: Sequence[int],
        grid: FloatArray | None = None,
        name: str = "everybody",
        **changes: Any,
    ) -> Way:
        """Run the federation of some clients at all stepsizes and numbers of shared parameters."""
        grid = self.stepsizes(self.scenario.num_participants) if grid is None else grid
        base, size = self.of_group(clients).replace(**changes), len(clients)
        scenarios = tuple(base.replace(num_shared=m, stepsize=mu) for m in counts for mu in grid.tolist())
        errors = np.zeros((len(scenarios), *self.judge.counts.shape))
        for at, (sums, _) in enumerate(self.run(scenarios, self.judge.edges)):
            errors[at][:, clients] = sums
        title = "all together" if size == len(self.everybody) else f"federation of {size} clients"
        return Way(name, title, errors, scenarios, groups=(clients,))

    def of_group(self, clients: Clients) -> Scenario:
        """Return the federation of some clients, of whom as large a share takes part as of all."""
        whole = self.scenario
        if len(clients) == whole.num_clients:
            return whole
        rows, present = self.data.only(clients), whole.availability
        return whole.replace(
            num_clients=len(clients),
            num_participants=max(1, round(whole.num_participants * len(clients) / whole.num_clients)),
            iterations=min(whole.iterations, rows.iterations),
            availability=present and present.of_clients(clients, whole.num_clients, whole.data.fleet_seed),
            data=whole.data.replace(rows=rows),
        )

    def run(self, scenarios: Sequence[Scenario], edges: NDArray[np.int64]) -> Iterator[tuple[FloatArray, FloatArray]]:
        """Yield what :func:`run_federation` returns for each scenario, in their order."""
        self._planned += len(scenarios)
        how = self.settings.seed, self.settings.trials, edges
        with sending(self.settings.executor, self.data, os.cpu_count() or 1) as submit:
            for future in [submit(run_federation, scenario, *how) for scenario in scenarios]:
                yield future.result()
                self._done += 1
                if self.settings.progress is not None:
                    self.settings.progress(self._done, self._planned)


def run_federation(
    scenario: Scenario, seed: int, trials: int, edges: NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:
    """Run a federation on a table; return squared errors summed over blocks of time, (blocks, K), and its last model.

    Both are means over trials; errors are infinite from where one of them diverges.
    """
    (fleet, samples), plan = table_samples(scenario), make_plan(scenario)
    edges = np.minimum(edges, scenario.iterations)
    sums, model = np.zeros((len(edges) - 1, scenario.num_clients)), fleet.target.copy()
    for first_trial in range(0, trials, WIDTH):
        some = range(first_trial, min(first_trial + WIDTH, trials))
        run = Run(scenario, fleet, seed, some, samples, plan)
        metrics = np.empty((run.chunk, 3, len(some)))
        for block in range(len(edges) - 1):
            run.forget_squares()
            for first in range(edges[block], edges[block + 1], run.chunk):
                run.advance(first, metrics[: edges[block + 1] - first])
            with np.errstate(over="ignore", invalid="ignore"):
                sums[block] += run.client_squares.sum(axis=1)
        model -= run.server.sum(axis=0) / trials
    return np.where(np.isfinite(sums), sums / trials, np.inf), model


def least_squares_errors(
    inputs: Sequence[FloatArray], targets: Sequence[FloatArray], forgetting: Sequence[float] = (1.0,)
) -> FloatArray:
    """Squared errors of recursive least squares on each client's own rows, (factors, iterations, K); 0 without a row.

    With forgetting factor λ it minimises Σ_i λ^{n−i} (y_i − wᵀx_i − b)² + λⁿ (‖w‖² + b²) in each step n, by

        e = y − wᵀx,   g = P x / (λ + xᵀP x),   w ← w + g e,   P ← (P − g xᵀP)/λ.
    """
    count, clients, size = max(map(len, targets)), len(targets), inputs[0].shape[1] + 1
    x, y = np.zeros((count, clients, size)), np.zeros((count, clients))
    for k, (rows, values) in enumerate(zip(inputs, targets, strict=True)):
        x[: len(rows), k, :-1], x[: len(rows), k, -1], y[: len(rows), k] = rows, 1.0, values
    factors = np.array(forgetting)[:, None]
    weights = np.zeros((len(factors), clients, size))
    inverse = np.tile(np.eye(size), (len(factors), clients, 1, 1))
    out = np.zeros((len(factors), count, clients))
    for n, (row, value) in enumerate(zip(x, y, strict=True)):
        error = value - (weights * row).sum(axis=-1)
        gain = (inverse * row[:, None]).sum(axis=-1)
        scale = factors + (gain * row).sum(axis=-1)
        weights += gain * (error / scale)[..., None]
        # Directions without rows would be forgotten without end.
        fades = np.trace(inverse, axis1=-2, axis2=-1) < _LARGEST_TRACE
        inverse -= gain[..., None] * (gain / scale[..., None])[..., None, :]
        inverse /= np.where(fades, factors, 1.0)[..., None, None]
        out[:, n] = np.where(row[:, -1] > 0, error**2, 0.0)
    return out


def naive_ways(runner: Runner) -> tuple[Way, ...]:
    """Run forecasts that every client could make alone: the last value, recursive least squares, the running mean."""
    data, sums = runner.data, runner.judge.sums
    last, mean = np.zeros((2, 1, runner.scenario.iterations, data.num_clients))
    for k, (raw, scaled) in enumerate(zip(data.table.targets, data.targets, strict=True)):
        count = len(scaled)
        # Targets are scaled by their running mean and deviation, so they are the running mean's errors.
        mean[0, :count, k] = scaled**2
        last[0, :count, k] = (np.diff(raw)[-count:] / running_deviation(raw)[-count - 1 : -1]) ** 2
    squares = least_squares_errors(runner.features, data.targets, _FORGETTING)
    return (
        Way("persistence", "last value", sums(last)),
        Way("rls", "each alone, RLS", sums(squares)),
        Way("average", "running mean", sums(mean)),
    )


def random_features(runner: Runner) -> Way | None:
    """Run a federation of all clients with random features, shared completely; None if the model has some already."""
    if not runner.scenario.is_linear:
        return None
    rows, columns = sum(runner.data.samples), runner.data.num_columns
    count = int(np.clip(_MOST_NUMBERS // rows, 10, _MOST_FEATURES))
    models = [Rff(features=count, bandwidth=round(scale * columns**0.5, 2)) for scale in _BANDWIDTHS]
    size: dict[str, Any] = {"dimension": count, "num_shared": count}
    ways = [runner.federation(runner.everybody, [count], _FEATURE_STEPSIZES, model=m, **size) for m in models]
    scenarios = tuple(scenario for way in ways for scenario in way.scenarios)
    return Way("rff", "random features", np.concatenate([way.errors for way in ways]), scenarios)


def boosted_trees(runner: Runner) -> Way | None:
    """Run trees that learn from all rows before a moment, at three moments; None without scikit-learn."""
    if find_spec("sklearn") is None:
        return None
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    data, edges, first = runner.data, runner.judge.edges, runner.judge.first
    errors = np.zeros((1, runner.scenario.iterations, data.num_clients))
    ends = edges[np.unique(np.linspace(first, len(edges) - 1, _STAGES + 1).astype(int))].tolist()
    for start, end in pairwise(ends):
        x, y = (np.concatenate([rows[:start] for rows in of]) for of in (data.inputs, data.targets))
        chosen = np.random.default_rng(0).permutation(len(y))[:_MOST_ROWS]
        later = [rows[start:end] for rows in data.inputs]
        with threadpool_limits(1):
            trees = HistGradientBoostingRegressor(random_state=0).fit(x[chosen], y[chosen])
            forecasts = np.split(trees.predict(np.concatenate(later)), np.cumsum(list(map(len, later)))[:-1])
        for k, forecast in enumerate(forecasts):
            errors[0, start : start + len(forecast), k] = (data.targets[k][start:end] - forecast) ** 2
    return Way("boosting", "boosted trees, pooled", runner.judge.sums(errors))


def tuned_federation(scenario: Scenario, keep_shared: bool = False) -> Scenario:
    """Return a scenario with your own data at the stepsize and number of shared parameters that do best on it.

    The choice is that of :func:`psofed.advise` for a federation of all clients. Large tables are tried fewer times, and
    a defence, whose threshold at every stepsize would take too long, is left out meanwhile. The scenario is returned
    unchanged if everything diverges.

    Examples
    --------
    >>> from psofed import advise, from_arrays
    >>> rng = np.random.default_rng(1)
    >>> X, clients = rng.standard_normal((600, 3)), np.arange(600) % 10
    >>> data = from_arrays(X, X.sum(axis=1) + rng.standard_normal(600), clients)
    >>> best = tuned_federation(Scenario.from_data(data, num_participants=10))
    >>> chosen = advise(data, byzantine=0).scenario
    >>> (best.num_shared, best.stepsize) == (chosen.num_shared, float(f"{chosen.stepsize:.4g}"))
    True
    """
    check_covered(scenario)
    settings = AdviceSettings()
    runner = Runner(scenario.replace(defence=None), settings)
    counts = [scenario.num_shared] if keep_shared else runner.shared()
    grid = runner.stepsizes(scenario.num_participants)
    affordable = _MOST_UPDATES // (len(grid) * len(counts) * sum(runner.data.samples))
    runner.settings = settings.replace(trials=int(np.clip(affordable, 1, settings.trials)))
    tried = runner.federation(runner.everybody, counts, grid)
    best = runner.judge.best(tried, runner.judge.blocks)
    if not np.isfinite(tried.errors[best]).all():
        return scenario
    chosen = tried.scenarios[best]
    return scenario.replace(num_shared=chosen.num_shared, stepsize=float(f"{chosen.common_stepsize:.4g}"))
