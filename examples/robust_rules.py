"""How much damage patient, omniscient Byzantine clients do under each rule.

Run as `python examples/robust_rules.py docs/tables`; it takes about 15 minutes on one core and writes two tables.
``robust_rules.csv`` draws random fleets of several kinds; ``robust_patient.csv`` lists one to nearly half Byzantine
clients of 5, 10 and 20 at stepsizes from 0.01 to 0.1. A loss is the honest clients' MSE over the second half of a run,
in dB above that of the mean without an attack on the same data: the worst of the five attacks of robust_fleet.py. A run
in which a model exceeds 10,000 diverges.
"""

import csv
import sys
from itertools import product
from pathlib import Path

import numpy as np
from robust_fleet import ECHO, NO_ATTACK, RULES, Fleet, compile_rule, compile_run, options_of

KINDS = {
    "up to a third": 60,
    "nearly half": 24,
    "moving target": 24,
    "honest clients absent": 32,
    "honest clients leave": 24,
    "own targets": 24,
    "D = 50": 12,
}
"""Kinds of random fleets, and how many of each."""


def make_fleet(rng, clients, byzantine, participants, dimension, shared, coordinated, stepsize, law, **others):
    """Return a fleet; `law` is "equal", "unequal" or how far the clients' targets lie apart."""
    deviations = np.full(clients, 0.1) if law == "equal" else np.sqrt(rng.uniform(0.002, 0.03, clients))
    variances = np.ones(clients) if law == "equal" else rng.uniform(0.4, 1.2, clients)
    target = rng.normal(size=dimension)
    apart = law if isinstance(law, float) else 0.0
    targets = target / np.linalg.norm(target) + apart * rng.normal(size=(clients, dimension)) / dimension**0.5
    values = {"walk": 0.0, "absent": 0.0, "spell": 1.0, "leavers": 0, **others}
    rounds, seed = int(max(400, 20 / stepsize)), int(rng.integers(2**31))
    return Fleet(
        clients, byzantine, participants, shared, coordinated, stepsize, variances, deviations, targets,
        rounds=rounds, seed=seed, **values,
    )  # fmt: skip


def draw_fleet(kind, number):
    """Return random fleet `number` of a kind."""
    rng = np.random.default_rng(number)
    clients = int(rng.choice([5, 10, 20]))
    byzantine = (clients - 1) // 2 if kind == "nearly half" else int(rng.integers(1, (clients - 1) // 3 + 1))
    participants = int(rng.choice([clients, (clients + 1) // 2]))
    dimension = 50 if kind == "D = 50" else int(rng.choice([4, 10]))
    shared = int(rng.choice([1, dimension // 2, dimension] if dimension < 50 else [1, 5, 25, 50]))
    stepsize = float(rng.choice([0.01, 0.02, 0.05, 0.1] if dimension < 50 else [0.005, 0.01, 0.02]))
    law = 0.5 if kind == "own targets" else ("equal", "unequal", 0.1)[rng.integers(3)]
    others = {}
    if kind == "moving target":
        others["walk"] = stepsize * float(rng.choice([0.2, 0.5]))
    if kind == "honest clients absent":
        others["absent"], others["spell"] = (float(rng.choice([0.3, 0.6])), float(rng.choice([1.5, 50.0, 500.0])))
    if kind == "honest clients leave":
        others["leavers"] = max(1, int((clients - byzantine) * rng.choice([0.25, 0.5])))
    coordinated = bool(rng.random() < 0.5)
    return make_fleet(rng, clients, byzantine, participants, dimension, shared, coordinated, stepsize, law, **others)


def losses(runs, fleet):
    """Return for each rule the losses in dB: without an attack, in rounds 1/μ to 2/μ without one, and the worst."""
    tolerated = max(1, (fleet.participants - 1) // 3)
    if fleet.byzantine > (fleet.clients - 1) // 3:
        tolerated = (fleet.participants - 1) // 2
    late, early = runs["mean"](fleet, NO_ATTACK, options_of("mean", tolerated))
    rows = {}
    for name in RULES:
        values = [runs[name](fleet, attack, options_of(name, tolerated)) for attack in range(ECHO + 1)]
        attacked = max(value for value, _ in values[1:])
        rows[name] = 10 * np.log10([values[0][0] / late, values[0][1] / early, attacked / late])
    return rows


def text_of(loss):
    """Return a loss with one digit, or that it has no bound."""
    return f"{loss + 0.0:.1f}" if np.isfinite(loss) else "diverges"


def write_kinds(runs, path):
    """Write the table of random fleets."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        attacked = [f"attacked, {what} (dB)" for what in ("median", "90 %", "worst")]
        table.writerow(
            ["fleets", "rule", "no attack, worst (dB)", "slower start, median (dB)", *attacked, "over 10 dB (%)"]
        )
        for kind, number in KINDS.items():
            found = [losses(runs, draw_fleet(kind, n)) for n in range(number)]
            for name in RULES:
                clean, start, worst = np.array([rows[name] for rows in found]).T
                figures = [
                    clean.max(),
                    np.median(start),
                    np.median(worst),
                    np.quantile(worst, 0.9, method="higher"),
                    worst.max(),
                ]
                row = [kind, name, *map(text_of, figures), f"{100 * np.mean(worst > 10):.0f}"]
                print(*row, sep="  ", flush=True)
                table.writerow(row)


def write_patient(runs, path):
    """Write the table over numbers of clients and stepsizes, D = 10: median and worst of six fleets."""
    counts = {5: (1, 2), 10: (1, 3, 4), 20: (1, 3, 6, 9)}
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["clients", "Byzantine", "stepsize", *(f"{name}, median (worst) dB" for name in RULES)])
        for clients, stepsize in product(counts, (0.01, 0.02, 0.05, 0.1)):
            for byzantine in counts[clients]:
                found = []
                for shared, together in product((1, 5, 10), (True, False)):
                    rng = np.random.default_rng(shared)
                    participants, law = (clients, "equal") if together else ((clients + 1) // 2, "unequal")
                    fleet = make_fleet(rng, clients, byzantine, participants, 10, shared, together, stepsize, law)
                    found.append(losses(runs, fleet))
                worst = {name: [rows[name][2] for rows in found] for name in RULES}
                cells = [f"{text_of(np.median(values))} ({text_of(max(values))})" for values in worst.values()]
                print(clients, byzantine, stepsize, *cells, sep="  ", flush=True)
                table.writerow([clients, byzantine, stepsize, *cells])


if __name__ == "__main__":
    folder, tables = Path(sys.argv[1]), sys.argv[2:] or ["patient", "rules"]
    decay = RULES["remembered clipping"](1).decay
    compiled = {
        name: compile_run(compile_rule(name), decay if name == "remembered clipping" else 0.0) for name in RULES
    }
    if "patient" in tables:
        write_patient(compiled, folder / "robust_patient.csv")
    if "rules" in tables:
        write_kinds(compiled, folder / "robust_rules.csv")
