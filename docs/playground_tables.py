"""Compute the tables behind the playground: exact theory on a grid of stepsizes, for a few fleets.

With one mask for all clients and the paper's attack (Gaussian noise of variance σ_B² added with probability p_a by
|S_B| clients), each metric is affine in the attack's power:

    metric(μ, M) = clean(μ, M) + |S_B| p_a σ_B² · unit(μ, M).

The page therefore needs two tables per fleet and metric, and its numbers are those of :func:`psofed.predict`.
"""

import json
import math
from functools import cache
from typing import Any

import numpy as np

import psofed
from psofed.explore.exports import PLAYGROUND
from psofed.explore.presets import readme_fleet
from psofed.theory.prediction import Prediction

METRICS = ("network_mse", "server_msd")
TITLES = {
    "readme": "50 clients, 5 parameters",
    "paper": "100 clients, 5 parameters (the paper's fleet)",
    "wide": "20 clients, 10 parameters",
    "redrawn": "50 clients; others upload than those that downloaded",
}
FLEETS = {name: (title, PLAYGROUND[name]) for name, title in TITLES.items()}
# Two significant digits, so that the page shows the stepsize that it computes with; the README's is among them.
STEPSIZES = tuple(sorted({float(f"{mu:.2g}") for mu in np.geomspace(0.004, 0.5, 36)} | {readme_fleet().stepsize}))


def fleet_scenario(fleet: str, num_shared: int, **changes: Any) -> psofed.Scenario:
    """Return the scenario of a fleet of the playground."""
    return psofed.Scenario(**{"num_shared": num_shared, **FLEETS[fleet][1], **changes})


def tables() -> dict[str, Any]:
    """Return title, sizes and, for each M and stepsize, [clean, unit] of each metric; None where unstable."""
    return {name: _fleet_tables(name) for name in FLEETS}


def _fleet_tables(fleet: str) -> dict[str, Any]:
    first = fleet_scenario(fleet, 1)
    unit = psofed.attacks.Gaussian(num_byzantine=1, probability=1.0, variance=1.0)
    shared = range(1, first.dimension + 1)
    attacked = [Prediction(fleet_scenario(fleet, m, attack=unit)) for m in shared]
    clean = [Prediction(fleet_scenario(fleet, m)) for m in shared]
    values: dict[str, list[list[list[float] | None]]] = {metric: [] for metric in METRICS}
    for with_attack, without in zip(attacked, clean, strict=True):
        rows = [(without.at(mu), with_attack.at(mu)) for mu in STEPSIZES]
        for metric in METRICS:
            pairs = [(getattr(a, metric), getattr(b, metric)) for a, b in rows]
            values[metric].append([[a, b - a] if math.isfinite(b) else None for a, b in pairs])
    return {
        "title": FLEETS[fleet][0],
        "clients": first.num_clients,
        "dimension": first.dimension,
        "participants": first.num_participants,
        "limits": [prediction.max_stepsize for prediction in attacked],
        "noise": clean[0].at(STEPSIZES[0]).terms.noise,
        "values": values,
    }


@cache
def script() -> str:
    """Return the tables as a script that needs no server: ``const PLAYGROUND = …``."""
    content = {"stepsizes": STEPSIZES, "stepsize": readme_fleet().stepsize, "fleets": tables()}
    return f"const PLAYGROUND = {json.dumps(content, separators=(',', ':'))};\n"
