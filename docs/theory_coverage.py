"""Measure which share of randomly drawn scenarios the exact theory covers: ``python docs/theory_coverage.py``.

A scenario has the default of each open family with probability 0.7, else any of its kinds, all equally likely; half of
the scenarios have an attack. What differs between draws is which families are open, and how often algorithm and rule
are PSO-Fed and the mean. The second column counts only what needs none of the parts that the paper's iteration has not.
"""

import sys
from collections import Counter
from typing import Any

import numpy as np

from psofed import Data, Links, NotCoveredError, PsofedError, Scenario, Selection
from psofed.parts.registry import find_part, part_names
from psofed.theory.prediction import Prediction

NEEDED: dict[str, dict[str, Any]] = {
    "markov": {"probability": 0.6, "mean_time": 5.0}, "schedule": {"period": 4, "share": 0.5},
    "random-walk": {"variance": 1e-4}, "jump": {"size": 1.0, "at": 20}, "sinusoid": {"amplitude": 0.5, "period": 20},
    "bernoulli": {"probability": 0.6}, "lossy": {"probability": 0.2}, "noisy": {"variance": 0.01},
    "private": {"clip": 1.0}, "quantised": {"bits": 8, "reach": 4.0},
}  # fmt: skip
OLD = ("drift", "pre_aggregation", "attack")
NEW = ("learner", "stream", "availability", "channel", "delay")


def draw(rng: np.random.Generator, families: tuple[str, ...], mean: float, algorithms: bool) -> Scenario:
    """Draw a scenario whose `families` are open, with the mean as its rule with probability `mean`."""

    def part(family: str) -> Any:
        kind = str(rng.choice(part_names(family)))
        options = dict(NEEDED.get(kind, {}))
        if family == "attack":
            options = {"num_byzantine": int(rng.integers(1, 3)), "probability": float(rng.choice([0.2, 1.0]))}
        elif kind == "fixed":
            options = {"iterations": int(rng.integers(1, 5))}
        elif kind == "geometric":
            options = {"ratio": 0.3, "longest": int(rng.integers(1, 5))}
        return find_part(family, kind)(**options)

    changes: dict[str, Any] = {
        "num_shared": int(rng.integers(1, 4)),
        "num_participants": int(rng.integers(1, 7)),
        "uplink": str(rng.choice(["same", "redrawn"])),
        "selection": Selection(pattern=str(rng.choice(part_names("pattern"))), coordinated=bool(rng.integers(2))),
        "data": Data(input_correlation=float(rng.choice([0.0, 0.5]))),
    }
    if algorithms and rng.random() < 0.5:
        changes["algorithm"] = part("algorithm")
    if rng.random() >= mean:
        others = [kind for kind in part_names("aggregation") if kind != "mean"]
        changes["aggregation"] = find_part("aggregation", str(rng.choice(others)))()
    for family in families:
        if rng.random() < (0.5 if family == "attack" else 0.7):
            continue
        made = part(family)
        if family == "stream":
            changes["data"] = Data(stream=made)
        elif family == "channel":
            changes["channel"] = Links(**{str(rng.choice(["up", "down"])): made})
        else:
            changes[family] = made
    return Scenario(num_clients=6, dimension=3, stepsize=0.05, iterations=50, **changes)


def measure(count: int, families: tuple[str, ...], mean: float, algorithms: bool) -> tuple[float, float, Counter[str]]:
    """Return the shares of `count` scenarios covered, at all and as the paper's iteration, and reasons of refusals."""
    rng, reasons = np.random.default_rng(24), Counter[str]()
    valid = plain = 0
    while valid < count:
        try:
            scenario = draw(rng, families, mean, algorithms)
        except PsofedError:
            continue  # parts that cannot be combined
        valid += 1
        try:
            _ = Prediction(scenario).model
            plain += all(getattr(scenario, family) is None for family in ("availability", "channel", "delay"))
        except NotCoveredError as error:
            reasons[next((word for word in REASONS if word in str(error)), "other")] += 1
    return 1.0 - reasons.total() / count, plain / count, reasons


REASONS = (
    "algorithm =", "aggregation =", "pre-aggregation", "drift", "availability", "delay.kind", "learner", "stream",
    "channel", "attack",
)  # fmt: skip
DRAWS: dict[str, tuple[tuple[str, ...], float, bool]] = {
    "any algorithm, the mean in half": ((*OLD, *NEW), 0.5, True),
    "PSO-Fed, the mean in four of five, every part open": ((*OLD, *NEW), 0.8, False),
    "PSO-Fed, the mean in four of five, the paper's iteration": (OLD, 0.8, False),
    "PSO-Fed with the mean; learner, network and attack open": (("attack", *NEW), 1.0, False),
}


def main() -> None:
    """Print a row per draw."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("| scenarios drawn | covered | with the paper's parts only | refused most for |\n|---|---|---|---|")
    for name, (families, mean, algorithms) in DRAWS.items():
        share, plain, reasons = measure(count, families, mean, algorithms)
        most = ", ".join(f"{reason.removesuffix(' =')} {100 * n / count:.0f} %" for reason, n in reasons.most_common(3))
        print(f"| {name} | {100 * share:.0f} % | {100 * plain:.0f} % | {most} |", flush=True)


if __name__ == "__main__":
    main()
