"""How long does a round of the federation take, and how much memory does a node hold, beside stock SuperNodes?

    python tests/federation/speed.py                      all four, one after the other
    python tests/federation/speed.py --nodes 4 --kind long-lived

Real processes on loopback, with TLS and node keys, half of the nodes in each round. It takes minutes and starts many
processes, so it is no part of ``make test`` or ``make bench``. Figures of SuperNodes are with our front door, doorbell
and SuperLink in memory, without which they take longer.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

from psofed.federation.deploy.demo import demo_settings, run_demo
from psofed.federation.deploy.superlink import Home

ROUNDS = {("long-lived", 4): 50, ("long-lived", 16): 20, ("supernodes", 4): 6, ("supernodes", 16): 3}


def measure(kind: str, nodes: int) -> dict[str, float]:
    """Return the median seconds per round, the mean megabytes per node, and the load when it began and ended."""
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="psofed-speed-") as folder:
        result = run_demo(
            demo_settings(nodes, ROUNDS[kind, nodes], seed=0, samples_per_round=1, deadline=120.0),
            Home(Path(folder)),
            on_step=lambda text: None,
            on_round=lambda status: None,
            supernodes=kind == "supernodes",
        )
    return {
        "rounds": result["rounds"],
        "seconds_per_round": result["seconds_per_round"],
        "megabytes_per_node": result["megabytes_per_node"],
        "replies_dropped": sum(sum(kinds.values()) for kinds in result["bad_replies"].values()),
        "load_before": round(before, 1),
        "load_after": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=["long-lived", "supernodes"], action="append")
    parser.add_argument("--nodes", type=int, choices=[4, 16], action="append")
    chosen = parser.parse_args()
    for nodes in chosen.nodes or [4, 16]:
        for kind in chosen.kind or ["long-lived", "supernodes"]:
            print(json.dumps({"kind": kind, "nodes": nodes, **measure(kind, nodes)}), flush=True)


if __name__ == "__main__":
    main()
