"""Simulation on request, in steps: few trials everywhere first, then more, so that dots grow sure while one looks.

Every dot is what ``psofed simulate --trials N`` says for the same seed, to the bit: a later step has more trials, the
earlier ones among them.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from psofed.common.types import ProgressCallback
from psofed.explore.theory import METRICS, shared_counts
from psofed.results import SimulationResult
from psofed.scenario import Scenario

if TYPE_CHECKING:
    from psofed.fleet.own_data import OwnData

TRIALS = (16, 64, 256)
_CURVE_POINTS = 120
_FACTORS = (0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0)  # of the stepsize, where theory gives no limit


def simulation_steps(
    scenario: Scenario,
    limit: float | None,
    progress: ProgressCallback,
    data: "OwnData | None" = None,
) -> Iterator[dict[str, Any]]:
    """Yield what simulation shows, step by step.

    Parameters
    ----------
    scenario : Scenario
    limit : float or None
        The limit of stability, if theory knows it: where to look for stepsizes.
    progress : callable
        Called with (done, total) trial-iterations of everything that is planned; it may raise to stop.
    data : OwnData, optional
        What clients learn from instead of the scenario's streams.
    """
    plan = _plan(scenario, limit)
    amounts = [trials * changed.iterations for _, changed, trials in plan]
    total, done = sum(amounts), 0
    stepsizes: dict[float, dict[str, Any]] = {}
    shared: dict[float, dict[str, Any]] = {}
    for (what, changed, trials), amount in zip(plan, amounts, strict=True):
        result = _simulate(changed, trials, _shifted(progress, done, total), data)
        done += amount
        progress(done, total)
        dot = _dot(result)
        if what == "present":
            stepsizes[changed.stepsize] = {"stepsize": changed.stepsize, **dot}
            shared[changed.num_shared] = {"num_shared": changed.num_shared, **dot}
            step: dict[str, Any] = {"present": dot, "curve": _curve(result), "notes": list(result.notes)}
        elif what == "stepsize":
            stepsizes[changed.stepsize] = {"stepsize": changed.stepsize, **dot}
            step = {}
        else:
            shared[changed.num_shared] = {"num_shared": changed.num_shared, **dot}
            step = {}
        yield {
            **step,
            "stepsizes": [stepsizes[mu] for mu in sorted(stepsizes)],
            "shared": [shared[count] for count in sorted(shared)],
        }
    yield {"finished": True}


def _plan(scenario: Scenario, limit: float | None) -> list[tuple[str, Scenario, int]]:
    mu, count = scenario.stepsize, scenario.num_shared
    if limit and math.isfinite(limit):
        stepsizes = [fraction * limit for fraction in (0.06, 0.15, 0.3, 0.5, 0.75, 0.92)]
    else:
        stepsizes = [factor * mu for factor in _FACTORS if factor != 1.0]
    counts = [m for m in shared_counts(scenario.dimension, count, 6) if m != count]
    plan = []
    for trials in TRIALS:
        plan.append(("present", scenario, trials))
        if trials < TRIALS[-1]:
            plan += [("shared", scenario.replace(num_shared=m), trials) for m in counts]
            plan += [("stepsize", scenario.replace(stepsize=x), trials) for x in stepsizes]
    return plan


def _simulate(
    scenario: Scenario, trials: int, progress: ProgressCallback, data: "OwnData | None"
) -> SimulationResult:
    from psofed.simulation.monte_carlo import simulate

    return simulate(scenario, trials, progress=progress, data=data)


def _shifted(progress: ProgressCallback, done: int, total: int) -> ProgressCallback:
    return lambda part, _: progress(done + part, total)


def _dot(result: SimulationResult) -> dict[str, Any]:
    dot: dict[str, Any] = {"trials": result.trials, "diverged": int(result.diverged_trials.size)}
    for metric, found in result.estimates().items():
        dot[metric] = found.mean
        dot[f"{metric}_low"], dot[f"{metric}_high"] = found.interval
    return dot


def _curve(result: SimulationResult) -> dict[str, Any]:
    """Return the learning curve in bins that grow with time, with 95 % bands."""
    length = result.curve["network_mse"].size
    edges = np.unique(np.geomspace(1, length + 1, _CURVE_POINTS).astype(int)) - 1
    starts, sizes = edges[:-1], np.diff(edges)
    middle = starts + (sizes - 1) / 2
    curve: dict[str, Any] = {"iteration": (middle * result.bin_width).tolist(), "trials": result.trials}
    for metric in METRICS:
        mean, error = result.curve[metric], result.curve_standard_error[metric]
        # Neighbouring iterations are anything but independent: a bin is taken for as uncertain as one of them.
        curve[metric] = (np.add.reduceat(mean, starts) / sizes).tolist()
        spread = 1.96 * np.add.reduceat(error, starts) / sizes
        curve[f"{metric}_low"] = (np.array(curve[metric]) - spread).tolist()
        curve[f"{metric}_high"] = (np.array(curve[metric]) + spread).tolist()
    return curve
