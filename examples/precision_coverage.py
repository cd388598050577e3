"""Do intervals still hold when a run stops because they are narrow? Coverage of ``simulate(..., precision=...)``.

Every law stands for the steady states of trials: nearly normal ones far from instability, skewed and heavy-tailed ones
close to it, and a few extreme trials under an attack that rarely succeeds. Others are those of 20,000 simulated trials
of a small fleet whose attacks are the rarer the stronger they are. The rule is applied to many samples of each. The
interval at the stage where it stops is compared with the true mean, or with the true median where medians are shown
(heavy tails). Beside it stands the plain 95 % interval at the same stage, which stopping makes too short.

Run it with ``python examples/precision_coverage.py``.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from psofed import Scenario, simulate
from psofed.attacks import Gaussian
from psofed.results import Estimate, estimate
from psofed.simulation.monte_carlo import STAGES, first_stage, next_stage, trials_with_attacks

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

LAWS: dict[str, Draw] = {
    "normal, 10 % deviation": lambda rng, size: rng.normal(1.0, 0.1, size),
    "normal, 20 % deviation": lambda rng, size: rng.normal(1.0, 0.2, size),
    "gamma, shape 4": lambda rng, size: rng.gamma(4.0, 0.25, size),
    "exponential": lambda rng, size: rng.exponential(1.0, size),
    "log-normal, σ = 0.5": lambda rng, size: rng.lognormal(0.0, 0.5, size),
    "log-normal, σ = 1": lambda rng, size: rng.lognormal(0.0, 1.0, size),
    "log-normal, σ = 2": lambda rng, size: rng.lognormal(0.0, 2.0, size),
    "Pareto, exponent 1.5": lambda rng, size: 1.0 + rng.pareto(1.5, size),
    "one trial in 10 is 10 times as large": lambda rng, size: (
        rng.normal(1.0, 0.1, size) * np.where(rng.random(size) < 0.1, 10.0, 1.0)
    ),
}

FLEET = Scenario(num_clients=6, dimension=2, num_participants=2, num_shared=1, iterations=60, stepsize=0.3, attack=None)
SCENARIOS = {
    "no attack": FLEET,
    **{
        f"p_a = {probability:g}, variance {variance:g}": FLEET.replace(
            attack=Gaussian(num_byzantine=2, probability=probability, variance=variance)
        )
        for probability, variance in ((0.2, 0.5), (0.05, 10.0), (0.01, 100.0), (0.002, 1e3), (0.0005, 1e4))
    },
}


def draw_steady_states(scenario: Scenario) -> Draw:
    """Return a law: the network MSE of one of 20,000 simulated trials."""
    values = simulate(scenario, trials=20_000).steady_state["network_mse"]
    return lambda rng, size: rng.choice(values, size)


def covers(found: Estimate, mean: float, median: float) -> bool:
    """Whether the interval shown contains what it is an interval of."""
    _, low, high = found.typical
    return low <= (mean if found.is_typical else median) <= high


def run_rule(values: NDArray[np.float64], precision: float, fewest: float = 0) -> tuple[Estimate, int]:
    """Return the estimate at which the rule stops, and its trials."""
    trials = first_stage(len(values), fewest)
    confidence = 1 - 0.05 / (STAGES if trials < len(values) else 1)
    for stage in range(STAGES):
        found = estimate(values[:trials], confidence)
        if found.margin <= precision or trials == len(values):
            break
        trials = next_stage(stage, trials, found.margin / precision, len(values))
    return found, trials


def coverage(
    draw: Draw, precision: float, most: int, samples: int, seed: int = 0, fewest: float = 0
) -> tuple[float, float, float]:
    """Return how often the rule's interval and the plain one hold, and the mean number of trials."""
    rng = np.random.default_rng(seed)
    law = draw(rng, 4_000_000)
    mean, median = float(law.mean()), float(np.median(law))
    held = plain = trials = 0
    for _ in range(samples):
        values = draw(rng, most)
        found, count = run_rule(values, precision, fewest)
        held += covers(found, mean, median)
        plain += covers(estimate(values[:count]), mean, median)
        trials += count
    return held / samples, plain / samples, trials / samples


if __name__ == "__main__":
    print(f"{'steady states of trials':40}{'precision':>10}{'covered':>10}{'plain 95 %':>12}{'trials':>8}")
    for name, draw in (LAWS | {name: draw_steady_states(SCENARIOS[name]) for name in SCENARIOS}).items():
        fewest = trials_with_attacks(SCENARIOS[name], tail=12) if name in SCENARIOS else 0.0
        for precision in (0.1, 0.3, 1.0):
            held, plain, trials = coverage(draw, precision, 1024, 2000, fewest=fewest)
            print(f"{name:40}{precision:>7} dB{held:>10.1%}{plain:>12.1%}{trials:>8.0f}", flush=True)
