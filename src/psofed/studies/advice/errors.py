"""Squared errors of every way to learn, at every stepsize, over time and by client: what the advice is judged on."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.data.own_data import OwnData
from psofed.engine.lanes import WIDTH
from psofed.engine.pso_fed import PsoFedRun
from psofed.fleet.measured import table_samples
from psofed.scenario import Scenario
from psofed.simulation.baselines import lms_errors
from psofed.simulation.parcels import sending

# Blocks of time; those at the start only serve to choose stepsizes.
BLOCKS, FIRST_JUDGED = 12, 2

# Stepsizes are tried, this factor apart, from the one that learns fastest down to this of 1/E‖x‖² or below.
_BOTTOM = 0.01
_FACTOR, _COARSE_FACTOR = 1.7, 2.5
_FEW_SHARED = 6  # up to this dimension all numbers of shared entries are tried
_HEAVY = 500_000  # numbers in the table: from here on fewer stepsizes and shared entries are tried


@dataclass(frozen=True, eq=False)
class Blocks:
    """Time cut into blocks in which every client's rows weigh the same in all.

    Attributes
    ----------
    edges : array (blocks + 1,)
        First iteration of each block, and the end.
    counts : array (blocks, K)
        Rows of each client in each block.
    """

    edges: NDArray[np.int64]
    counts: FloatArray

    def sums(self, errors: FloatArray) -> FloatArray:
        """Sum errors (iterations, K) within blocks, (blocks, K); those that are not finite become infinite."""
        sums = np.add.reduceat(errors, self.edges[:-1], axis=0)
        return np.where(np.isfinite(sums), sums, np.inf)


def cut_into_blocks(samples: Sequence[int], count: int = BLOCKS) -> Blocks:
    """Cut time into blocks that hold equal shares of the clients' rows, each client weighing as much as any other.

    Examples
    --------
    >>> cut_into_blocks((6, 6), 3).edges.tolist(), cut_into_blocks((4, 400), 4).edges.tolist()
    ([0, 2, 4, 6], [0, 2, 4, 200, 400])
    """
    lengths = np.asarray(samples)
    n = np.arange(lengths.max())
    active = n[:, None] < lengths
    mass = np.cumsum((active / lengths).sum(axis=1))
    inner = np.searchsorted(mass / mass[-1], np.arange(1, count) / count - 1e-12) + 1
    edges = np.unique(np.concatenate([[0], np.minimum(inner, n.size), [n.size]]))
    return Blocks(edges, np.add.reduceat(active.astype(np.float64), edges[:-1], axis=0))


class Trier:
    """Runs ways to learn on one table.

    Parameters
    ----------
    scenario : Scenario
        The federation and its data, whatever its stepsize, shared entries, rule and attack.
    trials : int
        Over how many draws of participants, masks and attack a federation's errors are averaged.
    seed : int
    executor : Executor, optional
        Where federations run; threads by default.
    """

    def __init__(self, scenario: Scenario, trials: int, seed: int, executor: Executor | None = None) -> None:
        data = scenario.own_data
        assert data is not None
        self.data: OwnData = data
        self.scenario: Scenario = scenario
        self.trials: int = trials
        self.seed: int = seed
        self.blocks: Blocks = cut_into_blocks(data.samples)
        self._executor = executor
        self._fleet, self._samples = table_samples(scenario)
        features = scenario.model.make_features(data.num_columns, scenario.dimension)
        norms = np.concatenate([(features(rows) ** 2).sum(axis=1) for rows in data.inputs])
        self._power, self._largest = max(float(norms.mean()), 1e-9), max(float(norms.max()), 1e-9)
        self.is_heavy: bool = sum(data.samples) * scenario.dimension > _HEAVY

    def stepsizes(self, steps: int, averaged: int = 1) -> FloatArray:
        """Return the stepsizes to try for a model that takes `steps` steps, each averaged over `averaged` clients.

        At the largest no row makes a client overshoot, μ‖x‖² ≤ 2; and it is not beyond the one that learns fastest
        from Gaussian inputs, μ E‖x‖² = D/(1 + (D + 1)/averaged).
        """
        dimension, factor = self.scenario.dimension, _COARSE_FACTOR if self.is_heavy else _FACTOR
        top = min(dimension / (1 + (dimension + 1) / averaged) / self._power, 2.0 / self._largest)
        bottom = min(_BOTTOM, dimension / steps) / self._power
        count = max(int(np.ceil(np.log(top / bottom) / np.log(factor))), 3) + 1
        return np.asarray(top * factor ** -np.arange(count, dtype=np.float64)[::-1])

    def shared(self, few: bool = False) -> tuple[int, ...]:
        """Return the numbers of shared entries to try."""
        dimension = self.scenario.dimension
        if dimension <= _FEW_SHARED and not self.is_heavy and not few:
            return tuple(range(1, dimension + 1))
        some = {1, dimension} if self.is_heavy and few else {1, -(-dimension // 4), dimension}
        if not (self.is_heavy or few):
            some |= {2, -(-dimension // 2)}
        return tuple(sorted(some))

    def lms(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Return stepsizes and errors (stepsizes, blocks, K) of each client alone, then those of the pooled model."""
        clients, iterations = self.scenario.num_clients, self.scenario.iterations
        grids = self.stepsizes(iterations), self.stepsizes(iterations * clients)
        found = []
        for which, grid in enumerate(grids):
            runs = (lms_errors(self._samples, self._fleet.target, mu, clients, iterations) for mu in grid)
            with np.errstate(over="ignore", invalid="ignore"):
                found.append(np.array([self.blocks.sums(run[which]) for run in runs]))
        return grids[0], found[0], grids[1], found[1]

    def average(self) -> FloatArray:
        """Return the errors (blocks, K) of the running mean."""
        errors = np.zeros((self.scenario.iterations, self.scenario.num_clients))
        for k, targets in enumerate(self.data.targets):
            errors[: len(targets), k] = targets**2
        return self.blocks.sums(errors)

    def federations(
        self, scenarios: Sequence[Scenario], done: Callable[[int], None] = lambda count: None
    ) -> list[FloatArray]:
        """Return the errors (blocks, K) of each scenario, the mean over its trials."""
        if self._executor is not None:
            return list(self._run(self._executor, scenarios, done))
        # The first alone: it loads what the others need.
        first = [self._job(scenarios[0])] if scenarios else []
        done(len(first))
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            return first + list(self._run(pool, scenarios[1:], lambda count: done(count + 1)))

    def _job(self, scenario: Scenario) -> FloatArray:
        return run_federation(scenario, self.seed, self.trials, self.blocks.edges)

    def _run(
        self, pool: Executor, scenarios: Sequence[Scenario], done: Callable[[int], None]
    ) -> Iterator[FloatArray]:
        jobs: deque[Future[Any]] = deque()
        finished = 0
        with ExitStack() as stack:
            stack.callback(lambda: [job.cancel() for job in jobs])
            sender = stack.enter_context(sending(pool, self.data))
            shared = self.seed, self.trials, self.blocks.edges
            jobs.extend(sender.submit(run_federation, scenario, *shared) for scenario in scenarios)
            while jobs:
                try:
                    result = jobs[0].result(timeout=0.1)
                except FutureTimeout:
                    done(finished)
                    continue
                jobs.popleft()
                finished += 1
                done(finished)
                yield result


def run_federation(scenario: Scenario, seed: int, trials: int, edges: NDArray[np.int64]) -> FloatArray:
    """Run a federation on a table and return its squared errors, sums over blocks of time, (blocks, K).

    They are means over trials; infinite from where one of them diverges.
    """
    fleet, samples = table_samples(scenario)
    sums = np.zeros((len(edges) - 1, scenario.num_clients))
    for first_trial in range(0, trials, WIDTH):
        count = min(WIDTH, trials - first_trial)
        run = PsoFedRun(scenario, fleet, seed, range(first_trial, first_trial + WIDTH), samples)
        metrics = np.empty((run.chunk, 3, WIDTH))
        for block in range(len(edges) - 1):
            run.client_squares[:] = 0.0
            for first in range(edges[block], edges[block + 1], run.chunk):
                run.advance(first, metrics[: edges[block + 1] - first])
            with np.errstate(over="ignore", invalid="ignore"):
                sums[block] += run.client_squares[:, :count].sum(axis=1)
    return np.where(np.isfinite(sums), sums / trials, np.inf)
