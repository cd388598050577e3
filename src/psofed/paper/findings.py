"""Findings of the figures in a few sentences; every word and number follows from the results."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from psofed.paper.claims import SIMILAR, THEORY_FIGURES, Figures, Shown, is_clearly_below
from psofed.paper.curves import STEPSIZES, CurvesFigure
from psofed.paper.figures import load_figure
from psofed.paper.model import FigureData, FigureSeries
from psofed.paper.predictions import best_stepsize
from psofed.paper.published import published_table
from psofed.paper.typeset import decibels
from psofed.paper.verdict import DecibelDifference, paired_difference
from psofed.render.numbers import listed
from psofed.scenario import UPLINKS
from psofed.scenario.changes import with_values


@dataclass(frozen=True)
class Finding:
    """One sentence to remember, what is behind it, and the figures that show it."""

    title: str
    text: str
    figures: tuple[str, ...]


def answer(figures: Figures) -> str:
    """Answer the paper's question, whether sharing less keeps the fleet accurate when clients are Byzantine."""
    if "fig1" not in figures:
        first = "".join(f"{finding.title}. " for finding in find_findings(figures, 1))
        return f"{first}This is {_named(figures)} only; `psofed reproduce fig1` compares PSO-Fed with its rivals."
    data = figures["fig1"]
    ours, full = _simulated(data, "PSO-Fed"), _simulated(data, "Online-Fed")
    difference = _difference(full, ours, -1)
    count, clients = int(ours.x[-1]), data.base.num_clients
    shared, parameters = data.base.num_shared, data.base.dimension
    verdict = (
        "Yes." if difference.is_positive else "No." if difference.is_negative else "It makes no difference."
    )
    return (
        f"{verdict} With {count} of {clients} clients Byzantine, sharing {shared} of {parameters} parameters (PSO-Fed) "
        f"has a test MSE of {decibels(float(ours.y_db[-1]))}. Online-Fed shares all of them {parameters // shared} "
        f"times less often, on the same traffic, and comes to {decibels(float(full.y_db[-1]))}: "
        f"{_times(difference)} the error."
    )


def find_findings(figures: Figures, most: int = 3) -> list[Finding]:
    """Return the findings that matter most among those the figures can show."""
    present = [(tuple(name for name in names if name in figures), make) for names, make in _FINDINGS]
    return [make(figures, shown) for shown, make in present if shown][:most]


def _rivals(figures: Figures, shown: Shown) -> Finding:
    data = figures["fig1"]
    ours, fitted = _simulated(data, "PSO-Fed"), _simulated(data, "SignSGD")
    beaten = {}
    for rival in data.select(kind="simulation", uplink="same"):
        differences = {int(x): _difference(rival, ours, place) for place, x in enumerate(ours.x)}
        below = {
            count: difference for count, difference in differences.items() if is_clearly_below(difference)
        }
        if below:
            beaten[rival.label] = f"{rival.label}, {_where_below(below, list(differences))}"
    printed = [curve["curve"] for curve in published_table()["fig1"] if curve["curve"] in beaten]
    cases = "; ".join(beaten.values())
    if not beaten:
        title = "No rival beats PSO-Fed"
        text = f"None is more than {SIMILAR} dB below it, for any number of Byzantine clients."
    elif printed:
        title, text = f"PSO-Fed is beaten by {listed(printed)}", f"{cases}."
    else:
        title = "None of the printed rivals beats PSO-Fed, but SignSGD with plain signs does"
        text = (
            "The paper does not say which SignSGD it ran. Fitted to its figure, SignSGD is "
            f"{decibels(_difference(fitted, ours, -1).decibels)} above PSO-Fed at {ours.x[-1]:g} Byzantine clients. "
            f"Below PSO-Fed are: {cases}."
        )
    return Finding(title, text, shown)


def _theory(figures: Figures, shown: Shown) -> Finding:
    data = [figures[name] for name in shown]
    exact = max(abs(_worst_misfit(data, "exact-theory", uplink)) for uplink in UPLINKS)
    paper, redrawn = (_worst_misfit(data, "paper-theory", uplink) for uplink in UPLINKS)
    side = "too low" if paper < 0 else "too high"
    return Finding(
        f"For its own equations the paper’s theory is up to {decibels(abs(paper))} {side}; the exact theory is within "
        f"{decibels(exact, 2)}",
        "The paper averages separately over who downloads and who uploads. So its theory describes another system, in "
        f"which the uploading clients are drawn independently; there it is within {decibels(abs(redrawn), 2)}.",
        shown,
    )


def _sharing(figures: Figures, shown: Shown) -> Finding:
    data = figures["fig2"]
    label = list(data.curve_labels.values())[-1]
    by_uplink = {}
    for uplink in data.panels:
        series = data.select(kind="simulation", uplink=uplink, label=label)[0]
        assert series.trials is not None
        by_uplink[uplink] = paired_difference(series.trials[-1], series.trials[0])
    first, last = int(series.x[0]), int(series.x[-1])
    saved, redrawn = by_uplink["same"], by_uplink["redrawn"]
    word = "lowers" if saved.decibels > 0 else "raises"
    return Finding(
        f"Sharing {first} of {data.base.dimension} parameters instead of {last} {word} the error by "
        f"{decibels(abs(saved.decibels))}",
        f"With {label}, for the paper’s equations, and with {first}/{last} of the traffic. If the uploading clients "
        f"are drawn independently, as in the paper’s analysis, M = {last} is {decibels(redrawn.decibels)} above "
        f"M = {first}.",
        shown,
    )


def _stepsize(figures: Figures, shown: Shown) -> Finding:
    best = {}
    for name in shown:
        plan = load_figure(name)
        for series in figures[name].select(kind="simulation", uplink="same")[1:]:  # the first is no attack
            assert isinstance(plan, CurvesFigure)
            value = plan.curve_axis.values[series.curve][0]
            scenario = with_values(plan.base, {plan.curve_axis.name: value})
            best[series.label] = best_stepsize(scenario, "exact", STEPSIZES)
    low, high = min(best, key=lambda label: best[label]), max(best, key=lambda label: best[label])
    return Finding(
        f"The best stepsize depends on the attack: from {best[low]:.3f} to {best[high]:.3f}",
        f"The paper says about 0.03. Without an attack, small is best; with {low} it is {best[low]:.3f}, with {high} "
        f"{best[high]:.3f} (exact theory, the paper’s equations).",
        shown,
    )


def _terms(figures: Figures, shown: Shown) -> Finding:
    data = figures["fig9"]
    quiet, *attacks = data.select(kind="simulation", uplink="same")
    attack = attacks[-1]
    gain = float(quiet.y_db[0] - quiet.y_db[-1])
    loss = float(attack.y_db[-1] - attack.y_db[0])
    return Finding(
        f"From M = {quiet.x[0]:g} to {quiet.x[-1]:g} the attack’s share grows by {decibels(loss)}, the data’s falls by "
        f"{decibels(gain)}",
        f"{attack.label} against {quiet.label}, for the paper’s equations.",
        shown,
    )


# The most important first; which figures show each, of which some are enough.
_FINDINGS: tuple[tuple[Shown, Callable[[Figures, Shown], Finding]], ...] = (
    (("fig2",), _sharing),
    (THEORY_FIGURES, _theory),
    (("fig1",), _rivals),
    (("fig6", "fig7"), _stepsize),
    (("fig9",), _terms),
)


def _worst_misfit(figures: Iterable[FigureData], kind: str, uplink: str) -> float:
    """Return how far a theory is above the simulation where it is farthest from it, in dB."""
    return max((data.misfit_db(kind, uplink) or 0.0 for data in figures), key=abs)


def _named(figures: Figures) -> str:
    return listed([name.replace("fig", "figure ") for name in figures], most=9)


def _simulated(data: FigureData, label: str) -> FigureSeries:
    return data.select(kind="simulation", uplink="same", label=label)[0]


def _difference(first: FigureSeries, second: FigureSeries, place: int) -> DecibelDifference:
    assert first.trials is not None
    assert second.trials is not None
    return paired_difference(first.trials[place], second.trials[place])


def _where_below(below: dict[int, DecibelDifference], counts: list[int]) -> str:
    last, least = max(below), min(below)
    amount = decibels(-below[last].decibels)
    if last == least:
        return f"by {amount} at {last}"
    if list(below) == counts[counts.index(least) :]:
        return f"from {least} on, by {amount} at {last}"
    return f"at {listed([str(count) for count in below], most=20)}, by {amount} at {last}"


def _times(difference: DecibelDifference) -> str:
    factor = 10 ** (difference.decibels / 10)
    return f"{factor:.1f} times"
