"""Findings of the resilience matrix: the worst attack on each rule, how often M = 1 helps, which trials fail.

The tables of ``docs/resilience.md`` are made here (``resilience.md`` beside the matrix's other files), so that every
figure there follows from the matrix and not from a hand.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from psofed.common.numbers import to_decibels
from psofed.paper.resilience import (
    ATTACKS,
    MODES,
    OCCASIONS,
    RULES,
    Matrix,
    Place,
    carried_away,
    make_attack,
    participants,
)
from psofed.render.numbers import fixed
from psofed.results import METRIC_TITLES, Estimate

NOTEWORTHY = 0.5
"""A difference in dB that an operator would care about, beside one that is merely significant."""

_ROUNDED = 0.05  # An interval that reaches no further than this in dB is not printed.
_FELT = 0.1  # An attack that costs less than this in dB is not named.


@dataclass(frozen=True)
class Worst:
    """The attack on uploads that does most to one design.

    Attributes
    ----------
    attack : str
        Its label; empty where no attack raises the level by as much as 0.1 dB.
    estimate : Estimate
        Of the metric.
    away : float
        The fraction of trials that it carried away.
    """

    attack: str
    estimate: Estimate
    away: float


@dataclass(frozen=True)
class Gains:
    """In how many combinations of an attack and a rule M = 1 is significantly better or worse than M = D.

    Attributes
    ----------
    total : int
        All combinations.
    better, worse : int
        Those whose simultaneous interval excludes 0.
    clearly_better, clearly_worse : int
        Those of them by more than ``NOTEWORTHY`` dB.
    """

    total: int
    better: int
    clearly_better: int
    worse: int
    clearly_worse: int


def attacks_on_uploads() -> list[str]:
    """Return the labels of all attacks that change what is uploaded, and not what is learned from."""
    made = {label: make_attack("persistent", label) for label in ATTACKS}
    return [label for label, attack in made.items() if attack is not None and not attack.poisons_samples()]


def worst_attack(
    matrix: Matrix, occasion: str, rule: str, num_shared: int, num_participants: int, metric: str
) -> Worst:
    """Return the attack on uploads with the highest typical level of a metric."""

    def level(attack: str) -> Worst:
        place = Place(occasion, attack, rule, num_shared, num_participants)
        away = float(carried_away(matrix.cell(place))["carried_away"])
        return Worst(attack, matrix.estimate(place, metric), away)

    worst = max(map(level, attacks_on_uploads()), key=lambda found: found.estimate.typical[0])
    clean = level("none").estimate.typical[0]
    if to_decibels(worst.estimate.typical[0]) - to_decibels(clean) < _FELT:
        return replace(worst, attack="")
    return worst


def count_gains(
    matrix: Matrix, occasion: str, mode: str, metric: str, rules: Iterable[str] | None = None
) -> Gains:
    """Count the attacks on uploads and rules for which sharing least is better, and worse, than sharing all."""
    gains = [
        matrix.sharing_gain(occasion, mode, attack, rule, metric)
        for attack in attacks_on_uploads()
        for rule in (RULES if rules is None else rules)
    ]
    sure = [gain.decibels for gain in gains if gain.is_significant]
    return Gains(
        len(gains),
        sum(gain > 0 for gain in sure),
        sum(gain > NOTEWORTHY for gain in sure),
        sum(gain < 0 for gain in sure),
        sum(gain < -NOTEWORTHY for gain in sure),
    )


def make_tables(matrix: Matrix) -> str:
    """Return all tables as Markdown."""
    parts = [f"Medians and means over {matrix.trials} trials of seed {matrix.sweep.grid.seed}.\n"]
    for metric in ("network_mse", "server_msd"):
        for occasion in OCCASIONS:
            title = f"### {METRIC_TITLES[metric]} in dB under the worst attack on uploads, {occasion}\n"
            parts += [title, make_worst_table(matrix, occasion, metric)]
        title = f"### Where M = {matrix.shared[0]} is better or worse in {METRIC_TITLES[metric]}\n"
        parts += [title, make_gains_table(matrix, metric)]
    parts += ["### Trials that were carried away\n", make_away_table(matrix)]
    return "\n".join(parts)


def make_worst_table(matrix: Matrix, occasion: str, metric: str) -> str:
    """Return a row for each rule and a column for each design: the worst that an attack on uploads does."""
    designs = list(dict.fromkeys((m, participants(mode, m)) for mode in MODES for m in matrix.shared))
    rows = [
        [f"`{rule}`", *(format_worst(worst_attack(matrix, occasion, rule, m, p, metric)) for m, p in designs)]
        for rule in RULES
    ]
    return _table([occasion, *(f"M = {m}, {p} participants" for m, p in designs)], rows)


def make_gains_table(matrix: Matrix, metric: str) -> str:
    """Return how often sharing least is better or worse than sharing everything."""
    rows = []
    for mode in MODES:
        for occasion in OCCASIONS:
            gains = count_gains(matrix, occasion, mode, metric)
            counts = (gains.better, gains.clearly_better, gains.worse, gains.clearly_worse)
            rows.append([mode, occasion, f"{gains.total}", *map(str, counts)])
    head = ["", "attacks", "combinations", "better", f"by over {NOTEWORTHY} dB", "worse"]
    return _table([*head, f"by over {NOTEWORTHY} dB"], rows)


def make_away_table(matrix: Matrix) -> str:
    """Return every cell in which at least one trial in twenty was carried away, with how fast those still went."""
    rows = []
    for place in matrix.places():
        found = carried_away(matrix.cell(place))
        if found["carried_away"] < 0.05:
            continue
        growth = found["growth_db"]
        rows.append([
            place.occasion, full_name(place.attack), f"`{place.aggregation}`",
            f"M = {place.num_shared}, {place.num_participants}",
            f"{100 * found['carried_away']:.0f} %", "diverged" if math.isnan(growth) else f"{_signed(growth)} dB",
        ])  # fmt: skip
    return _table(
        ["", "attack", "rule", "design, participants", "carried away", "growth in 200 iterations"], rows
    )


def format_level(estimate: Estimate, away: float = 0.0) -> str:
    """Write a level in dB with its interval: a mean, or with ~ a median; and the trials carried away.

    Examples
    --------
    >>> format_level(Estimate(0.1, 0.002, (0.096, 0.104), 0.1, (0.09, 0.11)))
    '−10.0 [−10.2, −9.8]'
    >>> format_level(Estimate(math.inf, math.nan, (math.nan, math.nan), 2.0, (1.0, 4.0)), away=0.75)
    '~+3.0 [0.0, +6.0] ↑75 %'
    """
    middle, low, high = estimate.typical
    lost = f" ↑{100 * away:.0f} %" if away >= 0.005 else ""
    if not math.isfinite(middle):
        return f"diverges{lost}"
    text = ("" if estimate.is_typical else "~") + _signed(to_decibels(middle))
    if not math.isfinite(high):
        return f"{text} [{_signed(to_decibels(low))}, ∞]{lost}"
    ends = to_decibels(low), to_decibels(high)
    if max(ends[1] - to_decibels(middle), to_decibels(middle) - ends[0]) >= _ROUNDED:
        text += f" [{_signed(ends[0])}, {_signed(ends[1])}]"
    return text + lost


def format_worst(worst: Worst) -> str:
    """Write a level, and which attack it was."""
    named = f" ({full_name(worst.attack)})" if worst.attack else ""
    return format_level(worst.estimate, worst.away) + named


def full_name(label: str) -> str:
    """Return an attack's label as it reads alone, without the row above it.

    Examples
    --------
    >>> full_name("… searched"), full_name("mimic")
    ('a little is enough, searched', 'mimic')
    """
    return label.replace("… ", "a little is enough, ")


def _signed(decibels: float) -> str:
    return fixed(decibels, 1, signed=True)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
