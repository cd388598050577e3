"""Run a block of trials: advance an algorithm chunk by chunk and gather its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine.hooks import why_python
from psofed.engine.lanes import WIDTH
from psofed.engine.run import Run, is_plain
from psofed.fleet import Fleet, draw_fleet
from psofed.fleet.measured import table_samples
from psofed.parts.base import Metric
from psofed.parts.part import Part
from psofed.parts.watching import WatchPlan, all_peaks
from psofed.results.metrics import HONEST, is_measured_by_client
from psofed.scenario import Scenario

# Trials that advance in lock step. Sums over trials are formed block by block, so this decides rounding.
BLOCK = WIDTH

# Up to this many trials are run one after the other, with lanes over clients, which takes less time.
_FEW_TRIALS = 8

# From this many client updates in a trial on.
_LARGE = 20_000_000

# Metrics of every run, whose size shows whether it diverged.
METRICS = ("network_mse", "server_msd", "test_mse")

# An error this large is one no stable run comes near; models start at an MSD of 1.
_DIVERGED = 1e12


@dataclass(frozen=True, eq=False)
class Job:
    """A simulation: the scenario, its draws, and what is kept. Every block of its trials takes it.

    Attributes
    ----------
    scenario : Scenario
        What is simulated.
    seed : int
        Seed of all randomness except the fleet's.
    tail : int
        The steady state is the mean over the last `tail` iterations.
    bin_width : int
        A point of the learning curve is the mean over this many iterations.
    keep_trials : bool
        Whether each trial's learning curve is kept, not only their mean.
    plan : WatchPlan, optional
        What the scenario's defence needs to know.
    draws_rows : bool
        Whether rows of a table are drawn at random, other ones in every trial, instead of taken in their order.
    metrics : tuple of str or Metric
        Metrics asked for beyond those of every run.
    """

    scenario: Scenario
    seed: int
    tail: int = 1
    bin_width: int = 1
    keep_trials: bool = False
    plan: WatchPlan | None = None
    draws_rows: bool = False
    metrics: tuple[str | Metric, ...] = ()

    @property
    def own_metrics(self) -> tuple[Metric, ...]:
        """The user's own metrics."""
        return tuple(metric for metric in self.metrics if isinstance(metric, Metric))

    @cached_property
    def fleet(self) -> Fleet:
        """The clients, drawn once for all blocks of this process."""
        return draw_fleet(self.scenario)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "fleet"}


class Block:
    """Result of a block of L trials, which does not depend on the chunks that it is added up from.

    Attributes
    ----------
    names : tuple of str
        The Q metrics.
    tail_halves : array (2, Q, L)
        Means over the first and the second half of the tail.
    curve_sums : array (2, bins, Q)
        Sums over trials of the learning curve's points and of their squares.
    diverged_at : array (L,)
        Iteration in which the trial was seen to diverge, or −1.
    curves : array (bins, Q, L)
        Each trial's learning curve; no bins unless it was to be kept.
    client_squares : array (K, L)
        Sums of each client's squared errors over the tail; no clients where they are not measured.
    notes : tuple of str
        What the user should know of how it was computed.
    watched : array (3, K, L), or None
        What a defence did: ``first``, ``exclusions`` and ``time_out`` of :class:`psofed.results.DefenceRecord`.
    peaks : array (bins,) or None
        How often suspicion climbed how high, where that was to be counted.
    mean_log_level : float
        Mean over trials and iterations of the logarithm of the level that a defence saw.
    most_uploads : int
        Largest number of uploads by one client in a trial, where privacy depends on it; else 0.
    """

    def __init__(self, job: Job, names: tuple[str, ...], trials: int) -> None:
        iterations, bins = job.scenario.iterations, -(-job.scenario.iterations // job.bin_width)
        self._width, self._edges = job.bin_width, (iterations - job.tail, iterations - (job.tail + 1) // 2, iterations)
        self.names = names
        self.tail_halves: FloatArray = np.zeros((2, len(names), trials))
        self.curve_sums: FloatArray = np.zeros((2, bins, len(names)))
        self.curves: FloatArray = np.zeros((bins if job.keep_trials else 0, len(names), trials))
        self.diverged_at: IntArray = np.full(trials, -1)
        self.notes: tuple[str, ...] = ()
        self.watched: IntArray | None = None
        self.peaks: IntArray | None = None
        self.mean_log_level: float = 0.0
        self.most_uploads: int = 0

    def add(self, first: int, part: FloatArray) -> None:
        """Add the iterations from number `first` on, (T, Q, L), whole bins; it changes them."""
        self._mark_diverged(first, part)
        for half in range(2):
            begin, end = (max(edge - first, 0) for edge in self._edges[half : half + 2])
            if len(part[begin:end]):  # one after the other, on top of what there is
                summands = np.concatenate([self.tail_halves[None, half], part[begin:end]])
                self.tail_halves[half] = summands.sum(axis=0)
        starts = np.arange(0, len(part), self._width)
        lengths = np.diff(np.append(starts, len(part)))
        points = part if self._width == 1 else np.add.reduceat(part, starts) / lengths[:, None, None]
        bins = slice(first // self._width, first // self._width + len(points))
        self.curve_sums[0, bins] = np.einsum("bql->bq", points)
        self.curve_sums[1, bins] = np.einsum("bql,bql->bq", points, points)
        if self.curves.size:
            self.curves[bins] = points

    def finish(self, runs: Sequence[Run]) -> None:
        """Take from the runs what they added up themselves."""
        self.tail_halves /= np.maximum(np.diff(self._edges), 1)[:, None, None]
        self.client_squares: FloatArray = np.hstack([run.client_squares for run in runs])
        self.most_uploads = max(int(run.upload_counts.max(initial=0)) for run in runs)
        watching, iterations = runs[0].watching, self._edges[2]
        if watching is not None:
            time_out = watching.finished + np.where(watching.left != 0, iterations - watching.since, 0)
            self.watched = np.stack([watching.first.T, watching.exclusions.T, time_out.T])
            self.peaks = all_peaks(watching) if watching.peaks.size else None
            self.mean_log_level = float(watching.log_levels.mean()) / iterations

    def _mark_diverged(self, first: int, part: FloatArray) -> None:
        """Record which trials diverge; their errors count as infinite from then on, even if they are NaN."""
        is_bounded, before = part[:, : len(METRICS)] <= _DIVERGED, self.diverged_at >= 0
        if is_bounded.all() and not before.any():
            return
        over = np.logical_or.accumulate(~is_bounded.all(axis=1) | before)
        begins = over[-1] & ~before
        self.diverged_at[begins] = first + over.argmax(axis=0)[begins]
        part.swapaxes(1, 2)[over] = np.inf


class Stopped(Exception):  # noqa: N818 (it is no error)
    """Raised to stop a block whose result is no longer needed."""


class Progress:
    """Count of finished trial-iterations, and a request to stop; shared by threads, not by processes."""

    def __init__(self) -> None:
        self.done = 0
        self.stop: Event = Event()


def runs_over_clients(scenario: Scenario, trials: int) -> bool:
    """Tell whether a block of `trials` trials has its lanes over clients; small ones are not worth another kernel."""
    if trials > _FEW_TRIALS or scenario.num_clients < 4 * WIDTH:
        return False
    if scenario.num_clients * scenario.iterations < _LARGE or not scenario.algorithm.holds_models:
        return False
    return scenario.defence is None and is_plain(scenario)


def run_block(
    job: Job, trials: range, progress: Progress | None = None, threads: int = 1, over_clients: bool | None = None
) -> Block:
    """Run some trials in lock step. A trial's bits depend only on the job and the trial's number.

    Parameters
    ----------
    job, trials
        What to run.
    progress : Progress, optional
        Where to count what is done.
    threads : int
        Threads that may share the clients of a trial, where there are many.
    over_clients : bool, optional
        Whether lanes are clients, one trial to a run; by default as :func:`runs_over_clients` says.
    """
    scenario, iterations, fleet = job.scenario, job.scenario.iterations, job.fleet
    options: dict[str, Any] = {"plan": job.plan, "metrics": job.own_metrics}
    options["by_client"] = is_measured_by_client(scenario, job.metrics)
    if scenario.data.rows is not None:
        fleet, rows = table_samples(scenario)
        options["samples"] = rows.drawn(job.seed, trials, iterations) if job.draws_rows else rows
    groups = [trials]
    if runs_over_clients(scenario, len(trials)) if over_clients is None else over_clients:
        groups = [range(trial, trial + 1) for trial in trials]
        options |= {"over_clients": True, "threads": threads}
    runs = [Run(scenario, fleet, job.seed, group, **options) for group in groups]
    for run in runs:
        run.watched_from = iterations - job.tail
    own = [metric.name for metric in job.own_metrics]
    block = Block(job, (*METRICS, *[HONEST] * runs[0].has_honest, *own), len(trials))
    chunk = min(max(runs[0].chunk // job.bin_width, 1) * job.bin_width, iterations)
    metrics = [np.empty((chunk, len(block.names), len(group))) for group in groups]
    for first in range(0, iterations, chunk):
        parts = [part[: iterations - first] for part in metrics]
        for run, part in zip(runs, parts, strict=True):
            run.advance(first, part)
        with np.errstate(over="ignore", invalid="ignore"):
            block.add(first, parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2))
        if progress is not None:
            progress.done += len(parts[0]) * len(trials)  # not exact between threads, and need not be
            if progress.stop.is_set():
                raise Stopped
    block.finish(runs)
    block.notes = _notes(*scenario.parts(), *job.own_metrics)
    return block


def _notes(*parts: Part) -> tuple[str, ...]:
    """Return notes on parts that ran as plain Python, with the reason."""
    reasons = ((part, why_python(part)) for part in parts)
    return tuple(
        f'{part.family} "{part.kind}" ran as plain Python, more slowly, since Numba cannot compile it: {reason}'
        for part, reason in reasons
        if reason is not None
    )
