"""Damage done by one Byzantine node of five in 30 rounds, under every rule, with real processes.

``make byzantine`` runs all rules and lies on one deployment and prints a table; a test runs a few of them. The four
honest nodes are alike and learn from 64 samples a round. A figure is the server's MSD over the last five rounds against
the run of the same rule, seed and honest nodes without the Byzantine node, in decibels.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from deployments import Deployment

from psofed import Data, Scenario
from psofed.aggregations import CentredClipping
from psofed.attacks import ConstantBias, SignFlip
from psofed.federation.deploy.settings import RunSettings
from psofed.parts.registry import built_in_parts

NODES, BYZANTINE, TAIL = 5, 0, 5
HONEST = [k for k in range(NODES) if k != BYZANTINE]
NAMES = [f"node-{k}" for k in range(NODES)]
SCENARIO = Scenario(
    num_clients=NODES,
    dimension=4,
    num_participants=NODES,
    num_shared=2,
    stepsize=0.0007,
    iterations=30,
    data=Data(input_variance=1.0, noise_variance=0.01),
)
RULES = {part.kind: part() for part in built_in_parts("aggregation") if not part.has_root_data}
"""Every rule but those that need root data, which a federation refuses; by name."""

RULES["centred-clipping by distances"] = CentredClipping(factor=1.0, iterations=5)

LIES = {
    "1e300": ConstantBias(num_byzantine=1, probability=1.0, bias=1e300),
    "update turned round": SignFlip(num_byzantine=1, probability=1.0, of="update"),
    "model turned round": SignFlip(num_byzantine=1, probability=1.0, of="model"),
    "bias +0.15": ConstantBias(num_byzantine=1, probability=1.0, bias=0.15),
    "bias -0.15": ConstantBias(num_byzantine=1, probability=1.0, bias=-0.15),
}
CLIPPING = ("norm-clipping", "centred-clipping")
"""Rules that shorten a lie and do not leave it out."""


def settings(rule, lie=None, seed=1, **changes):
    """Return a run, with `changes` to the scenario; without a lie the Byzantine node is not there."""
    attack = None if lie is None else LIES[lie]
    scenario = SCENARIO.replace(aggregation=RULES[rule], attack=attack, **changes)
    nodes = NODES - (lie is None)
    return RunSettings(
        scenario=scenario, seed=seed, synthetic=True, samples_per_round=64, min_nodes=nodes, deadline=30.0
    )


def level(result):
    """Return the server's MSD over the last rounds, and whom its replies were dropped from."""
    curve = [record["evaluation"]["server-msd"] for record in result["history"]]
    assert len(curve) == SCENARIO.iterations
    return float(np.mean(curve[-TAIL:])), result["bad_replies"]


def try_lies(folder, wanted):
    """Yield (rule, lie, decibels above the run without the Byzantine node, dropped replies) for each wanted pair."""
    with Deployment(folder, NAMES) as deployment:
        deployment.start_server()
        for k in HONEST:
            deployment.start_node(k)
        without = {rule: level(deployment.run_to_the_end(settings(rule))) for rule in dict(wanted)}
        deployment.start_node(BYZANTINE, "--byzantine")
        for rule, lie in wanted:
            found, dropped = level(deployment.run_to_the_end(settings(rule, lie)))
            reference, dropped_before = without[rule]
            assert dropped_before == {}, dropped_before
            yield rule, lie, 10 * np.log10(found / reference), dropped


def main():
    """Try every rule against every lie."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rules", default=",".join(RULES), help="which, by comma")
    chosen = parser.parse_args().rules.split(",")
    found = {}
    with tempfile.TemporaryDirectory(prefix="psofed-byzantine-") as folder:
        for rule, lie, change, dropped in try_lies(Path(folder), [(r, x) for r in chosen for x in LIES]):
            print(f"{rule:18} {lie:20} {change:+6.2f} dB  {dropped or ''}", flush=True)
            found.setdefault(rule, {})[lie] = round(float(change), 2)
    print(json.dumps(found, indent=2))
    broken = [r for r, x in found.items() if r not in (*CLIPPING, "mean") and max(x.values()) > 1.0]
    sys.exit(f"more than 1 dB: {', '.join(broken)}" if broken else 0)


if __name__ == "__main__":
    main()
