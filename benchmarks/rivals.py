"""Compares RoSDHB and DeMoA with PSO-Fed and Online-Fed on the same budget; prints the table of ``docs/algorithms.md``.

``python -m benchmarks.rivals`` (some ten minutes on two cores; ``--trials 8`` for a look). Every number is seeded.
"""

import argparse

import numpy as np

from psofed import Scenario, Selection, SimulationResult, simulate
from psofed.parts.aggregations import TrimmedMean
from psofed.parts.algorithms import DeMoA, OnlineFed, RoSDHB
from psofed.parts.attacks import ConstantBias, Gaussian, LittleIsEnough, SignFlip

FLEET = Scenario(num_clients=100, dimension=5, num_participants=5, stepsize=0.15, iterations=40_000)
LIARS = {"num_byzantine": 20, "probability": 1.0}
ATTACKS = {
    "none": None,
    "Gaussian, 0.25": Gaussian(**LIARS, variance=0.25),
    "bias 0.5": ConstantBias(**LIARS, bias=0.5),
    "update times −10": SignFlip(**LIARS, of="update", scale=10.0),
    "a little is enough, 1.5": LittleIsEnough(**LIARS, deviations=1.5, statistics="honest"),
}
OWN_MASKS = FLEET.replace(selection=Selection(coordinated=False))
# Rules that trim leave out as many as there are liars among what is joined: all clients' momenta for the rivals.
ROWS = (
    ("`pso-fed`", "mean", FLEET),
    ("`pso-fed`", "median", FLEET.replace(aggregation="median")),
    ("`pso-fed`, a mask each", "median", OWN_MASKS.replace(aggregation="median")),
    ("`online-fed`", "mean", FLEET.replace(algorithm=OnlineFed())),
    ("`online-fed`", "median", FLEET.replace(algorithm=OnlineFed(), aggregation="median")),
    ("`rosdhb`", "mean", FLEET.replace(algorithm=RoSDHB())),
    ("`rosdhb`", "trimmed mean, 20", FLEET.replace(algorithm=RoSDHB(), aggregation=TrimmedMean(trim=20))),
    ("`rosdhb`", "median", FLEET.replace(algorithm=RoSDHB(), aggregation="median")),
    ("`rosdhb`", "geometric median", FLEET.replace(algorithm=RoSDHB(), aggregation="geometric-median")),
    ("`demoa`", "mean", FLEET.replace(algorithm=DeMoA())),
    ("`demoa`", "trimmed mean, 20", FLEET.replace(algorithm=DeMoA(), aggregation=TrimmedMean(trim=20))),
    ("`demoa`", "median", FLEET.replace(algorithm=DeMoA(), aggregation="median")),
    ("`demoa`", "geometric median", FLEET.replace(algorithm=DeMoA(), aggregation="geometric-median")),
    ("`demoa`, `alpha = 1.0`", "median", FLEET.replace(algorithm=DeMoA(alpha=1.0), aggregation="median")),
    ('`demoa`, `unseen = "kept"`', "median", FLEET.replace(algorithm=DeMoA(unseen="kept"), aggregation="median")),
)


def main() -> None:
    """Simulate every algorithm with every rule under every attack, and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print(f"| algorithm | rule | {' | '.join(ATTACKS)} | settled after |")
    print("|---" * (len(ATTACKS) + 3) + "|")
    for name, rule, design in ROWS:
        results = [
            simulate(design.replace(attack=attack), trials=asked.trials, seed=asked.seed) for attack in ATTACKS.values()
        ]
        levels = " | ".join(_level(result) for result in results)
        print(f"| {name} | {rule} | {levels} | {_settled(results[0]):,} |", flush=True)


def _level(result: SimulationResult) -> str:
    """The level in dB and its standard error; how many trials were carried away, if any were."""
    away = len(result.diverged_trials)
    if away == result.trials:
        return "carried away"
    level = result.test_mse
    error = 10 / np.log(10) * level.standard_error / level.mean
    mark = " (tails)" if level.is_heavy_tailed else ""
    lost = f", {away} of {result.trials} carried away" if away else ""
    return f"{10 * np.log10(level.mean):.2f} ± {error:.2f}{mark}{lost}".replace("-", "−")


def _settled(result: SimulationResult) -> int:
    """The first iteration in which the mean curve is within 1 dB of its level."""
    return int(result.bin_width * np.argmax(result.curve["test_mse"] <= 10**0.1 * result.test_mse.mean))


if __name__ == "__main__":
    main()
