"""Runs ways to learn on one table, at every stepsize: squared errors by block of time and client.

All predict every row of an iteration before they learn from any: targets of one moment may have a common cause.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

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
from psofed.studies.advice.judging import Blocks, Judge, Way, cut_into_blocks

Clients = tuple[int, ...]

# Stepsizes are tried from the one that learns fastest down to this share of 1/E‖x‖² or below, these factors apart.
_BOTTOM = 0.004
_FACTOR, _COARSE_FACTOR = 1.9, 3.0
_FEW_SHARED = 6  # up to this dimension all numbers of shared parameters are tried
_HEAVY = 500_000  # numbers in the table: from here on fewer stepsizes and shared parameters are tried


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
        self.blocks: Blocks = cut_into_blocks(data.samples)
        self.judge: Judge = Judge(self.blocks)
        make_features = scenario.model.make_features(data.num_columns, scenario.dimension)
        self.features: list[FloatArray] = [make_features(rows) for rows in data.inputs]
        norms = np.concatenate([(rows**2).sum(axis=1) for rows in self.features])
        self._power, self._largest = max(float(norms.mean()), 1e-9), max(float(norms.max()), 1e-9)
        self.is_heavy: bool = sum(data.samples) * scenario.dimension > _HEAVY
        self._done, self._planned = 0, 0

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

    def lms(self, grid: FloatArray, pooled: bool = False) -> Way:
        """Run each client alone, or one model of all data, which takes a step for each client in an iteration."""
        grid = grid / len(self.everybody) if pooled else grid
        fleet, samples = table_samples(self.scenario)
        clients, iterations = len(self.everybody), self.scenario.iterations
        sums = []
        with np.errstate(over="ignore", invalid="ignore"):
            for mu in grid.tolist():
                errors = lms_errors(samples, fleet.target, mu, clients, iterations)[int(pooled)]
                sums.append(self.blocks.sums(errors))
        name, title = ("pooled", "all data pooled") if pooled else ("alone", "each alone, LMS")
        return Way(name, title, np.array(sums), stepsizes=tuple(grid.tolist()))

    def federation(
        self, clients: Clients, grid: FloatArray, counts: Sequence[int], name: str = "everybody", **changes: Any
    ) -> Way:
        """Run the federation of some clients at all stepsizes and numbers of shared parameters."""
        base, size = self.of_group(clients).replace(**changes), len(clients)
        scenarios = tuple(base.replace(num_shared=m, stepsize=mu) for m in counts for mu in grid.tolist())
        errors = np.zeros((len(scenarios), *self.blocks.counts.shape))
        for at, (sums, _) in enumerate(self.run(scenarios, self.blocks.edges)):
            errors[at][:, clients] = sums
        title = "all together" if size == len(self.everybody) else f"federation of {size} clients"
        return Way(name, title, errors, scenarios)

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
                self._advance()

    def _advance(self) -> None:
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


_LARGEST_TRACE = 1e6
