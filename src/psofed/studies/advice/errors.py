"""Squared errors of every way to learn, at every stepsize, over time and by client: what the advice is judged on."""

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeout

import numpy as np
from numpy.typing import NDArray

from psofed.common.types import FloatArray
from psofed.data.own_data import OwnData
from psofed.engine.lanes import WIDTH
from psofed.engine.run import Run
from psofed.fleet.measured import table_samples
from psofed.scenario import Scenario
from psofed.settings.advice import AdviceSettings
from psofed.simulation.baselines import lms_errors
from psofed.simulation.parcels import sending
from psofed.simulation.watch_plan import make_plan
from psofed.studies.advice.judging import Blocks, Judge, cut_into_blocks

# Stepsizes are tried from the one that learns fastest down to this share of 1/E‖x‖² or below, these factors apart.
_BOTTOM = 0.01
_FACTOR, _COARSE_FACTOR = 1.7, 2.5
_FEW_SHARED = 6  # up to this dimension all numbers of shared entries are tried
_HEAVY = 500_000  # numbers in the table: from here on fewer stepsizes and shared entries are tried


class Trier:
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
        self.blocks: Blocks = cut_into_blocks(data.samples)
        self.judge: Judge = Judge(self.blocks)
        self._data, self._settings = data, settings
        self._done, self._planned = 0, 0
        self._groups: dict[tuple[int, ...], OwnData] = {}
        make_features = scenario.model.make_features(data.num_columns, scenario.dimension)
        self.features: list[FloatArray] = [make_features(rows) for rows in data.inputs]
        norms = np.concatenate([(rows**2).sum(axis=1) for rows in self.features])
        self._power, self._largest = max(float(norms.mean()), 1e-9), max(float(norms.max()), 1e-9)
        self.is_heavy: bool = sum(data.samples) * scenario.dimension > _HEAVY

    @property
    def factor(self) -> float:
        """By how much neighbouring stepsizes differ."""
        return _COARSE_FACTOR if self.is_heavy else _FACTOR

    def stepsizes(self, steps: int, averaged: int = 1) -> FloatArray:
        """Return the stepsizes to try for a model that takes `steps` steps, each averaged over `averaged` clients.

        At the largest no row makes a client overshoot, μ‖x‖² ≤ 2; and it is not beyond the one that learns fastest
        from Gaussian inputs, μ E‖x‖² = D/(1 + (D + 1)/averaged).
        """
        dimension = self.scenario.dimension
        top = min(dimension / (1 + (dimension + 1) / averaged) / self._power, 2.0 / self._largest)
        bottom = min(_BOTTOM, dimension / steps) / self._power
        count = max(int(np.ceil(np.log(top / bottom) / np.log(self.factor))), 3) + 1
        return np.asarray(top * self.factor ** -np.arange(count, dtype=np.float64)[::-1])

    def shared(self, few: bool = False) -> tuple[int, ...]:
        """Return the numbers of shared parameters to try."""
        dimension = self.scenario.dimension
        if dimension <= _FEW_SHARED and not self.is_heavy and not few:
            return tuple(range(1, dimension + 1))
        some = {1, dimension} if self.is_heavy and few else {1, -(-dimension // 4), dimension}
        if not (self.is_heavy or few):
            some |= {2, -(-dimension // 2)}
        return tuple(sorted(some))

    def lms(self, grid: FloatArray, pooled: bool) -> FloatArray:
        """Return the errors (stepsizes, blocks, K) of each client alone, or of one model of all data."""
        clients, iterations = self.scenario.num_clients, self.scenario.iterations
        fleet, samples = table_samples(self.scenario)
        self._planned += len(grid)
        sums = []
        for mu in grid:
            with np.errstate(over="ignore", invalid="ignore"):
                errors = lms_errors(samples, fleet.target, float(mu), clients, iterations)[int(pooled)]
                sums.append(self.blocks.sums(errors))
            self._advance(1)
        return np.array(sums)

    def federations(
        self, scenarios: Sequence[Scenario], members: Sequence[tuple[int, ...]] | None = None
    ) -> FloatArray:
        """Return the errors of scenarios, (scenarios, blocks, K), means over trials.

        Each is a federation of some clients (by default of all); errors of the others are zero.
        """
        groups = members or [tuple(range(self.scenario.num_clients))] * len(scenarios)
        self._planned += len(scenarios)
        errors = np.zeros((len(scenarios), len(self.blocks.counts), self.scenario.num_clients))
        for at, found in enumerate(self._run(scenarios)):
            errors[at][:, groups[at]] = found
        return errors

    def of_group(self, clients: tuple[int, ...]) -> Scenario:
        """Return the federation of some clients, of whom as large a share takes part as of all."""
        whole = self.scenario
        if len(clients) == whole.num_clients:
            return whole
        rows = self._groups.setdefault(clients, self._data.only(clients))
        present = whole.availability
        return whole.replace(
            num_clients=len(clients),
            num_participants=max(1, round(whole.num_participants * len(clients) / whole.num_clients)),
            iterations=min(whole.iterations, rows.iterations),
            availability=present and present.of_clients(clients, whole.num_clients, whole.data.fleet_seed),
            data=whole.data.replace(rows=rows),
        )

    @property
    def _how(self) -> tuple[int, int, NDArray[np.int64]]:
        return self._settings.seed, self._settings.trials, self.blocks.edges

    def _run(self, jobs: Sequence[Scenario]) -> Iterator[FloatArray]:
        executor, left = self._settings.executor, deque(jobs)
        if executor is None and left:  # the first alone: it loads what the others need
            yield run_federation(left.popleft(), *self._how)
            self._advance(1)
        with sending(executor, self._data, os.cpu_count() or 1) as sender:
            waiting = deque(sender.submit(run_federation, job, *self._how) for job in left)
            while waiting:
                try:
                    result = waiting[0].result(timeout=0.1)
                except FutureTimeout:
                    self._advance(0)
                    continue
                waiting.popleft()
                self._advance(1)
                yield result

    def _advance(self, count: int) -> None:
        self._done += count
        if self._settings.progress is not None:
            self._settings.progress(self._done, self._planned)


def run_federation(scenario: Scenario, seed: int, trials: int, edges: NDArray[np.int64]) -> FloatArray:
    """Run a federation on a table and return its squared errors, sums over blocks of time, (blocks, K).

    They are means over trials; infinite from where one of them diverges.
    """
    (fleet, samples), plan = table_samples(scenario), make_plan(scenario)
    sums = np.zeros((len(edges) - 1, scenario.num_clients))
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
    return np.where(np.isfinite(sums), sums / trials, np.inf)
