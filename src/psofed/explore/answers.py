"""Results of theory and simulation for a scenario so far, as frozen values; the sentence and the table about them.

A worker sends a whole :class:`Theory` or :class:`Simulation` each time it knows more; the newest one replaces those
before. Sentence, table, chart and files are made from these values. Every number in them is computed, and a cause is
stated only if it is known.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from psofed.common.numbers import to_decibels
from psofed.render.numbers import fixed, percent
from psofed.results.metrics import LABELS
from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.scenario.describe import describe_stepsize
from psofed.theory.reports import TERM_TITLES

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
class PageState:
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


def sentence(state: PageState, metric: str) -> str:
    """Return the answer in a sentence.

    Examples
    --------
    >>> fleet = Scenario(num_clients=50, dimension=5, stepsize=0.077)
    >>> present, best = (Point(mu, {"network_mse": ErrorLevel(mse)}) for mu, mse in ((0.077, 0.0229), (0.2, 0.068)))
    >>> sentence(PageState({}, fleet, theory=Theory(present, full_best=best)), "network_mse")[46:]
    'gives −16.4 dB; sharing all gives −11.7 dB at its best stepsize, 0.2.'
    """
    scenario, theory, simulation = state.scenario, state.theory, state.simulation
    shared, size = scenario.num_shared, scenario.dimension
    amount = f"{shared} of {size} parameters" if shared < size else f"all {size} parameters"
    text = f"Sharing {amount} with {describe_stepsize(scenario.stepsize)}"
    if state.name == "unstable":
        return _instability(theory)
    if theory.present is None:
        return _simulated(text, state, metric) if theory.refusal or simulation.present else f"{text} …"
    value = theory.present.mean(metric)
    if value is None:
        text = f"{text}: the theory does not cover the {LABELS[metric].title} here."
        return _simulated(text, state, metric) if simulation.present else text
    if not scenario.data.stream.is_independent:
        text = f"Under the independence assumption, {text[:1].lower()}{text[1:]}"
    return f"{text} gives {decibels(value, 1)}{_better(state, metric)}{_full(state, metric)}."


def note(state: PageState) -> str:
    """Return what the page is doing about the answer, or what the user can do."""
    theory, simulation = state.theory, state.simulation
    if theory.error or simulation.error:
        return theory.error or simulation.error
    texts = []
    if theory.refusal:
        texts.append(f"Simulation only: {theory.refusal}.")
    if state.simulating:
        trials = 0 if simulation.present is None else simulation.present.trials
        texts.append(
            f"Simulating, {percent(simulation.progress, 0)}" + (f": {trials} trials so far …" if trials else " …")
        )
    elif theory.refusal and simulation.present is None:
        texts.append("Press Simulate.")
    elif not theory.finished:
        texts.append("Computing …" if theory.present is None else "Computing the curves …")
    return " ".join(texts)


@dataclass(frozen=True)
class Row:
    """A row of the table; a `minor` one belongs to the row above it."""

    title: str
    cells: tuple[str, ...]
    is_minor: bool = False


def table(state: PageState) -> tuple[tuple[str, ...], list[Row]]:
    """Return the columns, a source each, and the rows: errors, what contributes to them, stepsizes and traffic."""
    theory, simulated = state.theory, state.simulation.present
    sources = {"theory": not theory.refusal, "simulated": simulated is not None}
    columns = tuple(name for name, is_known in sources.items() if is_known)
    blank = ("",) * (len(columns) - 1)
    rows = []
    for metric in METRICS:
        predicted = decibels(None if theory.present is None else theory.present.mean(metric))
        cells = {"theory": predicted, "simulated": _interval(simulated, metric)}
        texts = tuple(cells[column] for column in columns)
        if state.name == "computing" or not set(texts) <= {"–"}:
            rows.append(Row(LABELS[metric].title, texts))
        if metric == "network_mse" and theory.present is not None:
            rows += [Row(title, (cell, *blank), is_minor=True) for title, cell in _details(theory.present)]
    if not theory.refusal:
        best = None if theory.best is None else theory.best.x
        rows.append(Row("largest stable stepsize", (_stepsize(theory.limit), *blank)))
        rows.append(Row("best stepsize", (_stepsize(best), *blank)))
    traffic = measure_communication(state.scenario)
    rows.append(Row("values sent per iteration", (f"{traffic.numbers_down + traffic.numbers_up:g}", *blank)))
    return columns, rows


def decibels(value: float | None, digits: int = 2) -> str:
    """Return a linear error in dB.

    Examples
    --------
    >>> decibels(0.0229), decibels(math.inf), decibels(None)
    ('−16.40 dB', '∞', '–')
    """
    if value is None or math.isnan(value):
        return "–"
    return "∞" if math.isinf(value) else f"{fixed(to_decibels(max(value, 0.0)), digits)} dB"


def _interval(point: Point | None, metric: str) -> str:
    level = None if point is None else point.levels.get(metric)
    if point is None or level is None:
        return "–"
    if point.diverged:
        return f"{point.diverged} of {point.trials} diverge"
    if not 0 < level.low <= level.high < math.inf:
        return decibels(level.mean)
    margin = 5 * math.log10(level.high / level.low)
    return f"{fixed(to_decibels(level.mean))} ± {fixed(margin)} dB"


def _details(point: Point) -> Iterator[tuple[str, str]]:
    """Yield what contributes to the network MSE, and what the worst attack would make of it."""
    total = sum(point.terms.values())
    for term, title in TERM_TITLES.items():
        if math.isfinite(total) and point.terms.get(term):
            yield title, percent(point.terms[term] / total, 0)
    if math.isfinite(point.worst):
        yield "under the worst attack of the same power", decibels(point.worst)


def _stepsize(value: float | None) -> str:
    if value is None:
        return "–"
    return "none" if not math.isfinite(value) else "near 0" if value == 0 else f"{value:.3g}"


def _instability(theory: Theory) -> str:
    """Return why the error grows without limit, and what to do."""
    assert theory.present is not None
    if theory.limit is None:
        return f"Unstable at stepsize {theory.present.x:.3g}: the error grows without limit."
    if theory.limit == 0:
        return "Unstable at every stepsize. Use fewer Byzantine clients or a weaker attack."
    best = theory.limit / 10 if theory.best is None or not theory.best.x else theory.best.x
    return (
        f"Unstable: stepsize {theory.present.x:.3g} exceeds the largest stable stepsize, {theory.limit:.3g}. "
        f"Use {best:.3g}."
    )


def _better(state: PageState, metric: str) -> str:
    """Return what the best stepsize would give, unless it is the current one."""
    best = state.theory.best
    value = None if best is None else best.mean(metric)
    if best is None or value is None or abs(best.x / state.scenario.mean_stepsize - 1) < 0.02:
        return ""
    return f" ({decibels(value, 1)} at its best stepsize, {best.x:.3g})"


def _full(state: PageState, metric: str) -> str:
    """Return what sharing all parameters gives at its best stepsize."""
    best = state.theory.full_best
    value = None if best is None else best.mean(metric)
    if best is None or value is None or state.scenario.num_shared == state.scenario.dimension:
        return ""
    return f"; sharing all gives {decibels(value, 1)} at its best stepsize, {best.x:.3g}"


def _simulated(text: str, state: PageState, metric: str) -> str:
    """Return what simulation shows."""
    point, separator = state.simulation.present, "" if text.endswith(".") else ":"
    if point is None:
        return f"{text}{separator} {'simulating …' if state.simulating else 'not simulated yet.'}"
    return f"{text}{separator} {_interval(point, metric)} in {point.trials} simulated trials."
