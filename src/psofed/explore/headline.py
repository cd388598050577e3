"""Sentences and numbers above the charts, made from the answers so far.

Every number in them is computed; a cause is stated only if it is known.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from psofed.common.numbers import to_decibels
from psofed.explore.answers import Dot, Optimum, Simulation, Theory
from psofed.explore.sides import Side
from psofed.explore.theory import values_sent
from psofed.render.numbers import fixed
from psofed.results import METRIC_TITLES
from psofed.scenario import Scenario
from psofed.scenario.describe import describe_stepsize

PATIENCE = 1.5  # seconds after which the page says that theory is still computing
STOPPED = "Theory was stopped."


@dataclass(frozen=True)
class Line:
    """A sentence above the charts; `slow` ones come with a button that stops the theory."""

    text: str
    side: str = ""
    trouble: bool = False
    slow: bool = False


@dataclass(frozen=True)
class TileValue:
    """One number of a tile; `stale` if it belongs to earlier settings."""

    side: str
    key: str
    text: str
    stale: bool = False


@dataclass(frozen=True)
class Tile:
    """A titled number, for each side, and how they compare; `relation` names the comparison."""

    title: str
    values: tuple[TileValue, ...]
    relation: str = ""


@dataclass(frozen=True)
class SimulationProgress:
    """State of the simulation button, its bar and its text."""

    running: bool
    fraction: float
    text: str


@dataclass(frozen=True)
class Headline:
    """Everything above the charts; `stale` until the current settings have a number.

    `tuned` names the sides whose best stepsize is known.
    """

    lines: tuple[Line, ...]
    tiles: tuple[Tile, ...]
    simulation: SimulationProgress
    stale: bool
    tuned: tuple[str, ...] = ()


def headline(sides: Mapping[str, Side], metric: str, refused: str = "") -> Headline:
    """Return sentences, tiles and progress; `refused` says why a link was not followed."""
    lines = [Line(refused, trouble=True)] if refused else []
    for name, side in sides.items():
        lines += _lines(name, side, metric)
    waiting = any(side.theory.point is None and not side.theory.refusal for side in sides.values())
    tuned = tuple(name for name, side in sides.items() if side.theory.best and side.theory.best.point)
    return Headline(tuple(lines), tiles(sides, metric), _progress(sides), waiting, tuned)


def sentence(scenario: Scenario, theory: Theory, metric: str = "network_mse") -> str:
    """Return what theory predicts for the current settings, and for sharing all parameters.

    Examples
    --------
    >>> from psofed.explore.answers import Point
    >>> fleet = Scenario(num_clients=50, dimension=5, stepsize=0.0766)
    >>> theory = Theory(Point(0.0766, 0.0229, 0.1, 0.1), full=Point(0.0766, 0.083, 0.1, 0.1))
    >>> sentence(fleet, theory)
    'Sharing 1 of 5 parameters with stepsize 0.077 gives −16.4 dB; sharing all gives −10.8 dB.'
    """
    what = _settings(scenario)
    if theory.point is None:
        return f"{what} …"
    value = theory.point.value(metric)
    if not scenario.data.stream.is_independent:
        what = f"Under the independence assumption, {what[:1].lower()}{what[1:]}"
    if math.isnan(value):
        return f"{what}: theory does not cover the {METRIC_TITLES[metric]} of this model."
    text = f"{what} {_gives(value)}"
    if scenario.num_shared == scenario.dimension:
        limit = _divergence(theory.full_most_byzantine, scenario, value)
        return f"{text}{limit}{_better(theory.best, scenario, metric)}."
    text += _divergence(theory.most_byzantine, scenario, value)
    if theory.full is None:
        return f"{text}; sharing all …"
    full = theory.full.value(metric)
    if math.isnan(full):  # not covered
        return f"{text}."
    better = _better(theory.full_best, scenario, metric)
    return f"{text}; sharing all {_gives(full)}{better}{_divergence(theory.full_most_byzantine, scenario, full)}."


def simulated_sentence(
    scenario: Scenario, simulation: Simulation, metric: str = "network_mse", running: bool = True
) -> str:
    """Return what simulation shows, for settings without theory; `running` if more will come."""
    dot, what = simulation.present, _settings(scenario)
    if dot is None:
        return f"{what}: {'simulating …' if running else 'not simulated yet.'}"
    text = f"{what} {_simulated(dot, metric)} in {dot.trials} simulated trials"
    full = dict(simulation.shared).get(scenario.dimension)
    if scenario.num_shared == scenario.dimension or full is None:
        return f"{text}."
    return f"{text}; sharing all {_simulated(full, metric)}."


def reason_for_delay(scenario: Scenario) -> str:
    """Return why theory takes longer for a scenario than for most; empty without a known reason.

    Examples
    --------
    >>> from psofed.scenario import Data
    >>> reason_for_delay(Scenario(num_clients=50, dimension=5, data=Data(input_correlation=0.5)))
    'with correlated inputs it needs a 5 × 5 matrix per pair of clients'
    """
    size, data = scenario.dimension, scenario.data
    if (
        data.rows is not None
        or data.input_correlation
        or data.covariances is not None
        or not scenario.is_linear
    ):
        return f"with correlated inputs it needs a {size} × {size} matrix per pair of clients"
    if scenario.selection.pattern.kind == "round-robin":
        offsets = "" if scenario.selection.coordinated else ", for many draws of the clients' offsets"
        return f"with round-robin masks it follows every step of the cycle{offsets}"
    return ""


def tiles(sides: Mapping[str, Side], metric: str) -> tuple[Tile, ...]:
    """Return the tiles: each number for every side, and their difference or ratio if there are two sides."""

    def tile(key: str, title: str, number: Callable[[Side], float | None], show: Callable[[float | None], str],
             compare: Callable[[float | None, float | None], str], is_known: Callable[[Theory], bool] | None = None,
             ) -> Tile:  # fmt: skip
        values = []
        for name, side in sides.items():
            value = number(side)
            text = (
                "no theory" if value is None and (side.theory.refusal or side.theory.error) else show(value)
            )
            values.append(TileValue(name, key, text, is_known is not None and not is_known(side.theory)))
        if len(sides) == 2:
            first, second = (number(side) for side in sides.values())
            values.append(TileValue("difference", key, compare(first, second)))
        return Tile(title, tuple(values), "B − A" if compare is difference else "B / A")

    two_digits = partial(decibels, digits=2)
    made = [
        tile(key, title, partial(_predicted, metric=key), two_digits, difference,
             lambda theory: theory.point is not None)
        for key, title in METRIC_TITLES.items()
    ]  # fmt: skip
    if any(side.simulation.present for side in sides.values()):
        made.append(
            tile("simulated", "simulated", partial(_simulated_mean, metric=metric), two_digits, difference)
        )
    made += [
        tile("limit", "largest stable stepsize", lambda side: side.drawn.limit, _plain, ratio,
             lambda theory: theory.limit is not None),
        tile("best_stepsize", "best stepsize", _best_stepsize, _best, ratio,
             lambda theory: theory.best is not None),
        tile("values_sent", "values sent per iteration", lambda side: values_sent(side.scenario),
             lambda value: f"{value:g}", ratio),
    ]  # fmt: skip
    return tuple(made)


def decibels(value: float | None, digits: int = 1) -> str:
    """Return a linear error in dB.

    Examples
    --------
    >>> decibels(0.0229), decibels(math.inf), decibels(None)
    ('−16.4 dB', 'diverges', '…')
    """
    if value is None or math.isnan(value):
        return "…"
    if math.isinf(value):
        return "diverges"
    return "none" if value <= 0 else f"{fixed(to_decibels(value), digits)} dB"


def difference(first: float | None, second: float | None) -> str:
    """Return by how much the second error exceeds the first, in dB.

    Examples
    --------
    >>> difference(0.01, 0.02), difference(0.01, math.inf)
    ('+3.0 dB', 'diverges')
    """
    if first is None or second is None or min(first, second) <= 0:
        return "…"
    if math.isinf(first) or math.isinf(second):
        return "both diverge" if first == second else "diverges" if math.isinf(second) else "converges"
    return f"{fixed(to_decibels(second / first), 1, signed=True)} dB"


def ratio(first: float | None, second: float | None) -> str:
    """Return the second number as a multiple of the first.

    Examples
    --------
    >>> ratio(2.0, 3.0), ratio(None, 3.0)
    ('1.50', '…')
    """
    if not first or second is None or not (math.isfinite(first) and math.isfinite(second)):
        return "…"
    return f"{second / first:.2f}"


# Sentences


def _lines(name: str, side: Side, metric: str) -> list[Line]:
    theory, simulation = side.theory, side.simulation
    lines = []
    if theory.refusal:
        if not simulation.error:
            text = simulated_sentence(side.scenario, simulation, metric, side.simulating)
            lines.append(Line(text, name))
        lines.append(Line(f"Simulated only: {theory.refusal}.", name))
    elif not theory.error or theory.point is not None:
        lines.append(Line(sentence(side.scenario, theory, metric), name))
    if reason := side.answers().instability():
        lines.append(Line(reason, name))
    if theory.error:
        lines.append(Line(theory.error, name, trouble=theory.error != STOPPED))
    if simulation.error:
        lines.append(Line(simulation.error, name, trouble=True))
    seconds = time.monotonic() - side.asked_at
    if not theory.finished and seconds > PATIENCE:
        what = "the headline" if theory.point is None else "finer curves"
        reason = reason_for_delay(side.scenario)
        text = f"Computing {what} from theory, {seconds:.0f} s so far{reason and ': '}{reason}."
        lines.append(Line(text, name, slow=True))
    return lines


def _settings(scenario: Scenario) -> str:
    shared, size = scenario.num_shared, scenario.dimension
    amount = f"{shared} of {size} parameters" if shared < size else f"all {size} parameters"
    one = isinstance(scenario.stepsize, float | int)
    stepsize = f"stepsize {scenario.stepsize:.2g}" if one else describe_stepsize(scenario.stepsize)
    return f"Sharing {amount} with {stepsize}"


def _gives(value: float) -> str:
    return f"gives {decibels(value)}" if math.isfinite(value) else "diverges"


def _better(best: Optimum | None, scenario: Scenario, metric: str) -> str:
    """Return what the best stepsize would give, unless it is the current one."""
    point = None if best is None else best.point
    if (
        point is None
        or math.isnan(point.value(metric))
        or abs(point.stepsize / scenario.common_stepsize - 1) < 0.02
    ):
        return ""
    return f" ({decibels(point.value(metric))} at its best stepsize, {point.stepsize:.3g})"


def _divergence(most: int | None, scenario: Scenario, value: float) -> str:
    """Return from how many Byzantine clients on a run diverges; nothing if it never does."""
    if most is None or most >= scenario.num_clients:
        return ""
    if most < 0:
        return " even without Byzantine clients"
    joint = " and diverges" if math.isfinite(value) else ""
    return f"{joint} with {most + 1} or more Byzantine clients"


def _simulated(dot: Dot, metric: str) -> str:
    if dot.diverged:
        return f"diverges in {dot.diverged} of {dot.trials} trials"
    found = dot.metrics[metric]
    if not (math.isfinite(found.low) and found.low > 0):
        return f"gives {decibels(found.mean)}"
    return f"gives {decibels(found.mean)} ± {5 * math.log10(found.high / found.low):.2f}"


def _progress(sides: Mapping[str, Side]) -> SimulationProgress:
    running = [side for side in sides.values() if side.simulating]
    trials = [side.simulation.present.trials for side in sides.values() if side.simulation.present]
    text = f"{min(trials)} trials simulated" if trials else "starting …" if running else ""
    fraction = sum(side.simulation.progress for side in running) / max(len(running), 1)
    return SimulationProgress(bool(running), round(fraction, 3), text)


# Numbers of tiles


def _predicted(side: Side, metric: str) -> float | None:
    return None if side.drawn.point is None else side.drawn.point.value(metric)


def _simulated_mean(side: Side, metric: str) -> float | None:
    return None if side.simulation.present is None else side.simulation.present.mean(metric)


def _best_stepsize(side: Side) -> float | None:
    """Return the best stepsize, 0 if a smaller one is always better."""
    best = side.drawn.best
    return None if best is None else 0.0 if best.point is None else best.point.stepsize


def _plain(value: float | None) -> str:
    if value is None:
        return "…"
    return "none" if not math.isfinite(value) else f"{value:.3g}"


def _best(value: float | None) -> str:
    return "near 0" if value == 0.0 else _plain(value)
