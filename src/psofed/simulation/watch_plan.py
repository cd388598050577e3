"""Prepare a defence: variances of honest residuals, and the threshold for a rate of false alarms.

The threshold is found by running the scenario without its attack, in separate trials, and counting how high
suspicion climbs. Residuals are products of Gaussians, and those of successive uploads are correlated: no formula for
independent Gaussian ones would hold.
"""

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from psofed.common.errors import NotCoveredError
from psofed.common.types import FloatArray
from psofed.engine.hooks import why_python
from psofed.parts.watching import LOWEST_PEAK, PEAK_RATIO, WatchPlan
from psofed.scenario import Scenario
from psofed.simulation.blocks import BLOCK, Job, run_block
from psofed.theory.residuals import honest_variance

# Honest iterations to count over, in units of `false_alarm_every`; and how many at least and at most.
_FALSE_ALARMS, _FEWEST, _MOST = 30.0, 60_000, 600_000

# No more numbers are updated for it than this (clients × entries × iterations), or one block of trials.
_MOST_UPDATES = 4e8

# Fewer peaks than this above the threshold are too few to count; the tail is then extrapolated from this many.
_ENOUGH_PEAKS, _TAIL_PEAKS = 10.0, 50

# Of the honest trials; whatever seed the user takes, thresholds are the same.
_SEED = 9_071_954

# From where on trials are for the usual level; those below are for the threshold.
_LEVEL_TRIAL = 1_000_000

_NO_VARIANCE = np.zeros((0, 0))


def make_plan(scenario: Scenario) -> WatchPlan | None:
    """Return the plan of the scenario's defence; None without a defence."""
    if scenario.defence is None:
        return None
    return _make_plan(scenario.replace(attack=None))


@lru_cache(maxsize=32)
def _make_plan(honest: Scenario) -> WatchPlan:
    defence, is_drawn = honest.defence, honest.data.rows is None
    assert defence is not None
    variance = _NO_VARIANCE
    if defence.variance == "theory" or (defence.variance == "auto" and is_drawn):
        if not is_drawn:
            raise NotCoveredError(
                'defence.variance = "theory" needs streams described by the scenario; for your own data use "estimated"'
            )
        try:
            variance = honest_variance(honest)
        except NotCoveredError:
            if defence.variance == "theory":
                raise
    plan = WatchPlan(math.inf, variance, measure_level(honest, variance), defence.variance == "past")
    if defence.threshold is not None:
        return replace(plan, threshold=defence.threshold)
    counts, iterations = count_peaks(honest, plan)
    return replace(plan, threshold=find_threshold(counts, iterations / defence.false_alarm_every))


def measure_level(honest: Scenario, variance: FloatArray) -> float:
    """Run a block of honest trials and return the fleet's usual level; 1 where variances are estimated."""
    if variance.size == 0:
        return 1.0
    trials = range(_LEVEL_TRIAL, _LEVEL_TRIAL + BLOCK)
    block = run_block(Job(honest, _SEED, plan=WatchPlan(math.inf, variance)), trials)
    return math.exp(block.mean_log_level)


def count_peaks(honest: Scenario, plan: WatchPlan) -> tuple[NDArray[np.int64], int]:
    """Run honest trials and count the peaks of suspicion by height; also return the number of iterations.

    The threshold of `plan` is infinite.
    """
    defence, iterations = honest.defence, honest.iterations
    assert defence is not None
    wanted = min(max(_FALSE_ALARMS * defence.false_alarm_every, _FEWEST), _MOST)
    affordable = _MOST_UPDATES / (honest.num_clients * honest.dimension)
    blocks = max(1, math.ceil(min(wanted, affordable) / (iterations * BLOCK)))
    total = np.zeros(0, np.int64)
    for b in range(blocks):
        trials = range(b * BLOCK, (b + 1) * BLOCK)
        block = run_block(Job(honest, _SEED, plan=plan), trials)
        assert block.peaks is not None
        total = block.peaks if b == 0 else total + block.peaks
        if why_python(defence) is not None:
            break  # a body that runs as plain Python takes too long for more
    return total, (b + 1) * BLOCK * iterations


def find_threshold(counts: NDArray[np.int64], allowed: float) -> float:
    """Return the height that `allowed` peaks exceed.

    Where that is too few to be counted, the tail is taken for a power law through the highest peaks, which has more far
    peaks than the suspicion's own has: the threshold errs to the safe side.

    Parameters
    ----------
    counts : int array (bins,)
        Peaks in each bin, from ``LOWEST_PEAK`` on, each bin ``PEAK_RATIO`` times as high as the one before.
    allowed : float
        How many peaks may lie above.

    Examples
    --------
    >>> counts = np.zeros(600, np.int64)
    >>> counts[500], counts[550] = 1000, 20
    >>> round(find_threshold(counts, 20.0), 1)
    203.6
    """
    above = np.cumsum(counts[::-1])[::-1]  # peaks in this bin or higher
    heights = LOWEST_PEAK * PEAK_RATIO ** np.arange(counts.size + 1)
    if above[0] == 0:
        return LOWEST_PEAK
    if allowed >= _ENOUGH_PEAKS:
        # The lowest edge with at most the allowed number of peaks above it.
        return float(heights[int(np.argmax(np.append(above, 0) <= allowed))])
    kept = min(_TAIL_PEAKS, int(above[0]))
    lowest = int(np.flatnonzero(above >= kept)[-1])
    number = above[lowest]
    logs = np.log(heights[1:] / heights[lowest])
    exponent = float((counts[lowest:] * logs[lowest:]).sum() / number)
    return float(heights[lowest] * max(number / allowed, 1.0) ** max(exponent, math.log(PEAK_RATIO)))
