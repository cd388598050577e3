"""Damage done by one patient Byzantine node among five, or three, whose steps all stay within the guard.

``make patient`` writes docs/tables/federation_patient.csv; a test runs a few of its rows. The nodes learn a linear
model by LMS from one sample a round (D = 5, M = 2, stepsize 0.1, noise variance 0.01) through the real server's step.
The Byzantine node sees everything. In each round it pushes the server's model away from the truth, as far as a fraction
of the guard's bound, or as far as the honest node that is furthest away. The figure is the mean squared error on new
samples over the last ten of 200 rounds, the median of three seeds.
"""

import argparse
import csv
import sys

import numpy as np

from psofed.aggregations import Mean
from psofed.federation.server.plausibility import Plausibility
from psofed.federation.server.step import ROBUST, Combination, ServerStep
from psofed.parts.registry import built_in_parts

NODES, DIMENSION, SHARED, STEPSIZE, NOISE, ROUNDS, TAIL = 5, 5, 2, 0.1, 0.01, 200, 10
BYZANTINE = "node-0"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
STEPS = (None, "honest", 0.1, 0.3, 0.6)
"""How far the Byzantine node goes: it is honest, as far as the furthest honest node, or a fraction of the bound."""

RULES = {
    "`mean`": (Mean(), None),
    "`mean`, `max_drift = 2`": (Mean(), 2.0),
    "`centred-clipping`, `factor = 1`, `iterations = 5` (default)": (ROBUST, None),
    **{
        f"`{part.kind}`": (part(), None)
        for part in built_in_parts("aggregation")
        if not part.has_root_data and part is not Mean
    },
}
"""Rules by name, each with the bound on drift."""


def run(rule, drift, step, seed, *, nodes=NODES, shared_entries=SHARED, rounds=ROUNDS):
    """Return the server's mean squared error on new samples after a run, and how many honest replies were dropped."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=DIMENSION)
    server = ServerStep(Combination(rule), plausibility=Plausibility(10.0, drift), seed=seed)
    model, own = np.zeros(DIMENSION), np.zeros((nodes, DIMENSION))
    shared, errors, dropped = _mask(rng, shared_entries), [], 0
    for n in range(1, rounds + 1):
        following = _mask(rng, shared_entries)
        uploads = {}
        for k in range(nodes):
            own[k][shared] = model[shared]
            x = rng.normal(size=DIMENSION)
            y = x @ truth + np.sqrt(NOISE) * rng.normal()
            own[k] += STEPSIZE * x * (y - x @ own[k])
            uploads[f"node-{k}"] = following, own[k][following].copy()
        if step is not None:
            away = (model - truth)[following]
            away /= np.sqrt(np.mean(np.square(away)))
            uploads[BYZANTINE] = following, model[following] + _length(server, model, uploads, step) * away
        outcome = server.take(n, model, uploads, dict.fromkeys(uploads, 1))
        model = outcome.model
        dropped += len(set(outcome.refused) - {BYZANTINE} if step is not None else outcome.refused)
        errors.append(np.sum(np.square(model - truth)) + NOISE)
        shared = following
    return float(np.mean(errors[-TAIL:])), dropped


def level(rule, step, seeds=3, nodes=NODES):
    """Return the median error over the seeds for a rule by its name in :data:`RULES`."""
    return float(np.median([run(*RULES[rule], step, seed, nodes=nodes)[0] for seed in range(seeds)]))


def _mask(rng, shared_entries):
    return np.sort(rng.choice(DIMENSION, shared_entries, replace=False))


def _length(server, model, uploads, step):
    honest = [
        np.sqrt(np.mean(np.square(values - model[shared])))
        for name, (shared, values) in uploads.items()
        if name != BYZANTINE
    ]
    bound = server.plausibility.limit(model, uploads, BYZANTINE)
    return max(honest) if step == "honest" or not np.isfinite(bound) else step * bound


def _text(value):
    """Write a number with three digits: 0.0107, or 1.72 · 10¹⁸."""
    digits, _, exponent = f"{value:.3g}".partition("e")
    return f"{digits} · 10{str(int(exponent)).translate(SUPERSCRIPTS)}" if exponent else digits


def main():
    """Print the table as CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", default="", help="words that a rule's name contains, by comma")
    words = parser.parse_args().rules.split(",")
    table = csv.writer(sys.stdout, lineterminator="\n")
    far = ["as far as an honest node", "0.1 of the bound", "0.3", "0.6"]
    table.writerow(["nodes", "rule", "all honest", *far])
    for nodes in (NODES, 3):
        for rule in [name for name in RULES if any(word in name for word in words)]:
            row = [_text(level(rule, step, nodes=nodes)) for step in STEPS]
            table.writerow([nodes, rule.replace("`", ""), *row])
            sys.stdout.flush()


if __name__ == "__main__":
    main()
