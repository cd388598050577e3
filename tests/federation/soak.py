"""Real processes under kill -9 for minutes or hours: eight nodes, their server and its broker.

    python tests/federation/soak.py --minutes 20

Every few seconds a node, the server or mosquitto is killed, stopped for a while or stopped and resumed by its operator.
At the end the run must have made progress, no honest client may have a bad reply, no completed round may be missing,
and the server's error must be that of a federation that was left alone.
"""

import argparse
import contextlib
import json
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from deployments import COMMAND, free_port, wait_until

from psofed import Data, Scenario
from psofed.federation.deploy.home import Home
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.ready_made import evaluate_model

NODES = 8
SCENARIO = Scenario(
    num_clients=NODES, dimension=4, num_participants=6, num_shared=2, stepsize=0.05, data=Data(noise_variance=0.01)
)


class Soak:
    """A federation whose processes are started again when they have been killed, as systemd would."""

    def __init__(self, folder):
        self.folder, self.home, self.port = folder, Home(folder / "fed"), free_port()
        self.names = [f"node-{k}" for k in range(NODES)]
        self.running = {}
        self.command("certs", *[word for name in self.names for word in ("--node", name)])
        (folder / "scenario.toml").write_text(SCENARIO.to_toml())

    def command(self, *words):
        """Run one of the operator's commands."""
        line = [*COMMAND, *map(str, words), "--home", str(self.home.folder)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=180)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, name):
        """Start the server or a node."""
        words = ["server", "--home", self.home.folder, "--port", self.port]
        if name != "server":
            certificate = self.home.credentials / f"{name}.pem"
            words = ["client", "--broker", f"mqtts://127.0.0.1:{self.port}", "--certificate", certificate]
            words += ["--home", self.folder / name, "--partition", self.names.index(name)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen([*COMMAND, *map(str, words)], stdout=log, stderr=log)

    def tend(self):
        """Start what has ended."""
        for name in ("server", *self.names):
            if name not in self.running or self.running[name].poll() is not None:
                self.start(name)

    def broker(self):
        """Return mosquitto's process."""
        for process in psutil.Process(self.running["server"].pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "mosquitto" in process.name():
                    return process
        return None

    def trouble(self, rng):
        """Do something bad, and return what."""
        kind = rng.choice(["node", "node", "server", "broker", "freeze", "operator"])
        name = rng.choice(self.names)
        with contextlib.suppress(psutil.Error, AttributeError):
            if kind == "broker":
                self.broker().kill()
            elif kind == "freeze":
                psutil.Process(self.running[name].pid).suspend()
                time.sleep(rng.uniform(1.0, 8.0))
                psutil.Process(self.running[name].pid).resume()
            elif kind == "operator":
                self.command("stop")
                self.command("resume", "--detach")
            else:
                self.running["server" if kind == "server" else name].send_signal(signal.SIGKILL)
        return kind

    def round_now(self):
        with contextlib.suppress(OSError, ValueError):
            return int(self.home.read_status().get("round", 0))
        return 0

    def close(self):
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            process.wait(30)


def soak(minutes, seed):
    """Run, and return what happened; an AssertionError says which promise was broken."""
    rng, troubles = random.Random(seed), Counter()
    with tempfile.TemporaryDirectory() as name:
        federation = Soak(Path(name))
        try:
            federation.tend()
            given = ("--synthetic", "--rounds", 0, "--deadline", 20, "--min-nodes", NODES, "--detach")
            wait_until(lambda: "serving" in (federation.folder / "server.log").read_text(), 60)
            done = federation.command("run", federation.folder / "scenario.toml", *given)
            assert done.returncode == 0, done.stderr
            wait_until(lambda: federation.round_now() >= 50, 120)
            end = time.monotonic() + 60 * minutes
            while time.monotonic() < end:
                before = federation.round_now()
                troubles[federation.trouble(rng)] += 1
                federation.tend()
                wait_until(lambda before=before: federation.round_now() > before or federation.tend(), 90, "a round")
                time.sleep(rng.uniform(0.5, 4.0))
            before = federation.round_now()
            wait_until(lambda: federation.round_now() > before + 300 or federation.tend(), 300, "quiet rounds")
            federation.command("stop")
            store = CheckpointStore(federation.home.checkpoint)
            state = store.load()
            assert [entry["round"] for entry in store.history.entries(state)] == list(range(1, state.round_number + 1))
            bad = {name: {k: n for k, n in kinds.items() if k not in ("no-reply", "error")}
                   for name, kinds in state.strikes["counts"].items()}  # fmt: skip
            assert not any(bad.values()), bad
            error = evaluate_model(SCENARIO, state.model, 0)["server-msd"]
            assert error < 0.05, error
        finally:
            federation.close()
    return {"rounds": state.round_number, "server MSD": error, **troubles}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=None, help="by default another one each time")
    chosen = parser.parse_args()
    seed = time.time_ns() if chosen.seed is None else chosen.seed
    print(f"seed {seed}", flush=True)
    print(json.dumps(soak(chosen.minutes, seed)))
