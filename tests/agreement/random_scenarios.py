"""Theory against simulation on random scenarios: the distribution of z = (simulated − predicted)/standard error.

    python tests/agreement/random_scenarios.py --count 100 --trials 192

z should be standard normal: of 100 scenarios, about one is beyond 2.6. Both metrics of a scenario are correlated, so
that their z are not independent. Predictions that average over sampled offsets bring their own standard error.
"""

import argparse
import json
import math
from typing import Any

import numpy as np

import psofed
from psofed import NotCoveredError, Scenario
from psofed.simulation.blocks import METRICS as SIMULATED

METRICS = tuple(name for name in ("network_mse", "server_msd", "honest_mse") if name in SIMULATED)
ATTACKS = (
    "gaussian",
    "colluding-gaussian",
    "sign-flip",
    "constant-bias",
    "drop-out",
    "data-poisoning",
    "scaled-update",
)
TAIL, TIME_CONSTANTS = 300, 12  # iterations averaged, and e-foldings of the slowest moment before them


def draw(rng: np.random.Generator) -> Scenario:
    """Draw a scenario over the product of the parts that the theory covers."""
    clients, dimension = int(rng.integers(2, 25)), int(rng.integers(1, 7))
    values: dict[str, Any] = {
        "num_clients": clients,
        "dimension": dimension,
        "num_participants": int(rng.integers(1, clients + 1)),
        "num_shared": int(rng.integers(1, dimension + 1)),
        "stepsize": round(float(rng.uniform(0.05, 0.25)), 3),
        "uplink": str(rng.choice(["same", "redrawn"])),
        "selection": {"pattern": str(rng.choice(["random", "round-robin"])), "coordinated": bool(rng.random() < 0.6)},
        "data": {
            "input_correlation": float(rng.choice([0.0, 0.0, 0.6, -0.7])) if dimension > 1 else 0.0,
            "target_spread": float(rng.choice([0.0, 0.0, 0.0, 0.3])),
            "fleet_seed": int(rng.integers(1000)),
        },
    }
    if rng.random() < 0.75:
        values["attack"] = {
            "kind": str(rng.choice(ATTACKS)),
            "num_byzantine": int(rng.integers(1, max(2, clients // 2))),
            "probability": float(rng.choice([0.3, 1.0])),
            "byzantine_set": str(rng.choice(["fixed", "redrawn"])),
        }
    parts: dict[str, list[dict[str, Any]]] = {
        "availability": [{"kind": "bernoulli", "probability": 0.6}],
        "channel": [{"up": {"kind": "lossy", "probability": 0.2}}, {"down": {"kind": "noisy", "variance": 0.02}}],
        "delay": [{"kind": "fixed", "iterations": 2}],
        "drift": [{"kind": "random-walk", "variance": 0.001}],
        "learner": [{"kind": "leaky-lms", "leakage": 0.05}, {"kind": "nlms", "regularisation": 0.5}],
    }
    for family, choices in parts.items():
        if rng.random() < 0.15:
            values[family] = choices[rng.integers(len(choices))]
    return Scenario.from_mapping(values)


def z_of(scenario: Scenario, trials: int, seed: int) -> dict[str, float]:
    """Return z of every metric.

    Raises
    ------
    NotCoveredError
        For what the theory does not cover, and what is unstable or would take too long to settle.
    """
    prediction = psofed.predict(scenario)
    rate = prediction.spectral_radius
    if not rate < 0.99:
        raise NotCoveredError(f"spectral radius {rate:g}")
    start = math.ceil(TIME_CONSTANTS / -math.log(rate)) + 50
    result = psofed.simulate(scenario.replace(iterations=start + TAIL), trials=trials, seed=seed, tail=TAIL)
    errors = prediction.steady_state.sampling_error
    own_errors = {"network_mse": errors.excess, "server_msd": errors.server, "honest_mse": errors.honest}
    z = {}
    for metric in METRICS:
        level, predicted = getattr(result, metric), float(getattr(prediction, metric))
        if math.isfinite(predicted):
            z[metric] = (level.mean - predicted) / math.hypot(level.standard_error, own_errors[metric])
    return z


def scenarios(count: int, trials: int, seed: int) -> list[tuple[Scenario, dict[str, float]]]:
    """Draw scenarios until `count` of them are covered, and compare each."""
    rng, compared = np.random.default_rng(seed), []
    while len(compared) < count:
        try:
            scenario = draw(rng)
            compared.append((scenario, z_of(scenario, trials, len(compared))))
        except psofed.PsofedError:
            continue
    return compared


def main() -> None:
    """Print the distribution of z and the scenarios with the largest."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--trials", type=int, default=192)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    compared = scenarios(options.count, options.trials, options.seed)
    for metric in METRICS:
        z = np.array([values[metric] for _, values in compared if metric in values])
        print(f"{metric}: {z.size} scenarios, mean {z.mean():+.2f}, sd {z.std(ddof=1):.2f}, largest {abs(z).max():.2f}")
    for scenario, values in sorted(compared, key=lambda item: -max(map(abs, item[1].values())))[:5]:
        rounded = {metric: round(z, 2) for metric, z in values.items()}
        print(rounded, json.dumps(scenario.to_mapping()))


if __name__ == "__main__":
    main()
