"""What can one patient Byzantine node of five do, whose every step stays within the guard?

``make patient`` prints the table of docs/federation.md; a test runs a few of its rows. Five nodes learn a linear model
by LMS from one sample a round (D = 5, M = 2, stepsize 0.1, noise variance 0.01) through the real server's step. The
Byzantine node sees everything. In each round it pushes the server's model away from the truth, as far as a fraction of
the guard's bound, or as far as the honest node that is furthest away. The figure is the mean squared error on new
samples over the last ten of 200 rounds, the median of three seeds.
"""

import argparse

import numpy as np

from psofed.aggregations import Mean
from psofed.federation.server.plausibility import Plausibility
from psofed.federation.server.step import Combination, ServerStep
from psofed.federation.server.step import ROBUST
from psofed.parts.registry import built_in_parts

NODES, DIMENSION, SHARED, STEPSIZE, NOISE, ROUNDS, TAIL = 5, 5, 2, 0.1, 0.01, 200, 10
BYZANTINE = "node-0"
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


def run(rule, drift, step, seed):
    """Return the server's mean squared error on new samples after a run."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=DIMENSION)
    server = ServerStep(Combination(rule), plausibility=Plausibility(10.0, drift), seed=seed)
    model, own = np.zeros(DIMENSION), np.zeros((NODES, DIMENSION))
    shared, errors = _mask(rng), []
    for n in range(1, ROUNDS + 1):
        following = _mask(rng)
        uploads = {}
        for k in range(NODES):
            own[k][shared] = model[shared]
            x = rng.normal(size=DIMENSION)
            y = x @ truth + np.sqrt(NOISE) * rng.normal()
            own[k] += STEPSIZE * x * (y - x @ own[k])
            uploads[f"node-{k}"] = following, own[k][following].copy()
        if step is not None:
            away = (model - truth)[following]
            away /= np.sqrt(np.mean(np.square(away)))
            uploads[BYZANTINE] = following, model[following] + _length(server, model, uploads, step) * away
        model = server.take(n, model, uploads, dict.fromkeys(uploads, 1)).model
        errors.append(np.sum(np.square(model - truth)) + NOISE)
        shared = following
    return float(np.mean(errors[-TAIL:]))


def level(rule, step, seeds=3):
    """Return the median error over the seeds for a rule by its name in :data:`RULES`."""
    return float(np.median([run(*RULES[rule], step, seed) for seed in range(seeds)]))


def _mask(rng):
    return np.sort(rng.choice(DIMENSION, SHARED, replace=False))


def _length(server, model, uploads, step):
    honest = [
        np.sqrt(np.mean(np.square(values - model[shared])))
        for name, (shared, values) in uploads.items()
        if name != BYZANTINE
    ]
    bound = server.plausibility.limit(model, uploads, BYZANTINE)
    return max(honest) if step == "honest" or not np.isfinite(bound) else step * bound


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", default=None, help="words that a rule's name contains, by comma")
    words = parser.parse_args().rules
    wanted = [rule for rule in RULES if words is None or any(word in rule for word in words.split(","))]
    print(
        "| rule | all honest | as far as an honest node | 0.1 of the bound | 0.3 | 0.6 |\n|---|---|---|---|---|---|"
    )
    for rule in wanted:
        row = [level(rule, step) for step in STEPS]
        print(f"| {rule} | " + " | ".join(f"{value:.3g}" for value in row) + " |", flush=True)


if __name__ == "__main__":
    main()
