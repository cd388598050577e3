"""How long does a round of the federation take, and how much memory does a node hold, beside stock SuperNodes?

    python tests/federation/speed.py                      all four, one after the other
    python tests/federation/speed.py --nodes 4 --kind long-lived
    python tests/federation/speed.py --gateways 10 --clients 50 --rounds 40

The last one starts so many gateways of so many clients each, half of which take part in a round, and measures the CPU
time of all processes together; --clients 0 starts nodes of one client each instead.

Real processes on loopback, with TLS and node keys, half of the nodes in each round. It takes minutes and starts many
processes, so it is no part of ``make test`` or ``make bench``. Figures of SuperNodes are with our front door, doorbell
and SuperLink in memory, without which they take longer.
"""

import argparse
import contextlib
import json
import os
import tempfile
from pathlib import Path

import numpy as np
from deployments import Deployment

from psofed import Scenario
from psofed.federation.deploy.demo import demo_settings, run_demo
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.submit import follow, submit
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


def measure_gateways(gateways: int, clients: int, rounds: int) -> dict[str, float]:
    """Return seconds and CPU time per round, and memory, bytes and CPU time per client."""
    names = [f"gate-{g}" for g in range(gateways)]
    count = gateways * max(1, clients)
    scenario = Scenario(
        num_clients=max(2, count), dimension=5, num_participants=max(1, count // 2), num_shared=2, stepsize=0.01,
        iterations=rounds,
    )  # fmt: skip
    random = np.random.default_rng(0)
    with (
        tempfile.TemporaryDirectory(prefix="psofed-speed-") as folder,
        Deployment(Path(folder), names) as deployed,
    ):
        deployed.start_server()
        for g in range(gateways):
            table = Path(folder) / f"{g}.csv"
            rows = random.standard_normal((rounds + 30, max(1, clients), 6)).round(4)
            lines = [
                f"{g}-{k}," + ",".join(map(str, row[k]))
                for row in rows.tolist()
                for k in range(max(1, clients))
            ]
            table.write_text("station,a,b,c,d,e,y\n" + "\n".join(lines) + "\n")
            one = [] if clients else ["--client", f"{g}-0"]
            deployed.start_node(g, "--data", table, "--client-column", "station", *one)
        settings = RunSettings(
            scenario=scenario, samples_per_round=1, min_nodes=gateways, deadline=120.0,
            features=("a", "b", "c", "d", "e"), target_column="y",
        )  # fmt: skip
        run = submit(deployed.home, settings, force=True)
        marks: dict[int, dict[str, float]] = {}

        def note(status) -> None:
            if status.get("round", 0) >= 5 and not marks:
                marks[status["round"]] = cpu_seconds(deployed)

        result = follow(deployed.home, run, 600.0, on_progress=note, check=deployed.supervisor.check)
        after, memory = cpu_seconds(deployed), sum(node.memory() for node in deployed.nodes.values())
        ((first, before),) = marks.items()
        taken = rounds - first
        spent = {name: (after[name] - before.get(name, 0.0)) / taken for name in after}
    traffic = result["communication"]
    participations = sum(len(record["participants"]) for record in result["history"])
    return {
        "gateways": gateways,
        "clients": count,
        "participants": participations / rounds,
        "seconds_per_round": float(np.median([record["seconds"] for record in result["history"][first:]])),
        "cpu_ms_per_round": {name: round(1e3 * seconds, 1) for name, seconds in spent.items()},
        "cpu_ms_per_client": round(1e3 * sum(spent.values()) / count, 3),
        "megabytes_per_client": round(memory / 2**20 / count, 2),
        "bytes_per_participant": (traffic["socket_bytes_down"] + traffic["socket_bytes_up"]) / participations,
        "replies_dropped": sum(sum(kinds.values()) for kinds in result["bad_replies"].values()),
    }


def cpu_seconds(deployed) -> dict[str, float]:
    """Return the CPU time so far of the nodes, and of the server with all its processes."""
    tick, parents, spent = os.sysconf("SC_CLK_TCK"), {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            spent[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / tick

    def of(process: int) -> float:
        children = [child for child, parent in parents.items() if parent == process]
        return spent.get(process, 0.0) + sum(map(of, children))

    return {
        "server": of(deployed.server.process.pid),
        "nodes": sum(of(node.process.pid) for node in deployed.nodes.values()),
    }


def main() -> None:
    """Measure and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=["long-lived", "supernodes"], action="append")
    parser.add_argument("--nodes", type=int, choices=[4, 16], action="append")
    parser.add_argument("--gateways", type=int)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=30)
    chosen = parser.parse_args()
    if chosen.gateways:
        print(json.dumps(measure_gateways(chosen.gateways, chosen.clients, chosen.rounds)), flush=True)
        return
    for nodes in chosen.nodes or [4, 16]:
        for kind in chosen.kind or ["long-lived", "supernodes"]:
            print(json.dumps({"kind": kind, "nodes": nodes, **measure(kind, nodes)}), flush=True)


if __name__ == "__main__":
    main()
