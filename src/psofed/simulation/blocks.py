"""Run a block of trials: advance an algorithm chunk by chunk and gather its metrics."""

from dataclasses import dataclass
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np

from psofed.common.types import FloatArray, IntArray
from psofed.engine.compiling import compiled, kernel_part
from psofed.engine.hooks import why_python
from psofed.engine.lanes import WIDTH
from psofed.engine.run import Run, TrialByTrial, is_plain
from psofed.fleet import Fleet, draw_fleet
from psofed.fleet.measured import table_samples
from psofed.parts.metric import Metric
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


@dataclass(frozen=True)
class Recording:
    """Quantities to record in a run.

    Attributes
    ----------
    tail : int
        The steady state is the mean over the last `tail` iterations.
    bin_width : int
        A point of the learning curve is the mean over this many iterations.
    keep_trials : bool
        Keep each trial's learning curve, not only their mean.
    """

    tail: int
    bin_width: int = 1
    keep_trials: bool = False


@dataclass(frozen=True, eq=False)
class Job:
    """A simulation: the scenario, its draws, and what is kept. Every block of its trials takes it.

    Attributes
    ----------
    scenario : Scenario
        What is simulated.
    seed : int
        Seed of all randomness except the fleet's.
    recording : Recording
        What is kept of a run.
    plan : WatchPlan, optional
        What the scenario's defence needs to know.
    draws_rows : bool
        Whether rows of a table are drawn at random, other ones in every trial, instead of taken in their order.
    metrics : tuple of str or Metric
        Metrics asked for beyond those of every run.
    """

    scenario: Scenario
    seed: int
    recording: Recording
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
    curves : array (trials, bins, Q) or None
        Each trial's learning curve, if it was to be kept.
    client_squares : array (K, trials) or None
        Sums of each client's squared errors over the tail, where they are kept.
    notes : tuple of str
        What the user should know of how it was computed.
    watched : dict of arrays (K, trials), or None
        What a defence did: ``first``, ``exclusions`` and ``time_out`` of :class:`psofed.results.DefenceRecord`.
    peaks : array (bins,) or None
        How often suspicion climbed how high, where that was to be counted.
    mean_log_level : float
        Mean over trials and iterations of the logarithm of the level that a defence saw.
    most_uploads : int or None
        Largest number of uploads by one client in a trial, where privacy depends on it.
    """

    names: tuple[str, ...]
    tail_halves: FloatArray
    curve_sum: FloatArray
    curve_squares: FloatArray
    diverged_at: IntArray
    curves: FloatArray | None
    client_squares: FloatArray | None = None
    notes: tuple[str, ...] = ()
    watched: dict[str, IntArray] | None = None
    peaks: IntArray | None = None
    mean_log_level: float = 0.0
    most_uploads: int | None = None


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
    job: Job,
    trials: range,
    progress: Progress | None = None,
    threads: int = 1,
    over_clients: bool | None = None,
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
    scenario, recording = job.scenario, job.recording
    count, iterations = len(trials), scenario.iterations
    run: Any
    if runs_over_clients(scenario, count) if over_clients is None else over_clients:
        run = TrialByTrial(scenario, job.fleet, job.seed, trials, threads, **job.measured)
    else:
        run = _start(job, trials)
    run.watched_from = iterations - recording.tail
    own = tuple(metric.name for metric in job.measured["metrics"])
    names = (*METRICS, *((HONEST,) if run.has_honest else ()), *own)
    bins = -(-iterations // recording.bin_width)
    bin_sums, tail_sums = np.zeros((len(names), count)), np.zeros((2, len(names), count))
    curve_sum, curve_squares = np.zeros((2, bins, len(names)))
    curves = np.zeros((count if recording.keep_trials else 0, bins, len(names)))
    diverged_at = np.full(count, -1)
    chunk = min(run.chunk, iterations)
    metrics = np.empty((chunk, len(names), count))
    for first in range(0, iterations, chunk):
        part = metrics[: iterations - first]
        run.advance(first, part)
        _gather(
            part, first, iterations, recording.tail, recording.bin_width,
            bin_sums, curve_sum, curve_squares, tail_sums, diverged_at, curves,
        )  # fmt: skip
        if progress is not None:
            progress.done += len(part) * count  # not exact between threads, and need not be
            if progress.stop.is_set():
                raise Stopped
    second = (recording.tail + 1) // 2
    tail_sums[0] /= max(recording.tail - second, 1)
    tail_sums[1] /= second
    squares = run.client_squares
    return Block(
        names,
        tail_sums,
        curve_sum,
        curve_squares,
        diverged_at,
        curves if recording.keep_trials else None,
        client_squares=squares if squares.size else None,
        notes=_notes(*scenario.parts(), *job.measured["metrics"]),
        most_uploads=int(run.upload_counts.max()) if run.upload_counts.size else None,
        **_watched(run.watching, iterations),
    )


def _watched(watching: Any, iterations: int) -> dict[str, Any]:
    """Return the exclusions that a defence recorded in the watched trials."""
    if watching is None:
        return {}
    time_out = watching.finished + np.where(watching.left != 0, iterations - watching.since, 0)
    watched = {"first": watching.first, "exclusions": watching.exclusions, "time_out": time_out}
    peaks = all_peaks(watching) if watching.peaks.size else None
    return {
        "watched": {name: array.T.copy() for name, array in watched.items()},
        "peaks": peaks,
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


@compiled
def _gather(
    metrics: FloatArray,
    first: int,
    iterations: int,
    tail: int,
    bin_width: int,
    bin_sums: FloatArray,
    curve_sum: FloatArray,
    curve_squares: FloatArray,
    tail_sums: FloatArray,
    diverged_at: IntArray,
    kept: FloatArray,
) -> None:
    count, num_metrics, _ = metrics.shape
    lanes = diverged_at.size
    second_half = iterations - (tail + 1) // 2
    any_diverged = False
    for lane in range(lanes):
        any_diverged |= diverged_at[lane] >= 0
    for t in range(count):
        n = first + t
        for q in range(_NUM_ERRORS):
            for lane in range(lanes):
                any_diverged |= not metrics[t, q, lane] <= _DIVERGED
        if any_diverged:
            _mark_diverged(metrics, t, n, diverged_at)
        for q in range(num_metrics):
            for lane in range(lanes):
                bin_sums[q, lane] += metrics[t, q, lane]
        if n >= iterations - tail:
            half = 1 if n >= second_half else 0
            for q in range(num_metrics):
                for lane in range(lanes):
                    tail_sums[half, q, lane] += metrics[t, q, lane]
        if (n + 1) % bin_width == 0 or n + 1 == iterations:
            b = n // bin_width
            width = n + 1 - b * bin_width
            for q in range(num_metrics):
                total, squares = 0.0, 0.0
                for lane in range(lanes):
                    value = bin_sums[q, lane] / width
                    bin_sums[q, lane] = 0.0
                    total += value
                    squares += value * value
                    if kept.size:
                        kept[lane, b, q] = value
                curve_sum[b, q], curve_squares[b, q] = total, squares


@kernel_part
def _mark_diverged(metrics: FloatArray, t: int, n: int, diverged_at: IntArray) -> None:
    """Record which trials diverge in iteration n; their errors count as infinite from then on, even if they are NaN."""
    for q in range(metrics.shape[1]):
        for lane in range(diverged_at.size):
            if q < _NUM_ERRORS and diverged_at[lane] < 0 and not metrics[t, q, lane] <= _DIVERGED:
                diverged_at[lane] = n
            if diverged_at[lane] >= 0:
                metrics[t, q, lane] = np.inf
