"""How long does a round take, what CPU time does a message cost, and how much memory do server, broker and nodes hold?

    python tests/federation/speed.py --nodes 16
    python tests/federation/speed.py --gateways 10 --clients 50

Real processes on loopback with mosquitto and TLS client certificates; half of the clients take part in each round. It
takes a minute or more, so it is no part of ``make test``. CPU time (user and system, of all processes) is that from the
first quarter of the rounds on, divided by the messages that were sent meanwhile, instructions and replies. Memory is
the proportional set size at the end of the run.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from deployments import COMMAND, free_port, wait_until

from psofed import Scenario


def processes():
    """Yield the processes that this one has started, with what they are."""
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(process.cmdline())
            kinds = {"mosquitto": "broker", " server ": "server", " run ": "command"}
            yield next((kind for word, kind in kinds.items() if word in line), "node"), process


def cpu_seconds():
    return sum(sum(process.cpu_times()[:2]) for _, process in processes())


def write_table(path, clients, rows):
    rng = np.random.default_rng(0)
    lines = ["station,a,b,c,d,e,y"]
    for _ in range(rows):
        lines += [",".join([f"s{k}", *(f"{value:.4f}" for value in rng.standard_normal(6))]) for k in clients]
    path.write_text("\n".join(lines) + "\n")


def measure(nodes, gateways, clients, rounds):
    """Return the figures of one run."""
    with tempfile.TemporaryDirectory() as name:
        folder, port, started = Path(name), free_port(), []

        def command(*words):
            return [*COMMAND, *map(str, words)]

        def start(*words):
            with (folder / "log.txt").open("ab") as log:
                started.append(subprocess.Popen(command(*words), stdout=log, stderr=log))

        count = gateways * clients if gateways else nodes
        names = [f"node-{k}" for k in range(gateways or nodes)]
        kind = "--gateway" if gateways else "--node"
        given = [word for each in names for word in (kind, f"{each}={clients}" if gateways else each)]
        subprocess.run(command("certs", "--home", folder / "fed", *given), check=True, capture_output=True)
        scenario = Scenario(
            num_clients=count, dimension=5, num_participants=count // 2, num_shared=2, iterations=rounds, stepsize=0.05
        )
        (folder / "scenario.toml").write_text(scenario.to_toml())
        data = ["--features", "a,b,c,d,e", "--target-column", "y"] if gateways else ["--synthetic"]
        try:
            start("server", "--home", folder / "fed", "--port", port)
            wait_until(lambda: "serving" in (folder / "log.txt").read_text(), 60)
            for k, each in enumerate(names):
                rows = []
                if gateways:
                    write_table(folder / f"{each}.csv", range(k * clients, (k + 1) * clients), rounds + 30)
                    rows = ["--data", folder / f"{each}.csv", "--client-column", "station"]
                certificate = folder / "fed" / "credentials" / f"{each}.pem"
                start(
                    "client", "--broker", f"mqtts://127.0.0.1:{port}", "--certificate", certificate,
                    "--home", folder / each, "--partition", k, *rows,
                )  # fmt: skip
            run = subprocess.Popen(
                command("run", folder / "scenario.toml", "--home", folder / "fed", "--min-nodes", count,
                        "--samples-per-round", 1, "--json", *data), stdout=subprocess.PIPE,
            )  # fmt: skip
            status = folder / "fed" / "status.json"

            def round_now():
                with contextlib.suppress(OSError, ValueError):
                    return json.loads(status.read_text()).get("round", 0)
                return 0

            wait_until(lambda: round_now() >= rounds // 4, 300)
            first, before, begun = round_now(), cpu_seconds(), time.monotonic()
            wait_until(lambda: round_now() >= rounds - 2 or run.poll() is not None, 300)
            last, used, elapsed = round_now(), cpu_seconds() - before, time.monotonic() - begun
            memory = {}
            for what, process in processes():
                with contextlib.suppress(psutil.Error):
                    memory.setdefault(what, []).append(process.memory_full_info().pss / 2**20)
            history = json.loads(run.communicate(timeout=120)[0])["history"]
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                process.wait(30)
    asked = np.mean([len(entry["participants"]) for entry in history])
    messages = 2 * (gateways or asked) * (last - first)
    return {
        "clients": count,
        "participants": float(asked),
        "median seconds per round": statistics.median(entry["seconds"] for entry in history),
        "seconds per round": round(elapsed / (last - first), 4),
        "CPU ms per message": round(1000 * used / messages, 2),
        "CPU ms per participant and round": round(1000 * used / (asked * (last - first)), 2),
        "MB": {what: round(statistics.mean(each), 1) for what, each in memory.items()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--gateways", type=int, default=0)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=80)
    chosen = parser.parse_args()
    print(json.dumps(measure(chosen.nodes, chosen.gateways, chosen.clients, chosen.rounds), indent=1))
