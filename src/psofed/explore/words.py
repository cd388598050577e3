"""The sentence and the table about the answers so far.

Every number in them is computed. A cause is stated only if it is known.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from psofed.common.numbers import to_decibels
from psofed.explore.answers import METRICS, Point, Simulation, Theory
from psofed.render.numbers import fixed, sentence_case
from psofed.results.metrics import LABELS
from psofed.results.traffic import measure_communication
from psofed.scenario import Scenario
from psofed.scenario.describe import describe_stepsize
from psofed.theory.reports import TERM_TITLES


@dataclass
class Side:
    """One of the two scenarios on the page: what was typed, what is valid of it, and what is known about it.

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
    def state(self) -> str:
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


def sentence(side: Side, metric: str) -> str:
    """Return the answer in a sentence.

    Examples
    --------
    >>> from psofed.explore.answers import ErrorLevel
    >>> fleet = Scenario(num_clients=50, dimension=5, stepsize=0.077)
    >>> present, best = (Point(mu, {"network_mse": ErrorLevel(mse)}) for mu, mse in ((0.077, 0.0229), (0.2, 0.068)))
    >>> sentence(Side({}, fleet, theory=Theory(present, full_best=best)), "network_mse")[46:]
    'gives −16.4 dB; sharing all gives −11.7 dB at its best stepsize, 0.2.'
    """
    scenario, theory, simulation = side.scenario, side.theory, side.simulation
    shared, size = scenario.num_shared, scenario.dimension
    amount = f"{shared} of {size} parameters" if shared < size else f"all {size} parameters"
    text = f"Sharing {amount} with {describe_stepsize(scenario.stepsize)}"
    if side.state == "unstable":
        return _instability(theory)
    if theory.present is None:
        return _simulated(text, side, metric) if theory.refusal or simulation.present else f"{text} …"
    value = theory.present.mean(metric)
    if value is None:
        text = f"{text}: the theory does not cover the {LABELS[metric].title} here."
        return _simulated(text, side, metric) if simulation.present else text
    if not scenario.data.stream.is_independent:
        text = f"Under the independence assumption, {text[:1].lower()}{text[1:]}"
    return f"{text} gives {decibels(value, 1)}{_better(side, metric)}{_full(side, metric)}."


def note(side: Side) -> str:
    """Return what the page is doing about the answer, or what the user can do."""
    theory, simulation = side.theory, side.simulation
    if theory.error or simulation.error:
        return theory.error or simulation.error
    texts = []
    if theory.refusal:
        texts.append(f"Simulation only: {theory.refusal}.")
    if side.simulating:
        trials = 0 if simulation.present is None else simulation.present.trials
        texts.append(
            f"Simulating, {_percent(simulation.progress)}" + (f": {trials} trials so far …" if trials else " …")
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


@dataclass(frozen=True)
class ErrorTable:
    """The numbers: a column per source for one side, or per side and for their difference."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def table(sides: Mapping[str, Side]) -> ErrorTable:
    """Return errors, what contributes to them, stepsizes and traffic."""
    values = tuple(sides.values())
    columns, cells_of = _errors(values)
    blank = ("",) * (len(columns) - len(values))
    rows = []
    for metric in METRICS:
        rows.append(Row(LABELS[metric].title, cells_of(metric)))
        if metric == "network_mse":
            rows += [Row(title, (*cells, *blank), is_minor=True) for title, cells in _details(*values)]
    rows += [Row(title, (*cells, *blank)) for title, cells in _designs(*values)]
    return ErrorTable(columns, tuple(rows))


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


def difference(first: float | None, second: float | None) -> str:
    """Return by how much the second error exceeds the first, in dB.

    Examples
    --------
    >>> difference(0.01, 0.02), difference(0.01, math.inf)
    ('+3.01 dB', '–')
    """
    if first is None or second is None or min(first, second) <= 0 or not math.isfinite(first + second):
        return "–"
    return f"{fixed(to_decibels(second / first), signed=True)} dB"


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


def _errors(sides: tuple[Side, ...]) -> tuple[tuple[str, ...], Callable[[str], tuple[str, ...]]]:
    """Return the columns, and their cells for a metric: both sides and their difference, or each source for one."""
    if len(sides) == 2:

        def compared(metric: str) -> tuple[str, ...]:
            a, b = (side.shown(metric) for side in sides)
            return decibels(a), decibels(b), difference(a, b)

        return ("A", "B", "B − A"), compared
    theory, simulated = sides[0].theory, sides[0].simulation.present
    if theory.refusal:
        return ("simulated",), lambda metric: (_interval(simulated, metric),)
    columns = ("theory",) if simulated is None else ("theory", "simulated")

    def sources(metric: str) -> tuple[str, ...]:
        predicted = decibels(None if theory.present is None else theory.present.mean(metric))
        return (predicted, _interval(simulated, metric))[: len(columns)]

    return columns, sources


def _details(*sides: Side) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield what contributes to the network MSE, and what the worst attack would make of it, for every side."""
    points = [side.theory.present or Point(0.0) for side in sides]
    shares = [_shares(point.terms) for point in points]
    for term, title in TERM_TITLES.items():
        if any(term in one for one in shares):
            yield title, tuple(_percent(one[term]) if term in one else "–" for one in shares)
    if not all(math.isnan(point.worst) for point in points):
        yield "under the worst attack of the same power", tuple(decibels(point.worst) for point in points)


def _shares(terms: Mapping[str, float]) -> dict[str, float]:
    """Return the terms of the network MSE as fractions of it; nothing where it is not finite."""
    total = sum(terms.values())
    return {term: value / total for term, value in terms.items() if value} if math.isfinite(total) else {}


def _stepsize(value: float | None) -> str:
    if value is None:
        return "–"
    return "none" if not math.isfinite(value) else "near 0" if value == 0 else f"{value:.3g}"


def values_sent(scenario: Scenario) -> float:
    """Return how many values all participants together send and receive per iteration."""
    traffic = measure_communication(scenario)
    return float(traffic.numbers_down + traffic.numbers_up)


def _designs(*sides: Side) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield stepsizes that theory recommends, and the traffic, for every side."""
    if not all(side.theory.refusal for side in sides):
        yield "largest stable stepsize", tuple(_stepsize(side.theory.limit) for side in sides)
        yield (
            "best stepsize",
            tuple(_stepsize(None if side.theory.best is None else side.theory.best.x) for side in sides),
        )
    yield "values sent per iteration", tuple(f"{values_sent(side.scenario):g}" for side in sides)


def _percent(share: float) -> str:
    return f"{fixed(100 * share, 0)} %"


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


def _better(side: Side, metric: str) -> str:
    """Return what the best stepsize would give, unless it is the current one."""
    best = side.theory.best
    value = None if best is None else best.mean(metric)
    if best is None or value is None or abs(best.x / side.scenario.mean_stepsize - 1) < 0.02:
        return ""
    return f" ({decibels(value, 1)} at its best stepsize, {best.x:.3g})"


def _full(side: Side, metric: str) -> str:
    """Return what sharing all parameters gives at its best stepsize."""
    best = side.theory.full_best
    value = None if best is None else best.mean(metric)
    if best is None or value is None or side.scenario.num_shared == side.scenario.dimension:
        return ""
    return f"; sharing all gives {decibels(value, 1)} at its best stepsize, {best.x:.3g}"


def _simulated(text: str, side: Side, metric: str) -> str:
    """Return what simulation shows."""
    point, separator = side.simulation.present, "" if text.endswith(".") else ":"
    if point is None:
        return f"{text}{separator} {'simulating …' if side.simulating else 'not simulated yet.'}"
    return f"{text}{separator} {_interval(point, metric)} in {point.trials} simulated trials."


def title_of(metric: str) -> str:
    """Return a metric's title for the chart."""
    return sentence_case(LABELS[metric].title)
