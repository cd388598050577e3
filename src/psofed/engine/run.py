"""A run of several trials: makes what the iteration needs, draws ahead chunk by chunk and calls the kernel."""

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine import iteration, network, rivals, step
from psofed.engine.draws import Drawer
from psofed.engine.hooks import Hooks
from psofed.engine.iteration import NETWORK_MSE, TEST_MSE, TrialBlock, advance
from psofed.engine.lanes import WIDTH
from psofed.engine.samples import FunctionSamples, TrialSamples
from psofed.engine.state import Layout, Setup, make_layout
from psofed.engine.step import SUM_BLOCK, StepScratch, Tally
from psofed.engine.tables import KernelTable, stage_address
from psofed.parts.base import Metric
from psofed.parts.watching import Watching, WatchPlan

if TYPE_CHECKING:
    from psofed.fleet import Fleet
    from psofed.scenario import Scenario

# Fewer clients than this are not worth waking a thread for.
_CLIENTS_PER_THREAD = 100_000


def is_plain(scenario: "Scenario") -> bool:
    """Tell whether clients make LMS steps on independent white samples of one fixed target."""
    data = scenario.data
    is_white = data.stream.is_independent and data.covariances is None and data.correlation == 0.0
    return (
        is_white
        and data.rows is None
        and data.target_spread == 0.0
        and scenario.is_linear
        and scenario.drift is None
        and scenario.learner.kind == "lms"
        and scenario.algorithm.holds_models
        and not any(attack.defines("poison") for attack in scenario.attacks)
    )


class Run:
    """Several trials in lock step, or one trial with its lanes over clients.

    Parameters
    ----------
    scenario, fleet, seed
        What is simulated.
    trials : range
        Up to WIDTH trials.
    samples, plan
        Given samples, and what a defence needs to know.
    over_clients : bool
        Whether lanes are clients: for a single trial where :func:`is_plain`.
    threads : int
        Threads that share the clients of such a trial.
    metrics : sequence of Metric
        The user's own metrics.
    by_client : bool
        Whether each client's errors are measured: sums of their squares, and with Byzantine clients the honest MSE.

    Attributes
    ----------
    server : array (L, D)
        Errors w − w_n.
    chunk : int
        How many iterations :meth:`advance` should be asked for at a time.
    samples : TrialSamples or None
        The samples, where they are not drawn; may be replaced by others of the same shape between two calls.
    watched_from : int
        From which iteration on each client's squared errors are added up.
    """

    def __init__(
        self,
        scenario: "Scenario",
        fleet: "Fleet",
        seed: int,
        trials: range,
        samples: TrialSamples | None = None,
        plan: WatchPlan | None = None,
        over_clients: bool = False,
        threads: int = 1,
        metrics: Sequence[Metric] = (),
        by_client: bool = False,
    ) -> None:
        assert len(trials) <= (1 if over_clients else WIDTH)
        layout = make_layout(scenario.num_clients, over_clients)
        self._hooks = Hooks()
        setup = Setup(scenario, fleet, seed, trials, layout, samples is not None or not scenario.is_linear, self._hooks)
        if samples is None and not scenario.is_linear:
            samples = FunctionSamples(scenario, fleet, setup.stream("data"))
        self.samples: TrialSamples | None = samples
        self._drawer = Drawer(setup, 0 if samples is None else samples.bytes_per_iteration)
        self.chunk: int = self._drawer.chunk
        self.watched_from = 0
        self.server: FloatArray = setup.state.server
        keeps_errors = len(metrics) > 0 or (by_client and scenario.num_byzantine > 0)
        self.has_honest: bool = keeps_errors and len(scenario.attacks) > 0
        tally = Tally(layout, keeps_errors, keeps_squares=by_client or samples is not None)
        self._block = TrialBlock(setup, samples, plan, list(metrics), tally)
        kind = KernelTable(self._block).kind
        for name, stage in _find_stages(self._block, scenario).items():
            setattr(self._block.stages, name, stage_address(stage, kind))
        self._table: KernelTable | None = None
        threads = min(max(scenario.num_clients // _CLIENTS_PER_THREAD, 1), threads) if over_clients else 1
        self._threads = _Threads(threads, layout, scenario.dimension)

    @property
    def clients(self) -> FloatArray:
        """Errors w − w_{k,n} of all trials, shape (K, D, L): a copy."""
        models, layout = self._block.state.models, self._block.layout
        if layout.mask:
            columns = models.transpose(0, 2, 1).reshape(-1, models.shape[1])
            return np.ascontiguousarray(columns[: layout.clients, :, None])
        return models[:, :, : len(self.server)].copy()

    def set_models(self, clients: FloatArray, server: FloatArray) -> None:
        """Set the errors of all trials to ``clients`` (K, D) and ``server`` (D,); lanes are trials."""
        self._block.state.models[:] = clients[:, :, None]
        self.server[:] = server

    @property
    def client_squares(self) -> FloatArray:
        """Sums of each client's squared errors from iteration :attr:`watched_from` on, shape (K, L)."""
        squares, layout = self._block.tally.squares, self._block.layout
        if layout.mask:
            return squares.reshape(-1, 1)[: layout.clients].copy()
        return squares[:, : len(self.server)].copy()

    def forget_squares(self) -> None:
        """Set all sums of squared errors to zero."""
        self._block.tally.squares[:] = 0.0

    @property
    def upload_counts(self) -> IntArray:
        """How often each client has uploaded, shape (K, L); empty unless a channel is private."""
        return self._drawer.upload_counts

    @property
    def watching(self) -> Watching | None:
        """Memory of the defence; None without one."""
        defence = self._block.defence
        return defence.watching if defence.address else None

    def advance(self, first: int, metrics: FloatArray) -> None:
        """Run ``len(metrics)`` iterations from number `first`, writing ``metrics[t, metric, trial]``."""
        count = len(metrics)
        given = None if self.samples is None else self.samples.chunk(first, count)
        block, draws = self._block, self._drawer.draw(first, count)
        if given is not None:
            draws.inputs, draws.residuals = given.inputs, given.residuals
        draws.watched_from = self.watched_from
        block.draws, block.metrics = draws, metrics
        table: Any = KernelTable(block, self._table)
        self._table = table
        if self._threads.count == 1:
            advance(iteration.WHOLE, first, 0, count, table)
        else:
            parts = self._threads.parts(table)
            for t in range(count):
                advance(iteration.BEFORE, first, t, t + 1, table)
                self._threads.run([partial(advance, iteration.LEARN, first, t, t + 1, part) for part in parts])
                advance(iteration.AFTER, first, t, t + 1, table)
        self._hooks.check()
        if given is not None:
            # The kernel divides by all clients; those without a sample do not count.
            share = (self._block.layout.clients / np.maximum(given.active, 1))[:, None]
            metrics[:, NETWORK_MSE] *= share
            if self._block.sampling.tests_on_next:
                metrics[:, TEST_MSE] *= share


def _find_stages(block: TrialBlock, scenario: "Scenario") -> dict[str, Any]:
    """Return the stages that a scenario needs beside what the kernel does itself."""
    rival, rule, delay = block.rival, block.rule, block.delay
    plain = step.learn_clients if block.layout.mask else step.learn_trials
    stages: dict[str, Any] = {
        "learn": plain if is_plain(scenario) and not block.sampling.has_samples else step.learn_in_general
    }
    if rival.is_on:
        stages |= {"download": network.read_server, "upload": rivals.upload_encoded}
    elif block.down.addresses.size or scenario.availability is not None or block.defence.excludes_downloads:
        stages["download"] = network.download_in_general
    if block.up.addresses.size or delay.is_on:
        stages["deliver"] = network.deliver
    if rival.is_on and not rival.sends_model:
        stages["aggregate"] = rivals.apply_uploads
    elif rule.mix_address or rule.root.rows.shape[1] or delay.by_delay:
        stages["aggregate"] = iteration.aggregate_in_general
    return stages


class _Threads:
    """Threads that share the clients of one trial, each some blocks of SUM_BLOCK of them."""

    def __init__(self, count: int, layout: Layout, dimension: int) -> None:
        self.count = count
        size, vectors = SUM_BLOCK >> layout.shift, layout.vectors
        bounds = [min(-(-vectors // size) * part // count * size, vectors) for part in range(count)] + [vectors]
        self._scratch = [StepScratch(dimension, *part) for part in pairwise(bounds)]
        self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def parts(self, table: KernelTable) -> list[Any]:
        """Return the table with the scratch of each thread."""
        blocks = [copy.copy(table.values) for _ in self._scratch]
        for block, scratch in zip(blocks, self._scratch, strict=True):
            block.scratch = scratch
        return [KernelTable(block, table) for block in blocks]

    def run(self, tasks: list[Callable[[], None]]) -> None:
        """Run one task in each thread."""
        assert self._pool is not None
        for future in [self._pool.submit(task) for task in tasks]:
            future.result()

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:
            self._pool.shutdown(wait=False)  # type: ignore[union-attr]
