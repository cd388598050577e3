"""Results of theory and simulation for a scenario so far, as frozen values.

A worker sends a whole :class:`Theory` or :class:`Simulation` each time it knows more; the newest one replaces those
before. Sentence, table, chart and files are made from these values.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from psofed.results.metrics import LABELS
from psofed.scenario import Scenario

METRICS = tuple(LABELS)
# What the chart can be drawn over, and the label of its axis.
AXES = {"stepsize": "stepsize μ", "num_shared": "shared parameters M", "iteration": "iteration"}


@dataclass(frozen=True)
class ErrorLevel:
    """An error, linear. `low` and `high` are the ends of the 95 % interval of a simulated one."""

    mean: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Point:
    """The errors at one stepsize, number of shared parameters or iteration `x`.

    Attributes
    ----------
    levels : mapping of str to ErrorLevel
        By metric. Infinite where unstable, NaN where the theory does not cover the metric.
    worst : float
        Network MSE under the worst additive attack of the same power; NaN where it is not known.
    terms : mapping of str to float
        What contributes to the network MSE, by theory.
    trials, diverged : int
        Simulated trials, and how many of them diverged.
    """

    x: float
    levels: Mapping[str, ErrorLevel] = field(default_factory=dict)
    worst: float = math.nan
    terms: Mapping[str, float] = field(default_factory=dict)
    trials: int = 0
    diverged: int = 0

    def mean(self, metric: str) -> float | None:
        """Return the error by one metric; None if it is not known or not covered."""
        level = self.levels.get(metric)
        return None if level is None or math.isnan(level.mean) else level.mean


Charts = Mapping[str, tuple[Point, ...]]


@dataclass(frozen=True)
class Answer:
    """An answer of theory or simulation, as far as it has come.

    Attributes
    ----------
    present : Point, optional
        At the current settings.
    charts : mapping of str to tuple of Point
        Curves by axis (:data:`AXES`).
    error : str
        Why the computation failed.
    finished : bool
        Whether nothing more will come.
    """

    present: Point | None = None
    charts: Charts = field(default_factory=dict)
    error: str = ""
    finished: bool = False

    def with_chart(self, axis: str, points: tuple[Point, ...]) -> Self:
        """Return the answer with one curve more, or with a finer one."""
        return replace(self, charts={**self.charts, axis: points})


@dataclass(frozen=True)
class Theory(Answer):
    """The theory's answer; None and empty mean *not known yet*, unless stated otherwise.

    Attributes
    ----------
    limit : float
        Largest stable stepsize; infinite if every stepsize is stable, 0 if none is.
    best, full_best : Point
        At the best stepsize, with the current number of shared parameters and with all; at stepsize 0 if a smaller one
        is always better.
    refusal : str
        Why the theory does not cover the scenario.
    """

    limit: float | None = None
    best: Point | None = None
    full_best: Point | None = None
    refusal: str = ""

    def over(self, before: "Theory") -> "Theory":
        """Return this answer, with the curves that are not known yet taken from an earlier one.

        The chart shows it while a slider moves, so that curves change shape instead of disappearing.
        """
        return self if self.refusal or self.error else replace(self, charts={**before.charts, **self.charts})


@dataclass(frozen=True)
class Simulation(Answer):
    """The simulation's answer; `progress` is the finished fraction of the plan."""

    progress: float = 0.0


@dataclass
class State:
    """The state of a page: what was typed, what is valid of it, and what is known about it.

    Attributes
    ----------
    draft : dict
        Values in the form, in the layout of a scenario file; they may be invalid.
    scenario : Scenario
        The last valid scenario.
    error : str
        Why the draft is invalid.
    theory, drawn : Theory
        The answer about `scenario`; and the same with the curves of earlier settings, for the chart.
    simulation : Simulation
        The simulation of `scenario`.
    simulating : bool
        Whether more of it will come.
    theory_number, simulation_number : int
        Numbers of the newest questions.
    """

    draft: dict[str, Any]
    scenario: Scenario
    error: str = ""
    theory: Theory = field(default_factory=Theory)
    drawn: Theory = field(default_factory=Theory)
    simulation: Simulation = field(default_factory=Simulation)
    simulating: bool = False
    theory_number: int = 0
    simulation_number: int = 0

    @property
    def name(self) -> str:
        """``"failed"``, ``"unstable"``, ``"simulating"``, ``"uncovered"``, ``"computing"`` or ``"ready"``."""
        theory = self.theory
        if theory.error or self.simulation.error:
            return "failed"
        if theory.present is not None and not math.isfinite(theory.present.levels["network_mse"].mean):
            return "unstable"
        if self.simulating:
            return "simulating"
        if theory.refusal:
            return "uncovered"
        return "ready" if theory.present is not None else "computing"

    def shown(self, metric: str) -> float | None:
        """Return the error by theory, or else the simulated one."""
        points = (self.theory.present, self.simulation.present)
        return next((mean for point in points if point and (mean := point.mean(metric)) is not None), None)
