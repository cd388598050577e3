"""How long does a round take, what CPU does a message cost, and how much memory does a node hold, beside SuperNodes?

    python tests/federation/speed.py                      all four, one after the other
    python tests/federation/speed.py --nodes 4 --kind long-lived
    python tests/federation/speed.py --gateways 10 --clients 50 --rounds 40

The last one starts 10 gateways with 50 clients each, half of which take part in a round; --clients 0 starts nodes of
one client each for comparison.

Real processes on loopback, with TLS and node keys, half of the nodes in each round. It takes minutes and starts many
processes, so it is no part of ``make test`` or ``make bench``. Figures of SuperNodes are with our front door, doorbell
and SuperLink in memory, without which they take longer. A message's CPU time (user and system, in milliseconds) is that
of all processes from the first quarter of the rounds on, divided by the messages that were sent meanwhile; the front
door is part of this process. The SuperLink's resident set after each eighth of the rounds shows what it keeps.
"""

import argparse
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
from deployments import Deployment

from psofed import Scenario
from psofed.federation.deploy.demo import demo_settings, run_demo
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.submit import follow, submit
from psofed.federation.deploy.superlink import Home

ROUNDS = {"long-lived": 60, "supernodes": 4}
KINDS = {
    "flower.link": "SuperLink",
    "superexec": "SuperExec",
    "serverapp": "ServerApp",
    "supernode": "nodes",
    " client ": "nodes",
}


def descendants() -> Iterator[tuple[str, psutil.Process]]:
    """Yield the processes that this one has started, with their command lines, unless they have just ended."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            yield " ".join(process.cmdline()), process


def cpu_seconds() -> dict[str, float]:
    """Return the CPU time of this process and its descendants so far, by kind."""
    used = dict.fromkeys(["front door", *KINDS.values(), "other"], 0.0)
    used["front door"] = sum(psutil.Process().cpu_times()[:2])
    for line, process in descendants():
        kind = next((name for word, name in KINDS.items() if word in line), "other")
        with contextlib.suppress(psutil.Error):
            used[kind] += sum(process.cpu_times()[:2])
    return used


def superlink_megabytes() -> float:
    """Return the resident set of the SuperLink."""
    sizes = [process.memory_info().rss for line, process in descendants() if "flower.link" in line]
    return round(sum(sizes) / 2**20, 1)


def measure(kind: str, nodes: int, rounds: int) -> dict[str, object]:
    """Return seconds per round, megabytes per node, milliseconds per message, and the load at both ends."""
    before = os.getloadavg()[0]
    samples: list[tuple[int, dict[str, float]]] = []
    memory: dict[int, float] = {}

    def sample(status: dict[str, object]) -> None:
        done = int(status["round"])
        if done >= rounds // 4:
            samples.append((done, cpu_seconds()))
        if done < rounds and done >= len(memory) * rounds // 8:
            memory[done] = superlink_megabytes()

    settings = demo_settings(nodes, rounds, seed=0, samples_per_round=1, deadline=120.0)
    with tempfile.TemporaryDirectory(prefix="psofed-speed-") as folder:
        result = run_demo(
            settings,
            Home(Path(folder)),
            on_step=lambda text: None,
            on_round=sample,
            supernodes=kind == "supernodes",
        )
    (first, begin), (last, end) = samples[0], samples[-2]  # at the end some processes are gone
    messages = max(1, (last - first) * settings.scenario.num_participants)
    spent = {name: round(1e3 * (end[name] - begin[name]) / messages, 1) for name in begin}
    return {
        "rounds": result["rounds"],
        "seconds_per_round": result["seconds_per_round"],
        "megabytes_per_node": result["megabytes_per_node"],
        "milliseconds_per_message": {**spent, "together": round(sum(spent.values()), 1)},
        "superlink_megabytes_by_round": memory,
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
        samples: list[tuple[int, dict[str, float]]] = []

        def sample(status) -> None:
            if status.get("round", 0) >= 5:
                samples.append((status["round"], cpu_seconds()))

        result = follow(deployed.home, run, 900.0, on_progress=sample, check=deployed.supervisor.check)
        memory = sum(node.memory() for node in deployed.nodes.values())
    (first, begin), (last, end) = samples[0], samples[-2]  # at the end some processes are gone
    begin |= {"front door": begin.pop("other")}  # the server's own process; this one only watches
    end |= {"front door": end.pop("other")}
    spent = {name: (end[name] - begin[name]) / (last - first) for name in begin}
    traffic = result["communication"]
    participations = traffic["messages_down"]
    return {
        "gateways": gateways,
        "clients": count,
        "participants": participations / rounds,
        "seconds_per_round": float(np.median(result["learning_curve"]["seconds"][first:])),
        "cpu_ms_per_round": {name: round(1e3 * seconds, 1) for name, seconds in spent.items()},
        "cpu_ms_per_client": round(1e3 * sum(spent.values()) / count, 3),
        "megabytes_per_client": round(memory / 2**20 / count, 2),
        "bytes_per_participant": (traffic["socket_bytes_down"] + traffic["socket_bytes_up"]) / participations,
        "replies_dropped": sum(sum(kinds.values()) for kinds in result["bad_replies"].values()),
    }


def main() -> None:
    """Measure and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=list(ROUNDS), action="append")
    parser.add_argument("--nodes", type=int, action="append")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--gateways", type=int)
    parser.add_argument("--clients", type=int, default=50)
    chosen = parser.parse_args()
    if chosen.gateways:
        measured = measure_gateways(chosen.gateways, chosen.clients, chosen.rounds or 40)
        print(json.dumps(measured), flush=True)
        return
    for nodes in chosen.nodes or [4, 16]:
        for kind in chosen.kind or list(ROUNDS):
            measured = measure(kind, nodes, chosen.rounds or ROUNDS[kind])
            print(json.dumps({"kind": kind, "nodes": nodes, **measured}), flush=True)


if __name__ == "__main__":
    main()
