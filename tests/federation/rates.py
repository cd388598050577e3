"""How many rounds a second does a federation manage while one of its four nodes is silent, late, or floods the server?

    python tests/federation/rates.py [--seconds 60]

Real processes on loopback, with TLS and node keys, and one run. The fourth node changes its behaviour from phase to
phase, with an honest phase in between, and each rate is compared with the honest phases before and after it. So the
ratios depend little on what else the machine is doing.
"""

import argparse
import contextlib
import tempfile
import threading
import time
from pathlib import Path

import httpx
from deployments import Deployment

from psofed import Scenario
from psofed.common.errors import PsofedError
from psofed.federation.deploy.app import ReadyMadeApp
from psofed.federation.deploy.node import LongLivedNode
from psofed.federation.deploy.processes import wait_until
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.submit import stop, submit
from psofed.federation.flower import FleetConnection

NAMES = ["node-0", "node-1", "node-2", "odd"]
DEADLINE = 20.0
REQUESTS = 245.0
"""Small signed requests a second, in the flood."""


class OddApp(ReadyMadeApp):
    """The ready-made app, which answers only after `delay` seconds."""

    delay = 0.0

    def __call__(self, message, context):
        begun = time.monotonic()
        while time.monotonic() - begun < self.delay:  # which may change meanwhile
            time.sleep(0.02)
        return super().__call__(message, context)


class Flood:
    """Heartbeats of one key, as fast as REQUESTS allows, over eight connections."""

    def __init__(self, deployed, node_id):
        self._ended = threading.Event()
        self.sent, self._deployed, self._node_id = 0, deployed, node_id
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(7)]
        for thread in self._threads:
            thread.start()

    def stop(self):
        """End it."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _work(self):
        credentials = self._deployed.home.credentials
        address = f"127.0.0.1:{self._deployed.port}"
        with FleetConnection(address, credentials.node_key("odd"), credentials.authority) as fleet:
            fleet.node_id = self._node_id
            while not self._ended.wait(len(self._threads) / REQUESTS):
                self.sent += 1
                with contextlib.suppress(PsofedError, httpx.HTTPError):  # the quota refuses most of them
                    fleet.heartbeat()


def rate(deployed, seconds):
    """Return the rounds a second of the next `seconds`."""
    before, begun = deployed.status()["round"], time.monotonic()
    time.sleep(seconds)
    return (deployed.status()["round"] - before) / (time.monotonic() - begun)


def main():
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="of each phase (default: 60)")
    seconds = parser.parse_args().seconds
    with (
        tempfile.TemporaryDirectory(prefix="psofed-rates-") as folder,
        Deployment(Path(folder), NAMES) as deployed,
    ):
        deployed.start_server()
        for k in range(3):
            deployed.start_node(k)
        app, credentials = OddApp(), deployed.home.credentials
        config = {"partition": 3, "psofed-state": str(Path(folder) / "odd" / "state")}
        node = LongLivedNode(
            f"127.0.0.1:{deployed.port}", credentials.node_key("odd"), credentials.authority, Path(folder) / "odd",
            config, app, lambda line: None,
        )  # fmt: skip
        threading.Thread(target=node.run, daemon=True).start()
        scenario = Scenario(num_clients=4, dimension=4, num_participants=4, num_shared=2, iterations=10**6)
        settings = RunSettings(scenario=scenario, deadline=DEADLINE, synthetic=True, min_nodes=4)
        submit(deployed.home, settings, force=True)
        wait_until(lambda: deployed.status()["round"] >= 3, 180.0, "the first rounds")
        rates = [("honest", rate(deployed, seconds))]
        for name, delay in (
            ("silent", 1e9),
            ("answers just before the deadline", DEADLINE - 1.0),
            ("flood", 0.0),
        ):
            app.delay = delay
            flood = Flood(deployed, node._fleet.node_id) if name == "flood" else None
            rates.append((name, rate(deployed, seconds)))
            if flood is not None:
                flood.stop()
                print(f"the flood sent {flood.sent / seconds:.0f} requests a second", flush=True)
            app.delay = 0.0
            rates.append(("honest", rate(deployed, seconds)))
        stop(deployed.home)
    print("| fourth node | rounds a second | of the honest rate |\n|---|---|---|")
    for place, (name, value) in enumerate(rates):
        if name == "honest":
            print(f"| honest | {value:.2f} | |")
            continue
        usual = (rates[place - 1][1] + rates[place + 1][1]) / 2
        print(f"| {name} | {value:.2f} | {value / usual:.0%} |")


if __name__ == "__main__":
    main()
