"""A soak: a federation on loopback that is disturbed at random for many minutes, and must come out whole.

``make soak`` runs it for 20 minutes; ``python tests/federation/soak.py --minutes 3`` for three. What happens when is
drawn from a seed. Nodes and server are killed and stopped and started again, one node lies under the median as rule,
strangers open idle and half-sent connections, and once the server's files cannot be written. At the end it says what
was found, and ends with code 1 if anything was not as it must be.
"""

import argparse
import contextlib
import json
import random
import resource
import shutil
import socket
import ssl
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from families import family, family_memory, kill_family, living

from psofed import Scenario
from psofed.aggregations import Median
from psofed.attacks import ConstantBias
from psofed.common.files import read_json
from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.processes import (
    Supervisor,
    flower_environment,
    free_port,
    wait_until,
)
from psofed.federation.deploy.server import client_command
from psofed.federation.deploy.superlink import Home
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.fleet import draw_fleet

PSOFED = [sys.executable, "-c", "from psofed.cli import main; main()", "federation"]
BYZANTINE = 0
SCENARIO = Scenario(
    num_clients=8,
    dimension=6,
    num_participants=4,
    num_shared=3,
    stepsize=0.05,
    iterations=10**6,
    aggregation=Median(),
    attack=ConstantBias(num_byzantine=1, clients=(BYZANTINE,), probability=1.0, bias=0.3),
)


class Soak:
    """The processes, and what was seen of them."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.home, self.folder, self.port = Home(folder / "server"), folder, free_port()
        self.names = [f"node-{k}" for k in range(SCENARIO.num_clients)]
        self.credentials = make_credentials(self.home.credentials.folder, [], self.names)
        # On the disk that is filled below, Python 3.11 would keep what it could write of its bytecode.
        self.environment = {**flower_environment(folder / "flower"), "PYTHONDONTWRITEBYTECODE": "1"}
        self.supervisor = Supervisor(folder / "logs")
        self.random = random.Random(seed)
        self.nodes, self.everything, self.problems, self.seen_pids = {}, [], [], set()
        self.counts = dict.fromkeys(("node kill", "node stop", "server kill", "flood", "full disk"), 0)
        self.memory, self.disk = [], []
        self.scenario_file = folder / "soak.toml"
        self.scenario_file.write_text(SCENARIO.to_toml())

    def start(self, name, command):
        process = self.supervisor.start(name, command, self.environment)
        self.everything.append(process)
        return process

    def note_family(self):
        """Remember the running processes, none of which may be left at the end."""
        for process in (self.server, self.run, *self.nodes.values()):
            self.seen_pids |= set(family(process.pid))

    def start_server(self):
        options = ["--home", str(self.home.folder), "--port", str(self.port)]
        self.server = self.start(f"server-{len(self.everything)}", [*PSOFED, "server", *options])
        wait_until(lambda: "listening on" in self.server.tail(), 120.0, "the server", self.check)

    def check(self):
        assert self.server.is_running, self.server.tail()

    def start_node(self, k):
        options = {"partition": k}
        if k == BYZANTINE:
            options |= {"byzantine": True}  # what it does is the scenario's attack, which the guard lets pass
        key = self.credentials.node_key(self.names[k])
        address, folder = f"127.0.0.1:{self.port}", self.folder / self.names[k]
        command = client_command(address, folder, key, self.credentials.authority, options)
        self.nodes[k] = self.start(f"{self.names[k]}-{len(self.everything)}", command)

    def start_run(self, *arguments):
        common = ["--home", str(self.home.folder), "--json"]
        self.run = self.start(f"run-{len(self.everything)}", [*PSOFED, *arguments, *common])

    def status(self):
        return read_json(self.home.status) if self.home.status.exists() else {"round": 0, "state": "none"}

    def rounds_go_on(self, count=3, timeout=120.0):
        first = self.status()["round"]
        wait_until(lambda: self.status()["round"] >= first + count, timeout, f"{count} rounds after {first}")

    # --- what happens -------------------------------------------------------------------------------------

    def disturb_node(self, kind):
        k = self.random.choice([k for k in self.nodes if k != BYZANTINE])
        before = self.status()["round"]
        if kind == "node kill":
            kill_family(self.nodes[k])
        else:
            self.nodes[k].process.terminate()
            self.nodes[k].process.wait(timeout=60)
        time.sleep(self.random.uniform(0, 3))
        self.start_node(k)
        wait_until(
            lambda: self.status().get("seen", {}).get(self.names[k], 0) > before + 1,
            180.0,
            f"{self.names[k]} to be back in the draw",
        )

    def kill_server(self):
        completed = self.status()["round"]
        if self.random.random() < 0.5:
            kill_family(self.server)
        else:
            self.server.kill()  # the command alone: what it has started must follow by itself
        self.run.process.wait(timeout=60)
        self.start_server()
        self.start_run("resume")
        self.rounds_go_on()
        if self.status()["round"] < completed:
            self.problems.append(f"round {completed} was completed and is lost")

    def flood(self):
        trusting = ssl.create_default_context(cafile=str(self.credentials.authority))
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                with contextlib.suppress(OSError):
                    stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=10))
            for _ in range(50):
                with contextlib.suppress(OSError):
                    raw = socket.create_connection(("127.0.0.1", self.port), timeout=10)
                    half = stack.enter_context(trusting.wrap_socket(raw, server_hostname="127.0.0.1"))
                    half.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost:")
            self.rounds_go_on()

    def fill_disk(self):
        """Let the ServerApp write at most 1000 bytes to a file, as on a full disk: it fails, and another goes on."""
        limited = []
        for pid in family(self.server.pid):
            with contextlib.suppress(OSError):
                if "serverapp" in Path(f"/proc/{pid}/cmdline").read_text():
                    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1000, hard))
                    limited.append(pid)
        assert limited
        wait_until(lambda: not living(limited), 120.0, "a ServerApp that cannot write to end")
        self.rounds_go_on()

    def measure(self):
        nodes = [node.memory() for node in self.nodes.values()]
        self.memory.append((family_memory(self.server) / 2**20, float(np.mean(nodes)) / 2**20))
        grows = CheckpointStore(self.home.checkpoint).history.paths()
        kept = [p for p in self.home.folder.rglob("*") if p.suffix != ".log" and p not in grows]
        with contextlib.suppress(FileNotFoundError):  # one was just replaced
            self.disk.append(sum(path.stat().st_size for path in kept if path.is_file()) / 2**20)
        self.note_family()


def band(history, tail, trials=400, seed=1):
    """Return what 99 % of runs' mean server MSD over the last `tail` rounds lie between, given who took part.

    The paper's recursion with the median as rule, on fresh data and masks, but with the very participants that were
    accepted in each round of `history`, and the same Byzantine node. (The closed form covers the mean alone.)
    """
    rng, fleet = np.random.default_rng(seed), draw_fleet(SCENARIO)
    size, count, quorum = SCENARIO.dimension, SCENARIO.num_clients, SCENARIO.aggregation.quorum
    server, clients = np.zeros((trials, size)), np.zeros((trials, count, size))
    scale, noise = np.sqrt(fleet.input_variance)[:, None], np.sqrt(fleet.noise_variance)
    following = draw_masks(rng, trials)
    deviations = []
    for record in history:
        mask, following = following, draw_masks(rng, trials)
        accepted = [int(name.removeprefix("node-")) for name in record["accepted"]]
        clients[:, accepted] = np.where(mask[:, None], server[:, None], clients[:, accepted])
        x = scale * rng.standard_normal(clients.shape)
        error = np.sum(x * (fleet.target - clients), axis=2) + noise * rng.standard_normal((trials, count))
        clients += SCENARIO.stepsize * x * error[:, :, None]
        sent = clients[:, accepted] + SCENARIO.attack.bias * (np.array(accepted) == BYZANTINE)[:, None]
        own = np.repeat(server[:, None], max(0, quorum - len(accepted)), axis=1)
        joined = np.median(np.concatenate([sent, own], axis=1), axis=1)
        server = np.where(following, joined, server)
        deviations.append(np.sum(np.square(server - fleet.target), axis=1))
    low, high = np.quantile(np.mean(deviations[-tail:], axis=0), (0.005, 0.995))
    return float(low), float(high)


def draw_masks(rng, trials):
    """Draw one mask for all clients in each trial."""
    order = np.argsort(rng.random((trials, SCENARIO.dimension)), axis=1)
    return order < SCENARIO.num_shared


def soak(folder, minutes, seed):
    """Run the soak and return what was found."""
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4096, max(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    )
    it, deadline = Soak(folder, seed), time.monotonic() + 60 * minutes
    with it.supervisor:
        it.start_server()
        for k in range(SCENARIO.num_clients):
            it.start_node(k)
        it.start_run("run", str(it.scenario_file), "--synthetic", "--min-nodes", "8", "--deadline", "15")
        wait_until(lambda: it.status()["round"] >= 10, 180.0, "the first rounds", it.check)
        it.measure()
        events = ["full disk"]
        while time.monotonic() < deadline:
            kind = events.pop() if events else it.random.choice(
                ["node kill", "node kill", "node stop", "node stop", "flood", "server kill"]
            )  # fmt: skip
            it.counts[kind] += 1
            print(
                f"{deadline - time.monotonic():5.0f} s left, round {it.status()['round']}: {kind}", flush=True
            )
            try:
                if kind in ("node kill", "node stop"):
                    it.disturb_node(kind)
                else:
                    {"server kill": it.kill_server, "flood": it.flood, "full disk": it.fill_disk}[kind]()
            except Exception as error:  # noted, and the next thing happens
                it.problems.append(f"{kind}: {error}")
                print(f"  {error}", flush=True)
            it.measure()
            time.sleep(it.random.uniform(1, 8))
        stop = it.start("stop", [*PSOFED, "stop", "--home", str(it.home.folder)])
        stop.process.wait(timeout=120)
    store = CheckpointStore(it.home.checkpoint)
    state = store.load()
    history = list(store.history.entries(state))
    numbers = [record["round"] for record in history]
    if numbers != list(range(1, len(numbers) + 1)):
        it.problems.append("the history has gaps")
    orphans = living(it.seen_pids)
    if orphans:
        it.problems.append(f"processes {orphans} were left behind")
    tail = min(1000, len(numbers) // 2)
    found = float(np.mean([record["evaluation"]["server-msd"] for record in history[-tail:]]))
    low, high = band(history, tail)
    if not low <= found <= high:
        it.problems.append(f"server MSD {found:.4g} outside of {low:.4g} to {high:.4g}")
    server, node = np.array(it.memory).T
    half = len(server) // 2
    if server[half:].max() > 1.5 * server[:half].max() or node[half:].max() > 1.3 * node[:half].max():
        it.problems.append("memory is not flat")
    if it.disk[-1] > it.disk[0] + 5.0:
        it.problems.append("the disk fills up")
    back = {name for record in history[-200:] for name in record["accepted"]}
    if back != set(it.names):
        it.problems.append(f"not in the last 200 rounds: {', '.join(sorted(set(it.names) - back))}")
    seconds = [record["seconds"] for record in history]
    return {
        "minutes": minutes,
        "rounds": len(numbers),
        "seconds_per_round": float(np.median(seconds)),
        "events": it.counts,
        "dropped": state.conduct["counts"],
        "server_msd": found,
        "band_99_percent": [low, high],
        "server_megabytes": [round(float(v), 1) for v in (server[0], server.max(), server[-1])],
        "node_megabytes": [round(float(v), 1) for v in (node[0], node.max(), node[-1])],
        "disk_megabytes_but_history_and_logs": [
            round(it.disk[0], 2),
            round(max(it.disk), 2),
            round(it.disk[-1], 2),
        ],
        "checkpoints": len(store.rounds()),
        "history_bytes": sum(path.stat().st_size for path in store.history.paths()),
        "problems": it.problems,
    }


def main():
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="psofed-soak-") as folder:
        found = soak(Path(folder), options.minutes, options.seed)
        if found["problems"]:  # what all processes have written, to find out why
            logs = Path("out") / "soak" / time.strftime("%Y%m%d-%H%M%S")
            shutil.copytree(folder, logs, ignore=shutil.ignore_patterns("credentials", "*.sock"))
            found["logs"] = str(logs)
    print(json.dumps(found, indent=2))
    sys.exit(1 if found["problems"] else 0)


if __name__ == "__main__":
    main()
