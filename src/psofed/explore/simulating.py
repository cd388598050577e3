"""Simulate on request, step by step: few trials everywhere first, then more, so that intervals shrink on the screen.

Every dot equals ``psofed simulate --trials N`` with the same seed, to the bit: a later step repeats the trials of the
earlier ones and adds more.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from psofed.common.types import ProgressCallback
from psofed.explore.answers import METRICS, Curve, Dot, Interval, Simulation
from psofed.explore.theory import shared_counts
from psofed.results import SimulationResult
from psofed.scenario import Scenario

TRIALS = (16, 64, 256)
_CURVE_POINTS = 120
_FACTORS = (0.25, 0.4, 0.63, 1.6, 2.5, 4.0)  # of the stepsize, where theory gives no limit
_FRACTIONS = (0.06, 0.15, 0.3, 0.5, 0.75, 0.92)  # of the limit, where it does


def simulation_steps(
    scenario: Scenario,
    limit: float | None,
    progress: ProgressCallback,
) -> Iterator[Simulation]:
    """Yield the simulation's answer, more of it each time.

    Parameters
    ----------
    scenario : Scenario
        The settings.
    limit : float or None
        Largest stable stepsize if theory knows it; it decides which stepsizes are simulated.
    progress : callable
        Called with (done, total) trial-iterations of the whole plan; it may raise to stop.
    """
    from psofed.simulation.monte_carlo import simulate

    plan = _plan(scenario, limit)
    total, done = sum(trials * changed.iterations for changed, trials in plan), 0
    dots: dict[str, dict[float, Dot]] = {"stepsizes": {}, "shared": {}, "participants": {}}
    simulation = Simulation()
    for changed, trials in plan:
        result = simulate(changed, trials, progress=_shifted(progress, done, total))
        done += trials * changed.iterations
        progress(done, total)
        dot = _dot(result)
        is_alike = changed.num_participants == scenario.num_participants
        has_same_stepsize = changed.stepsize == scenario.stepsize
        if (
            is_alike
            and changed.num_shared == scenario.num_shared
            and isinstance(changed.stepsize, float | int)
        ):
            dots["stepsizes"][changed.stepsize] = dot
        if is_alike and has_same_stepsize:
            dots["shared"][changed.num_shared] = dot
        if has_same_stepsize and changed.num_shared == scenario.dimension:
            dots["participants"][changed.num_participants] = dot
        if changed is scenario:
            simulation = replace(simulation, present=dot, curve=_curve(result))
        in_order: Any = {name: tuple(sorted(pairs.items())) for name, pairs in dots.items()}
        simulation = replace(simulation, **in_order, progress=done / total)
        yield simulation
    yield replace(simulation, finished=True)


def _plan(scenario: Scenario, limit: float | None) -> list[tuple[Scenario, int]]:
    """Return what to simulate, and with how many trials: the current settings, then changes of M, |S_n| and μ."""
    mu, count = scenario.stepsize, scenario.num_shared
    if not isinstance(mu, float | int):
        stepsizes = []
    elif limit and math.isfinite(limit):
        stepsizes = [fraction * limit for fraction in _FRACTIONS]
    else:
        stepsizes = [factor * mu for factor in _FACTORS]
    others = [m for m in shared_counts(scenario.dimension, count, 6) if m != count]
    changed = [scenario.replace(num_shared=m) for m in others]
    if limit is None:  # theory draws the fewer participants that share everything, if there is a theory
        full, most = scenario.replace(num_shared=scenario.dimension), scenario.num_participants
        changed += [full.replace(num_participants=n) for n in shared_counts(most, most, 4) if n < most]
    changed += [scenario.replace(stepsize=x) for x in stepsizes]
    plan = []
    for trials in TRIALS:
        plan.append((scenario, trials))
        if trials < TRIALS[-1]:
            plan += [(other, trials) for other in changed]
    return plan


def _shifted(progress: ProgressCallback, done: int, total: int) -> ProgressCallback:
    return lambda part, _: progress(done + part, total)


def _dot(result: SimulationResult) -> Dot:
    metrics = {name: Interval(found.mean, *found.interval) for name, found in result.estimates().items()}
    return Dot(result.trials, int(result.diverged_trials.size), metrics)


def _curve(result: SimulationResult) -> Curve:
    """Return the learning curve in bins that grow with time, with 95 % intervals."""
    length = result.curve["network_mse"].size
    edges = np.unique(np.geomspace(1, length + 1, _CURVE_POINTS).astype(int)) - 1
    starts, sizes = edges[:-1], np.diff(edges)
    middle = starts + (sizes - 1) / 2
    mean, low, high = {}, {}, {}
    for metric in METRICS:
        centre = np.add.reduceat(result.curve[metric], starts) / sizes
        # Neighbouring iterations are strongly dependent, so averaging a bin does not reduce its uncertainty.
        spread = 1.96 * np.add.reduceat(result.curve_standard_error[metric], starts) / sizes
        mean[metric] = tuple(centre.tolist())
        low[metric], high[metric] = tuple((centre - spread).tolist()), tuple((centre + spread).tolist())
    return Curve(tuple((middle * result.bin_width).tolist()), mean, low, high, result.trials)
