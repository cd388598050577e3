"""The claims of the paper that its figures are to show, each checked against our numbers."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from psofed.common.types import FloatArray
from psofed.paper.cost_claims import cost_claims
from psofed.paper.curves import STEPSIZES, CurvesFigure
from psofed.paper.figures import load_figure
from psofed.paper.model import FigureData, FigureSeries
from psofed.paper.predictions import best_stepsize
from psofed.paper.verdict import Check, Claim, DecibelDifference, paired_difference
from psofed.scenario import UPLINKS, Scenario
from psofed.scenario.changes import with_values

Figures = dict[str, FigureData]
Shown = tuple[str, ...]  # the figures of a claim that are there

# The source of a claim that is ours.
NOT_IN_PAPER = "not in the paper"

THEORY_FIGURES = ("fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8")

# In dB: what nobody sees in a printed figure, what a reader would call agreement, and what he would call alike.
INVISIBLE, CLOSE, SIMILAR = 0.05, 0.1, 0.2


def check_claims(figures: Figures) -> list[Claim]:
    """Return every claim that some of its figures are there for."""
    found: list[Claim] = []
    for names, make in _CLAIMS:
        if shown := tuple(name for name in names if name in figures):
            found += make(figures, shown)
    return found


def _fig1_claims(figures: Figures, shown: Shown) -> Iterator[Claim]:
    rivals = {series.label: series for series in figures["fig1"].select(kind="simulation", uplink="same")}
    ours = rivals.pop("PSO-Fed")
    above = {
        label: dict(zip(map(int, ours.x), _differences(rival, ours), strict=True))
        for label, rival in rivals.items()
    }
    yield Claim(
        "PSO-Fed is best for every number of Byzantine clients",
        "experiment 1", shown,
        f"no rival is below PSO-Fed by more than {SIMILAR} dB (and two paired standard errors)",
        tuple(
            Check({"rival": label, "|S_B|": count}, not is_clearly_below(d), d.after("rival above PSO-Fed by"),
                  d.decibels)
            for label, differences in above.items() for count, d in differences.items()
        ),
    )  # fmt: skip
    yield Claim(
        "Without an attack, Online-Fed and PSO-Fed perform alike",
        "experiment 1", shown, f"test MSE equal within {SIMILAR} dB",
        (_near({"|S_B|": 0}, above["Online-Fed"][0], SIMILAR, "Online-Fed above PSO-Fed by"),),
    )  # fmt: skip
    yield Claim(
        "Online-Fed deteriorates more than PSO-Fed as Byzantine clients are added",
        "experiment 1", shown, "its distance to PSO-Fed grows from each number of Byzantine clients to the next",
        tuple(_grows_apart(rivals["Online-Fed"], ours)),
    )  # fmt: skip
    yield Claim(
        "CS-Fed performs closely to PSO-Fed", "experiment 1", shown, "test MSE within 0.5 dB",
        tuple(_near({"|S_B|": b}, d, 0.5, "CS-Fed above PSO-Fed by") for b, d in above["CS-Fed"].items()),
    )  # fmt: skip


# Claims that every simulated point lies above the one before, by figure: the statement, and where it stands.
_GROWTH = {
    "fig2": ("Sharing more parameters raises the MSE", "experiment 2"),
    "fig3": ("A stronger attack raises the MSE", "experiment 3"),
    "fig4": ("A more frequent attack raises the MSE", "experiment 5"),
}
# Claims that of two curves the second lies above the first under attack: statement, source, criterion, words.
_ORDER = {
    "fig3": ("More Byzantine clients raise the MSE", "experiment 3",
             "15 Byzantine clients are significantly above 5 (paired)", "15 clients above 5 by"),
    "fig5": ("Partial sharing makes the fleet more resilient: under attack, M = 1 is better than M = 5",
             "experiment 4", "M = 5 is significantly above M = 1 (paired)", "M = 5 above M = 1 by"),
}  # fmt: skip
_RISING = "each simulated point is significantly above the one before (paired)"


def _growth_claims(figures: Figures, shown: Shown) -> Iterator[Claim]:
    for name in shown:
        data = figures[name]
        checks = [check for series in data.select(kind="simulation") for check in _rises(data, series)]
        yield Claim(*_GROWTH[name], (name,), _RISING, tuple(checks))


def _order_claims(figures: Figures, shown: Shown) -> Iterator[Claim]:
    for name in shown:
        data, (statement, source, criterion, words) = figures[name], _ORDER[name]
        symbol = data.x_label.split()[-1]
        checks = []
        for uplink in UPLINKS:
            few, many = data.select(kind="simulation", uplink=uplink)
            for x, difference in list(zip(few.x, _differences(many, few), strict=True))[1:]:
                checks.append(_positive({"uplink": uplink, symbol: float(x)}, difference, words))
        yield Claim(statement, source, (name,), criterion, tuple(checks))


def _product_claim(figures: Figures, shown: Shown) -> Iterator[Claim]:
    """Pairs of points with the same product of Byzantine clients, attack variance and probability."""
    checks = []
    for name, uplink in itertools.product(shown, UPLINKS):
        few, many = figures[name].select(kind="simulation", uplink=uplink)
        exact_few, exact_many = figures[name].select(kind="exact-theory", uplink=uplink)
        for i, j in _equal_products(few.x, 5, many.x, 15):
            difference = paired_difference(_trials(many)[j], _trials(few)[i])
            exact = DecibelDifference(float(exact_many.y_db[j] - exact_few.y_db[i]))
            case = {"figure": name, "uplink": uplink, "product": round(float(5 * few.x[i]), 6)}
            check = _near(case, difference, INVISIBLE, "15 clients above 5 by")
            words = f"{check.finding}; {exact.after('exact theory: above by')}"
            checks.append(replace(check, finding=words))
    yield Claim(
        "Equal products of Byzantine clients and attack strength, α₁β₁ = α₂β₂, give equal MSE",
        "experiment 3", shown, f"MSE equal within {INVISIBLE} dB", tuple(checks),
    )  # fmt: skip


def _theory_claims(figures: Figures, shown: Shown) -> Iterator[Claim]:
    theories = (("paper-theory", "The paper's theory", "experiments 2 to 8"),
                ("exact-theory", "The exact theory (ours)", NOT_IN_PAPER))  # fmt: skip
    systems = (("same", "of the paper's equations"), ("redrawn", "with the upload set redrawn"))
    for (kind, theory, source), (uplink, system) in itertools.product(theories, systems):
        checks = [
            check
            for name in shown
            for curve in _curves(figures[name])
            for check in _fits(figures[name], uplink, kind, curve)
        ]
        criterion = f"within {CLOSE} dB of the simulation, or 3.5 standard errors"
        yield Claim(f"{theory} predicts the MSE {system}", source, shown, criterion, tuple(checks))


def _stepsize_claims(figures: Figures, shown: Shown) -> Iterator[Claim]:
    quiet, interior, near = [], [], []
    for name in shown:
        data = figures[name]
        for series in data.select(kind="simulation"):
            if series.curve == 0:  # no attack
                quiet += _rises(data, series, {"figure": name})
                continue
            lowest, trials = int(np.argmin(series.y)), _trials(series)
            case = {"figure": name, "uplink": series.uplink, "curve": series.label}
            ends = [paired_difference(trials[end], trials[lowest]) for end in (0, -1)]
            finding = (
                f"lowest at μ = {series.x[lowest]}; {ends[0].after('μ = 0.01 above it by')}, "
                f"{ends[1].after('μ = 0.2 above it by')}"
            )
            weakest = min(end.decibels for end in ends)
            interior.append(Check(case, all(end.is_positive for end in ends), finding, weakest))
        near += [check for check in _optima(data) if check not in near]
    yield Claim(
        "Without an attack, a larger stepsize is worse", "experiments 6 and 7", shown,
        _RISING, tuple(quiet),
    )  # fmt: skip
    yield Claim(
        "Under attack there is a best stepsize: the MSE first falls, then rises", "experiments 6 and 7", shown,
        "both ends of the stepsize axis are significantly above the lowest point (paired)", tuple(interior),
    )  # fmt: skip
    yield Claim(
        "The best stepsize is about 0.03", "experiments 6 and 7", shown,
        "of the points of the stepsize axis, 0.03 is the nearest to the minimiser of the predicted MSE", tuple(near),
    )  # fmt: skip


def _approximation_claim(figures: Figures, shown: Shown) -> Iterator[Claim]:
    data = figures["fig8"]
    checks = []
    for curve in _curves(data):
        full, small = data.select(kind="paper-theory", curve=curve)
        for x, distance in zip(full.x, small.y_db - full.y_db, strict=True):
            case = {"μ": float(x), "curve": full.label}
            words = "approximation above the full theory by"
            checks.append(_near(case, DecibelDifference(float(distance)), CLOSE, words))
    yield Claim(
        "The small-stepsize approximation does not hurt the prediction (the paper: if μ is small enough)",
        "experiment 8", shown, f"paper's theory with and without it within {CLOSE} dB", tuple(checks),
    )  # fmt: skip


def _term_claims(figures: Figures, shown: Shown) -> Iterator[Claim]:
    data = figures["fig9"]
    attack_share, data_share, total = [], [], []
    for uplink in UPLINKS:
        data_term, *attacks = data.select(kind="simulation", uplink=uplink)
        data_share += _rises(data, data_term, falling=True)
        for attack in attacks:
            attack_share += _rises(data, attack)
            both = _trials(attack) + _trials(data_term)
            difference = paired_difference(both[-1], both[0])
            case = {"uplink": uplink, "term": attack.label}
            total.append(_positive(case, difference, "E_ω + E_φ at M = 5 above M = 1 by"))
    for statement, criterion, checks in (
        ("E_ω, the attack's share, rises with M", _RISING, attack_share),
        ("E_φ, the data's share, falls with M", _RISING.replace("above", "below"), data_share),
        ("Partial sharing lowers E_ω by more than it raises E_φ",
         "their sum is significantly lower at M = 1 than at M = 5 (paired)", total),
    ):  # fmt: skip
        yield Claim(statement, "experiment 9", shown, criterion, tuple(checks))


# Which figures claims are checked on; some of them are enough.
_CLAIMS: tuple[tuple[Iterable[str], Callable[[Figures, Shown], Iterator[Claim]]], ...] = (
    (("fig1",), _fig1_claims),
    (("fig1",), cost_claims),
    (_GROWTH, _growth_claims),
    (_ORDER, _order_claims),
    (("fig3", "fig4"), _product_claim),
    (THEORY_FIGURES, _theory_claims),
    (("fig6", "fig7"), _stepsize_claims),
    (("fig8",), _approximation_claim),
    (("fig9",), _term_claims),
)


def is_clearly_below(difference: DecibelDifference) -> bool:
    """Whether a rival is better than PSO-Fed by more than what a reader would call alike, and by more than chance."""
    return difference.decibels < -max(SIMILAR, 2 * difference.standard_error)


def _trials(series: FigureSeries) -> FloatArray:
    assert series.trials is not None
    return series.trials


def _differences(first: FigureSeries, second: FigureSeries) -> list[DecibelDifference]:
    return [paired_difference(a, b) for a, b in zip(_trials(first), _trials(second), strict=True)]


def _grows_apart(upper: FigureSeries, lower: FigureSeries) -> Iterator[Check]:
    for (i, _), (j, count) in itertools.pairwise(enumerate(upper.x)):
        growth = [trials[j] / trials[i].mean() for trials in (_trials(upper), _trials(lower))]
        yield _positive({"|S_B|": int(count)}, paired_difference(*growth), "the distance grows by")


def _near(case: dict[str, Any], difference: DecibelDifference, tolerance: float, words: str) -> Check:
    return Check(case, difference.is_within(tolerance), difference.after(words), -abs(difference.decibels))


def _positive(case: dict[str, Any], difference: DecibelDifference, words: str) -> Check:
    passed = True if difference.is_positive else False if difference.is_negative else None
    return Check(case, passed, difference.after(words), difference.decibels)


def _rises(
    data: FigureData, series: FigureSeries, extra: dict[str, Any] | None = None, falling: bool = False
) -> list[Check]:
    name = data.x_label.split()[-1]
    checks = []
    for (i, a), (j, b) in itertools.pairwise(enumerate(series.x)):
        first, second = (i, j) if falling else (j, i)
        difference = paired_difference(_trials(series)[first], _trials(series)[second])
        case = {**(extra or {}), "uplink": series.uplink, "curve": series.label, name: float(b)}
        word = "falls" if falling else "rises"
        checks.append(_positive(case, difference, f"from {name} = {a:g} to {b:g} it {word} by"))
    return checks


def _curves(data: FigureData) -> Iterable[int]:
    return sorted({series.curve for series in data.select(kind="simulation")})


def _fits(data: FigureData, uplink: str, kind: str, curve: int) -> Iterator[Check]:
    simulation = data.select(kind="simulation", uplink=uplink, curve=curve)[0]
    theory = next(series for series in data.panel(uplink) if series.kind == kind and series.curve == curve)
    error = simulation.standard_error_db
    assert error is not None
    plan = load_figure(data.name)
    assert isinstance(plan, CurvesFigure)
    curve_value = plan.curve_axis.values[curve][0]
    for x, distance, spread in zip(plan.x_axis.labels, theory.y_db - simulation.y_db, error, strict=True):
        difference = DecibelDifference(float(distance), float(spread))
        scenario = with_values(plan.base, {plan.curve_axis.name: curve_value, plan.x_axis.name: x})
        case = {"M": scenario.num_shared, "μ": scenario.common_stepsize, "|S_B| p_a σ_B²": _load(scenario)}
        passed = abs(difference.decibels) <= max(CLOSE, 3.5 * difference.standard_error)
        check = _near(case, difference, CLOSE, "theory above the simulation by")
        yield replace(check, passed=passed)


def _load(scenario: Scenario) -> float:
    """Return |S_B| p_a σ_B², to which all that the attack adds is proportional."""
    attack = scenario.attack
    return 0.0 if attack is None else round(attack.num_byzantine * attack.probability * attack.strength, 6)


def _equal_products(few: Any, few_count: int, many: Any, many_count: int) -> list[tuple[int, int]]:
    return [
        (i, j)
        for i, a in enumerate(few)
        for j, b in enumerate(many)
        if a > 0 and np.isclose(few_count * a, many_count * b)
    ]


def _optima(data: FigureData) -> Iterator[Check]:
    plan = load_figure(data.name)
    assert isinstance(plan, CurvesFigure)
    axis = plan.curve_axis
    for theory, uplink in (("exact", "same"), ("exact", "redrawn"), ("paper", "redrawn")):
        for value in axis.values[1:]:  # the first is no attack
            scenario = with_values(plan.base, {axis.name: value[0], "uplink": uplink})
            best = best_stepsize(scenario, theory, STEPSIZES)
            case = {"theory": theory, "uplink": uplink, "|S_B| p_a σ_B²": _load(scenario)}
            nearest = min(STEPSIZES, key=lambda point: abs(point - best))
            yield Check(case, nearest == 0.03, f"μ* = {best:.4f}", -abs(best - 0.03))
