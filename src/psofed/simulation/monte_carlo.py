"""Monte Carlo: split the trials into blocks, run them on an executor, and combine the blocks in order."""

import itertools
import math
import os
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.notices import notify
from psofed.common.settings import takes
from psofed.common.types import FloatArray
from psofed.common.validation import check_tail
from psofed.engine.compiling import is_cold
from psofed.parts.plain import check_memory
from psofed.parts.watching import WatchPlan
from psofed.results import DefenceRecord, SimulationResult
from psofed.results.metrics import HONEST, find_metrics, metric_name
from psofed.results.privacy import privacy_spent
from psofed.results.simulation import Stopping
from psofed.scenario import Scenario
from psofed.scenario.file import as_scenario
from psofed.settings.simulation import SimulationSettings
from psofed.simulation.blocks import BLOCK, METRICS, Block, Job, Progress, run_block
from psofed.simulation.parcels import sending

# A run with a precision looks at its interval this often at most.
STAGES = 5

# A run with a precision does not stop before about this many trials saw an attack in their tail.
_FEWEST_ATTACKED = 5.0

# Longer runs get learning curves of about this many points, each a mean over some iterations.
_MOST_BINS = 10_000


@takes(SimulationSettings)
def simulate(scenario: Scenario | str | Path, settings: SimulationSettings) -> SimulationResult:
    """Simulate a scenario many times and average.

    Parameters
    ----------
    scenario : Scenario or path
        The scenario, or the TOML file that describes it.

    Returns
    -------
    SimulationResult
        Means, standard errors and learning curves.

    Examples
    --------
    >>> from psofed import Scenario
    >>> result = simulate(Scenario(num_clients=10, dimension=3, iterations=500), trials=16, seed=1)
    >>> 0.01 < result.network_mse.mean < 0.03
    True
    """
    scenario = as_scenario(scenario)
    result = run_trials(scenario, settings)
    if result.client_mse is None or scenario.own_data is None:
        return result
    from psofed.simulation.baselines import describe_result

    return replace(result, details={**result.details, "data": describe_result(result, result.client_mse)})


def run_trials(scenario: Scenario, settings: SimulationSettings, draws_rows: bool = False) -> SimulationResult:
    """Simulate a scenario.

    With `draws_rows` each trial draws its rows at random from the table's; there are no MSEs of clients then.
    """
    check_covered(scenario)
    tail, width = check_tail(settings.tail, scenario.iterations), -(-scenario.iterations // _MOST_BINS)
    metrics = find_metrics(settings.metrics)
    job = Job(scenario, settings.seed, tail, width, settings.keep_trials, draws_rows=draws_rows, metrics=metrics)
    if settings.executor is None and is_cold():
        notify("compiling the kernels (once on this machine, some seconds)")
    if scenario.defence is not None:
        from psofed.simulation.watch_plan import make_plan

        job = replace(job, plan=make_plan(scenario))
    total, most = _Total(job, settings), settings.trials
    if not settings.precision:
        return total.run_until(most)
    trials = first_stage(most, trials_with_attacks(scenario, tail))
    metric = metric_name(metrics[0]) if metrics else METRICS[0]
    stopping = Stopping(metric, float(settings.precision), most, STAGES if trials < most else 1)
    for stage in itertools.count():
        result = replace(total.run_until(trials), stopping=stopping)
        if trials == most or result.margin <= stopping.precision:
            break
        trials = next_stage(stage, trials, result.margin / stopping.precision, most)
    return result


def check_covered(scenario: Scenario) -> None:
    """Refuse combinations that the algorithm cannot simulate, by name."""
    data = scenario.own_data  # refuses rows that are not loaded
    drift, stream = scenario.drift, scenario.data.stream
    check_memory(scenario.learner, scenario.num_clients, scenario.dimension)
    if not (scenario.is_linear or stream.is_independent) and stream.input_correlation() is None:
        raise NotCoveredError(
            f'data.stream.kind = "{stream.kind}" does not state the covariance of its inputs (input_correlation); '
            "data.function needs it"
        )
    wanted = {
        "a target that moves ([drift])": drift is not None,
        "streams and models that are not linear": not scenario.is_linear,
        "your own data": data is not None,
        "a different target per client (data.target_spread)": scenario.data.target_spread > 0,
    }
    algorithm, rule, defence = scenario.algorithm, scenario.aggregation, scenario.defence
    if defence is not None and not defence.excluded_download and not algorithm.holds_models:
        raise NotCoveredError(
            f'defence.excluded_download = false needs clients with models; algorithm = "{algorithm.kind}" has none'
        )
    for name in (name for name, is_wanted in wanted.items() if is_wanted):
        if rule.has_root_data:
            raise NotCoveredError(
                f'aggregation = "{rule.kind}" draws root data from linear streams and cannot be combined with {name}'
            )
        if not algorithm.holds_models:
            raise NotCoveredError(f'algorithm = "{algorithm.kind}" cannot be combined with {name}; use "pso-fed"')
    if drift is not None:
        drift.check(scenario.iterations)
    if scenario.attack is not None:
        # Names need your own data.
        scenario.attack.byzantine_mask(scenario.num_clients, scenario.client_names)


def first_stage(most: int, fewest: float = 0) -> int:
    """Return the number of trials after which a run with a precision may stop first: 32, or the `fewest` needed."""
    return int(min(max(2 * BLOCK, BLOCK * math.ceil(min(fewest, most) / BLOCK)), most))


def next_stage(stage: int, trials: int, excess: float, most: int) -> int:
    """Return the number of trials after which it may stop next.

    An interval `excess` times as wide as wanted needs excess² times the trials. Some are added for the error of that
    estimate. The last of the stages are all trials.

    Examples
    --------
    >>> next_stage(0, 32, 2.0, 1000), next_stage(1, 144, 1.01, 1000), next_stage(3, 192, 1.01, 1000)
    (144, 192, 1000)
    """
    if stage + 2 >= STAGES:
        return most
    growth = min(max(1.1 * excess**2, 1.25), 16.0)
    return min(BLOCK * math.ceil(trials * growth / BLOCK), most)


def trials_with_attacks(scenario: Scenario, tail: int) -> float:
    """Return the number of trials of which five see an attack in their tail, on average; 0 without attackers.

    A sample without the rare trials that decide the mean looks precise, and its interval misses the mean.

    Examples
    --------
    >>> from psofed.attacks import Gaussian
    >>> rare = Gaussian(num_byzantine=2, probability=0.001)
    >>> round(trials_with_attacks(Scenario(num_clients=10, dimension=2, num_participants=5, attack=rare), tail=100))
    53
    """
    rate = 0.0
    for attack in scenario.attacks:
        share = 1.0 if attack.defines("poison") else scenario.participation_probability
        rate += attack.num_byzantine * attack.probability * share
    return _FEWEST_ATTACKED / -math.expm1(-rate * tail) if rate > 0.0 else 0.0


def cut_into_blocks(trials: int, first: int = 0) -> list[range]:
    """Split trial numbers from `first` on into ranges that advance in lock step: full blocks, then the rest.

    Examples
    --------
    >>> cut_into_blocks(34)
    [range(0, 16), range(16, 32), range(32, 34)]
    """
    return [range(first, min(first + BLOCK, trials)) for first in range(first, trials, BLOCK)]


def _run_blocks(job: Job, settings: SimulationSettings, blocks: list[range]) -> Iterator[Block]:
    """Yield the blocks' results in the order of their trials, with only a few in progress."""
    report = settings.progress or (lambda done, amount: None)
    threads = settings.threads or os.cpu_count() or 1
    iterations, local, progress = job.scenario.iterations, settings.executor is None, Progress()
    amount, finished = iterations * settings.trials, iterations * blocks[0].start
    progress.done = finished
    # A remote executor is kept busy with more, since results take their time to travel.
    window = 2 * threads if local else 8 * threads
    # Threads that have no block of their own share the clients of those there are.
    shared = max(1, threads // len(blocks)) if local else 1
    waiting = deque(blocks)
    running: deque[tuple[range, Future[Block]]] = deque()
    with sending(settings.executor, job.scenario.data.rows, threads, progress.stop) as submit:
        while waiting or running:
            while waiting and len(running) < window:
                trials = waiting.popleft()
                running.append((trials, submit(run_block, job, trials, progress if local else None, shared)))
            trials, future = running.popleft()
            block = None
            while block is None:
                try:
                    block = future.result(timeout=0.1)
                except FutureTimeout:
                    report(progress.done if local else finished, amount)
            finished += iterations * len(trials)
            report(max(progress.done, finished), amount)
            yield block


class _Total:
    """Runs blocks, and adds them up in the order of their trials."""

    def __init__(self, job: Job, settings: SimulationSettings) -> None:
        self._job, self._settings, self._started = job, settings, time.perf_counter()
        self._curve: FloatArray = np.zeros(())
        self._blocks: list[Block] = []
        self._done = 0

    def run_until(self, trials: int) -> SimulationResult:
        """Run the trials up to this number that have not been run, and return the result of all."""
        for block in _run_blocks(self._job, self._settings, cut_into_blocks(trials, self._done)):
            self._curve = self._curve + block.curve_sums
            block.curve_sums = np.zeros((2, 0, 0))  # those of all blocks would fill the memory
            self._blocks.append(block)
        self._done = trials
        return self._result(time.perf_counter() - self._started)

    def _result(self, seconds: float) -> SimulationResult:
        job = self._job
        halves, curves = self._joined("tail_halves"), self._joined("curves")
        trials, tail, second = halves.shape[2], job.tail, (job.tail + 1) // 2
        steady = ((tail - second) * halves[0] + second * halves[1]) / tail if tail > 1 else halves[1]
        with np.errstate(invalid="ignore"):
            mean, mean_square = self._curve / trials
            spread = np.maximum(mean_square - mean**2, 0.0)
            error = np.sqrt(spread / (trials - 1)) if trials > 1 else np.full_like(mean, np.nan)
            change = halves[1] - halves[0] if tail > 1 else np.zeros_like(steady)
        privacy = privacy_spent(job.scenario, max(block.most_uploads for block in self._blocks))
        return SimulationResult(
            scenario=job.scenario,
            fleet=job.fleet,
            seed=job.seed,
            tail=tail,
            bin_width=job.bin_width,
            steady_state=self._by_metric(steady),
            tail_change=self._by_metric(change),
            curve=self._by_metric(mean.T),
            curve_standard_error=self._by_metric(error.T),
            diverged_at=self._joined("diverged_at"),
            trial_curves=self._by_metric(curves.transpose(1, 2, 0)) if curves.size else None,
            seconds=seconds,
            details={} if privacy is None else {"privacy": privacy},
            notes=self._blocks[-1].notes,
            defence=None if job.plan is None else self._defence_record(job.plan),
            client_mse=self._client_mse(),
        )

    def _joined(self, name: str) -> NDArray[Any]:
        """Join an array of all blocks along the trials, its last axis."""
        return np.concatenate([getattr(block, name) for block in self._blocks], axis=-1)

    def _by_metric(self, values: FloatArray) -> dict[str, FloatArray]:
        """Return values (Q, …) by metric; without Byzantine clients, the honest ones are all clients."""
        named = dict(zip(self._blocks[0].names, values, strict=True))
        if HONEST in self._job.metrics:
            named.setdefault(HONEST, named[METRICS[0]])
        return named

    def _client_mse(self) -> FloatArray | None:
        """Each client's MSE over the tail in each trial, shape (trials, K); NaN where it had no sample."""
        squares, scenario = self._joined("client_squares").T, self._job.scenario
        if not squares.size or self._job.draws_rows:
            return None
        counts, first = np.full(scenario.num_clients, self._job.tail), scenario.iterations - self._job.tail
        if scenario.own_data is not None:
            counts = scenario.own_data.samples_from(first) - scenario.own_data.samples_from(scenario.iterations)
        mse = np.where(counts > 0, squares / np.maximum(counts, 1), np.nan)
        return np.where(self._joined("diverged_at")[:, None] >= 0, np.inf, mse)

    def _defence_record(self, plan: WatchPlan) -> DefenceRecord:
        scenario = self._job.scenario
        first, exclusions, time_out = self._joined("watched").swapaxes(1, 2)
        return DefenceRecord(
            threshold=plan.threshold,
            variance="past" if plan.by_past else "estimated" if plan.is_estimated else "theory",
            iterations=scenario.iterations,
            is_byzantine=DefenceRecord.who_attacks(scenario, self._job.fleet),
            first=first,
            exclusions=exclusions,
            time_out=time_out,
        )
