"""Run a block of trials: advance an algorithm chunk by chunk and gather its metrics."""

from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine.hooks import why_python
from psofed.engine.lanes import WIDTH
from psofed.engine.run import Run, TrialByTrial, is_plain
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

_NUM_ERRORS = len(METRICS)

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
    def measured(self) -> dict[str, Any]:
        """Options of a run that measures more than the usual metrics."""
        own = tuple(metric for metric in self.metrics if isinstance(metric, Metric))
        return {"metrics": own, "by_client": is_measured_by_client(self.scenario, self.metrics)}

    @cached_property
    def fleet(self) -> Fleet:
        """The clients, drawn once for all blocks of this process."""
        return draw_fleet(self.scenario)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "fleet"}


@dataclass(frozen=True, eq=False)
class Block:
    """Result of a block of trials.

    Attributes
    ----------
    names : tuple of str
        The Q metrics.
    tail_halves : array (2, Q, trials)
        Means over the first and the second half of the tail.
    curve_sum, curve_squares : array (bins, Q)
        Sums over trials of the learning curve's points and of their squares.
    diverged_at : array (trials,)
        Iteration in which the trial was seen to diverge, or −1.
    curves : array (bins, Q, trials)
        Each trial's learning curve; no bins unless it was to be kept.
    client_squares : array (K, trials)
        Sums of each client's squared errors over the tail; no clients where they are not measured.
    notes : tuple of str
        What the user should know of how it was computed.
    watched : array (3, K, trials), or None
        What a defence did: ``first``, ``exclusions`` and ``time_out`` of :class:`psofed.results.DefenceRecord`.
    peaks : array (bins,) or None
        How often suspicion climbed how high, where that was to be counted.
    mean_log_level : float
        Mean over trials and iterations of the logarithm of the level that a defence saw.
    most_uploads : int
        Largest number of uploads by one client in a trial, where privacy depends on it; else 0.
    """

    names: tuple[str, ...]
    tail_halves: FloatArray
    curve_sum: FloatArray
    curve_squares: FloatArray
    diverged_at: IntArray
    curves: FloatArray
    client_squares: FloatArray
    notes: tuple[str, ...] = ()
    watched: IntArray | None = None
    peaks: IntArray | None = None
    mean_log_level: float = 0.0
    most_uploads: int = 0


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
        Whether lanes are clients; by default as :func:`runs_over_clients` says.
    """
    scenario, iterations = job.scenario, job.scenario.iterations
    run: Any
    if runs_over_clients(scenario, len(trials)) if over_clients is None else over_clients:
        run = TrialByTrial(scenario, job.fleet, job.seed, trials, threads, **job.measured)
    else:
        run = _start(job, trials)
    run.watched_from = iterations - job.tail
    names = [*METRICS, *[HONEST] * run.has_honest, *(metric.name for metric in job.measured["metrics"])]
    sums = _Sums(job, len(names), len(trials))
    chunk = min(max(run.chunk // job.bin_width, 1) * job.bin_width, iterations)
    metrics = np.empty((chunk, len(names), len(trials)))
    for first in range(0, iterations, chunk):
        part = metrics[: iterations - first]
        run.advance(first, part)
        with np.errstate(over="ignore", invalid="ignore"):
            sums.add(first, part)
        if progress is not None:
            progress.done += len(part) * len(trials)  # not exact between threads, and need not be
            if progress.stop.is_set():
                raise Stopped
    return Block(
        tuple(names),
        sums.tail_halves / np.maximum(sums.half_lengths, 1)[:, None, None],
        sums.curve[0],
        sums.curve[1],
        sums.diverged_at,
        sums.curves,
        run.client_squares,
        notes=_notes(*scenario.parts(), *job.measured["metrics"]),
        most_uploads=int(run.upload_counts.max(initial=0)),
        **_watched(run.watching, iterations),
    )


class _Sums:
    """Sums of a block's metrics, (T, Q, L) for T iterations and L trials, which do not depend on the chunks."""

    def __init__(self, job: Job, metrics: int, trials: int) -> None:
        iterations, second = job.scenario.iterations, (job.tail + 1) // 2
        bins = -(-iterations // job.bin_width)
        self._width, self._edges = job.bin_width, (iterations - job.tail, iterations - second, iterations)
        self.half_lengths: IntArray = np.diff(self._edges)
        self.tail_halves: FloatArray = np.zeros((2, metrics, trials))
        self.curve: FloatArray = np.zeros((2, bins, metrics))
        self.curves: FloatArray = np.zeros((bins if job.keep_trials else 0, metrics, trials))
        self.diverged_at: IntArray = np.full(trials, -1)

    def add(self, first: int, part: FloatArray) -> None:
        """Add the iterations from number `first` on, whole bins; it changes them."""
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
        self.curve[0, bins] = np.einsum("bql->bq", points)
        self.curve[1, bins] = np.einsum("bql,bql->bq", points, points)
        if self.curves.size:
            self.curves[bins] = points

    def _mark_diverged(self, first: int, part: FloatArray) -> None:
        """Record which trials diverge; their errors count as infinite from then on, even if they are NaN."""
        is_bounded, before = part[:, :_NUM_ERRORS] <= _DIVERGED, self.diverged_at >= 0
        if is_bounded.all() and not before.any():
            return
        over = np.logical_or.accumulate(~is_bounded.all(axis=1) | before)
        begins = over[-1] & ~before
        self.diverged_at[begins] = first + over.argmax(axis=0)[begins]
        part.swapaxes(1, 2)[over] = np.inf


def _watched(watching: Any, iterations: int) -> dict[str, Any]:
    """Return the exclusions that a defence recorded in the watched trials."""
    if watching is None:
        return {}
    time_out = watching.finished + np.where(watching.left != 0, iterations - watching.since, 0)
    return {
        "watched": np.stack([watching.first.T, watching.exclusions.T, time_out.T]),
        "peaks": all_peaks(watching) if watching.peaks.size else None,
        "mean_log_level": float(watching.log_levels.mean()) / iterations,
    }


def _notes(*parts: Part) -> tuple[str, ...]:
    """Return notes on parts that ran as plain Python, with the reason."""
    reasons = ((part, why_python(part)) for part in parts)
    return tuple(
        f'{part.family} "{part.kind}" ran as plain Python, more slowly, since Numba cannot compile it: {reason}'
        for part, reason in reasons
        if reason is not None
    )


def _start(job: Job, trials: range) -> Run:
    scenario = job.scenario
    if scenario.data.rows is None:
        return Run(scenario, job.fleet, job.seed, trials, plan=job.plan, **job.measured)
    fleet, rows = table_samples(scenario)
    samples = rows.drawn(job.seed, trials, scenario.iterations) if job.draws_rows else rows
    return Run(scenario, fleet, job.seed, trials, samples, job.plan, **job.measured)
