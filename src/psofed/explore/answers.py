"""Results of theory and simulation for a scenario so far, as frozen values.

A worker sends a whole :class:`Theory` or :class:`Simulation` each time it knows more; the newest one replaces those
before. Charts, tiles, sentences and files are made from these values.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario

METRICS = tuple(METRIC_TITLES)


@dataclass(frozen=True)
class Point:
    """The steady state that theory predicts at one stepsize: metrics and terms of the network MSE.

    An unstable stepsize has infinite metrics; a metric that the theory does not cover is NaN.
    """

    stepsize: float
    network_mse: float
    server_msd: float
    test_mse: float
    terms: Mapping[str, float] = field(default_factory=dict)

    def value(self, metric: str) -> float:
        """Return one of the metrics by name."""
        return float(getattr(self, metric))


@dataclass(frozen=True)
class Design:
    """The steady state for a number of shared parameters or participants, and what that number costs.

    Attributes
    ----------
    count : int
        M, or |S_n|.
    values_sent : float
        Values sent per iteration, both ways, by all participants together.
    point : Point
        The steady state.
    """

    count: int
    values_sent: float
    point: Point


@dataclass(frozen=True)
class Curve:
    """A learning curve; `low` and `high` are the ends of 95 % intervals, empty for theory."""

    iterations: tuple[float, ...]
    values: Mapping[str, tuple[float, ...]]
    low: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    high: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    trials: int = 0


@dataclass(frozen=True)
class Optimum:
    """The best stepsize; `point` is None if a smaller stepsize is always better."""

    point: Point | None


@dataclass(frozen=True)
class Theory:
    """The theory's answer so far. None and empty mean *not known yet*, unless stated otherwise.

    Attributes
    ----------
    point, full : Point
        At the current settings, and with all parameters shared.
    stepsizes : tuple of Point
        Over a grid of stepsizes.
    shared, participants : tuple of Design
        Over the number of shared parameters, and over the number of participants that share all parameters.
    curve : Curve
        Learning curve.
    limit : float
        Largest stable stepsize; infinite if every stepsize is stable.
    best, full_best : Optimum
        Best stepsize at the current settings, and with all parameters shared.
    most_byzantine, full_most_byzantine : int
        Largest number of Byzantine clients for which the run is stable; also None if there is no such limit.
    refusal : str
        Why the theory does not cover the scenario.
    error : str
        Why the computation failed.
    finished : bool
        Whether nothing more will come.
    """

    point: Point | None = None
    full: Point | None = None
    stepsizes: tuple[Point, ...] = ()
    shared: tuple[Design, ...] = ()
    participants: tuple[Design, ...] = ()
    curve: Curve | None = None
    limit: float | None = None
    best: Optimum | None = None
    full_best: Optimum | None = None
    most_byzantine: int | None = None
    full_most_byzantine: int | None = None
    refusal: str = ""
    error: str = ""
    finished: bool = False

    def over(self, before: "Theory") -> "Theory":
        """Return this answer, with what is not known yet taken from an earlier one.

        Charts show it while a slider moves, so that curves change shape instead of disappearing.
        """
        if self.refusal or self.error:
            return self
        unknown = {about.name for about in fields(self) if getattr(self, about.name) in (None, ())}
        return replace(self, **{name: getattr(before, name) for name in unknown})


@dataclass(frozen=True)
class Interval:
    """A simulated mean with its 95 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Dot:
    """The steady state that simulation finds at one setting: an interval per metric."""

    trials: int
    diverged: int
    metrics: Mapping[str, Interval]

    def mean(self, metric: str) -> float:
        """Return the mean of one metric; NaN if it was not measured."""
        return self.metrics[metric].mean if metric in self.metrics else math.nan


@dataclass(frozen=True)
class Simulation:
    """The simulation's answer so far; `stepsizes`, `shared` and `participants` pair a setting with its dot."""

    present: Dot | None = None
    stepsizes: tuple[tuple[float, Dot], ...] = ()
    shared: tuple[tuple[int, Dot], ...] = ()
    participants: tuple[tuple[int, Dot], ...] = ()
    curve: Curve | None = None
    progress: float = 0.0
    error: str = ""
    finished: bool = False


Answer = Theory | Simulation


@dataclass(frozen=True)
class Answers:
    """A scenario and everything that is known about it, for charts and files."""

    scenario: Scenario
    theory: Theory = Theory()
    simulation: Simulation = Simulation()
    simulating: bool = False

    def instability(self) -> str:
        """Return why the error grows without limit, and what to do; nothing if it does not.

        Examples
        --------
        >>> best = Optimum(Point(0.0766, 1, 1, 1))
        >>> theory = Theory(Point(0.5, math.inf, math.inf, math.inf), limit=0.2591, best=best)
        >>> Answers(Scenario(num_clients=50, dimension=5, stepsize=0.5), theory).instability()
        'Unstable: stepsize 0.5 exceeds the largest stable stepsize, 0.259; use 0.0766.'
        """
        point, limit = self.theory.point, self.theory.limit
        if point is None or limit is None or not math.isinf(point.network_mse):
            return ""
        if limit == 0:
            return "Unstable at every stepsize: use fewer Byzantine clients or a weaker attack."
        best = None if self.theory.best is None else self.theory.best.point
        advice = f"use {limit / 10:.2g} or less" if best is None else f"use {best.stepsize:.3g}"
        return f"Unstable: stepsize {point.stepsize:.3g} exceeds the largest stable stepsize, {limit:.3g}; {advice}."

    def reason_for_gap(self, metric: str, simulated: bool = True) -> str:
        """Return why a chart has nothing to show, and what to do; `simulated` if a simulation could fill it."""
        theory = self.theory
        if reason := self.instability():
            return reason
        if theory.refusal or theory.error:
            if not simulated:
                return "Only theory can tell, and it does not cover these settings."
            return "Simulating …" if self.simulating else "No theory for these settings: press Simulate."
        if not theory.finished:
            return "Computing …"
        if theory.point is not None and math.isnan(theory.point.value(metric)):
            return f"Theory does not cover the {METRIC_TITLES[metric]} of this model: press Simulate."
        return "Nothing to show for these settings."
