"""Simulate on request, step by step: few trials everywhere first, then more, so that intervals shrink on the screen.

Every point equals ``psofed simulate --trials N`` with the same seed, to the bit: a later step repeats the trials of the
earlier ones and adds more.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from psofed.common.types import ProgressCallback
from psofed.explore.answers import ErrorLevel, Point, Simulation
from psofed.explore.theory import shared_counts
from psofed.results import SimulationResult
from psofed.results.metrics import HONEST
from psofed.scenario import Scenario

TRIALS = (16, 64, 256)
_CURVE_POINTS = 120
_FACTORS = (0.1, 0.25, 0.5, 1.5, 2.0, 3.0)  # of the current stepsize


def simulation_steps(scenario: Scenario, limit: float | None, progress: ProgressCallback) -> Iterator[Simulation]:
    """Yield the simulation's answer, more of it each time.

    Parameters
    ----------
    scenario : Scenario
        The settings.
    limit : float or None
        Largest stable stepsize if theory knows it; larger ones are not simulated.
    progress : callable
        Called with (done, total) trial-iterations of the whole plan; it may raise to stop.
    """
    from psofed.simulation.monte_carlo import simulate

    others = _others(scenario, limit)
    plan = [(axis, x, changed, trials) for trials in TRIALS for axis, x, changed in others]
    plan = [step for step in plan if step[0] == "" or step[3] < TRIALS[-1]]  # the last trials only at the settings
    total, done = sum(trials * changed.iterations for _, _, changed, trials in plan), 0
    answer = Simulation()
    for axis, x, changed, trials in plan:

        def report(part: float, _: int, before: int = done) -> None:
            progress(before + part, total)

        result = simulate(changed, trials, progress=report)
        done += trials * changed.iterations
        progress(done, total)
        point = _point(x, result)
        answer = replace(answer, progress=done / total)
        if axis:
            answer = answer.with_chart(axis, _placed(answer, axis, point))
        else:
            answer = replace(answer, present=point).with_chart("iteration", _curve(result))
            if isinstance(scenario.stepsize, float | int):
                here = replace(point, x=scenario.stepsize)
                answer = answer.with_chart("stepsize", _placed(answer, "stepsize", here))
            here = replace(point, x=scenario.num_shared)
            answer = answer.with_chart("num_shared", _placed(answer, "num_shared", here))
        yield answer
    yield replace(answer, finished=True)


def _others(scenario: Scenario, limit: float | None) -> list[tuple[str, float, Scenario]]:
    """Return the axis, the place on it and the scenario of all points; the first is the current settings."""
    mu, count = scenario.stepsize, scenario.num_shared
    points: list[tuple[str, float, Scenario]] = [("", 0.0, scenario)]
    counts = [m for m in shared_counts(scenario.dimension, count, 6) if m != count]
    points += [("num_shared", m, scenario.replace(num_shared=m)) for m in counts]
    if isinstance(mu, float | int):
        stepsizes = [x * mu for x in _FACTORS if not limit or x * mu < limit]
        points += [("stepsize", x, scenario.replace(stepsize=x)) for x in stepsizes]
    return points


def _placed(answer: Simulation, axis: str, point: Point) -> tuple[Point, ...]:
    """Return the points over an axis with a new one, or with more trials at one."""
    points = {old.x: old for old in answer.charts.get(axis, ())} | {point.x: point}
    return tuple(points[x] for x in sorted(points))


def _point(x: float, result: SimulationResult) -> Point:
    levels = {name: ErrorLevel(estimate.mean, *estimate.interval) for name, estimate in result.estimates().items()}
    levels.setdefault(HONEST, levels["network_mse"])  # without Byzantine clients
    return Point(x, levels, trials=result.trials, diverged=int(result.diverged_trials.size))


def _curve(result: SimulationResult) -> tuple[Point, ...]:
    """Return the learning curve in bins that grow with time, with 95 % intervals."""
    length = result.curve["network_mse"].size
    edges = np.unique(np.geomspace(1, length + 1, _CURVE_POINTS).astype(int)) - 1
    starts, sizes = edges[:-1], np.diff(edges)
    times = (starts + (sizes - 1) / 2) * result.bin_width
    levels = {}
    for metric, values in result.curve.items():
        centre = np.add.reduceat(values, starts) / sizes
        # Neighbouring iterations are strongly dependent, so averaging a bin does not reduce its uncertainty.
        spread = 1.96 * np.add.reduceat(result.curve_standard_error[metric], starts) / sizes
        levels[metric] = [ErrorLevel(*row) for row in zip(centre, centre - spread, centre + spread, strict=True)]
    levels.setdefault(HONEST, levels["network_mse"])
    return tuple(
        Point(float(n), {metric: column[i] for metric, column in levels.items()}, trials=result.trials)
        for i, n in enumerate(times)
    )
