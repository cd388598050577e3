"""Federations for tests: within this process, or as processes with a real broker."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from nodes import FaultyHub

from psofed import Scenario
from psofed.common.errors import PsofedError
from psofed.common.files import only_one
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.ready_made import ready_made_node
from psofed.federation.deploy.home import Home
from psofed.federation.deploy.runs import FederationRun, RunStatus, submit
from psofed.federation.deploy.server import FederationServer, free_port
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.transport.broker import find_mosquitto
from psofed.federation.transport.certificates import Certificates

SCENARIO = Scenario(num_clients=3, dimension=4, num_participants=3, num_shared=2, stepsize=0.2, iterations=8)
NAMES = tuple(f"node-{k}" for k in range(3))


def synthetic(scenario=SCENARIO, **options):
    return RunSettings(scenario=scenario, synthetic=True, seed=5, min_nodes=3, **options)


def nodes(options=None, folder=None):
    """Return the nodes of a synthetic run, by name."""
    options = options or [NodeOptions(partition=k) for k in range(3)]
    return {
        name: ready_made_node(name, each, None if folder is None else folder / name / "state")
        for name, each in zip(NAMES, options, strict=False)
    }


class LocalHub(FaultyHub):
    """A hub within this process that a server can use in the place of MQTT, and that can crash."""

    is_replaced = False

    def __init__(self, workers):
        super().__init__(workers)
        self.dropped = Counter()
        self.crashed = False

    def flooding(self):
        return frozenset()

    def receive(self, seconds):
        if self.crashed:
            raise Crash
        return super().receive(min(seconds, 0.01))

    def present(self):
        if self.crashed:
            raise Crash
        return super().present()


class Crash(BaseException):
    """Ends a server as kill -9 does: nothing is written any more."""


def carry_out(home, settings, hub=None, *, force=False, attend=lambda: False):
    """Run within this process, and return how it ended."""
    request = submit(home, settings, force=force)
    return FederationRun(RunStatus(home), request, attend).carry_out(hub or LocalHub(nodes()))


class LocalServer:
    """A server in a thread, with nodes within this process."""

    def __init__(self, folder, workers=None):
        self.home = Home(folder)
        self.certificates = Certificates(self.home.credentials)
        self.certificates.make(nodes=NAMES)
        self.workers = workers or nodes()
        self.thread = None

    def start(self):
        if self.thread is not None:
            return
        self.hub, ready = LocalHub(self.workers), threading.Event()

        def work():
            server = FederationServer(self.home, self.hub, self.certificates)
            with contextlib.suppress(Crash), only_one(self.home.server_lock, "locked"):
                ready.set()
                server.work()

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        assert ready.wait(20)

    def crash(self):
        if self.thread is not None:
            self.hub.crashed = True
            self.thread.join(20)
            assert not self.thread.is_alive()
            self.thread = None

    def round_now(self):
        return int(self.home.read_status().get("round", 0))


def wait_until(condition, seconds=60.0, what="it"):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)


COMMAND = [sys.executable, "-c", "from psofed.cli import main; main()", "federation"]


def require_mosquitto():
    try:
        find_mosquitto()
    except PsofedError as error:
        if os.environ.get("PSOFED_BROKER") == "required":
            raise
        pytest.skip(str(error))


class Deployment:
    """Server and nodes as processes, all of which end with it."""

    def __init__(self, folder):
        require_mosquitto()
        self.folder, self.home = folder, Home(folder / "fed")
        self.port = free_port()
        self.processes = {}
        self.command("certs", *[word for name in NAMES for word in ("--node", name)])

    @property
    def broker(self):
        return f"mqtts://127.0.0.1:{self.port}"

    def command(self, *words, code=0):
        """Run a command on the server's machine, and return its output."""
        done = subprocess.run(
            [*COMMAND, *words, "--home", str(self.home.folder)], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == code, (words, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def start(self, name, *words):
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen([*COMMAND, *words], stdout=log, stderr=log)
        return self.processes[name]

    def start_server(self, *words):
        words = ("server", "--home", str(self.home.folder), "--port", str(self.port), *words)
        before = self.log("server").count("serving") if (self.folder / "server.log").exists() else 0
        self.start("server", *words)
        wait_until(lambda: self.log("server").count("serving") > before, 60, "the server")

    def start_node(self, k, *words):
        name = NAMES[k]
        certificate = self.folder / f"{name}.pem"
        if not certificate.exists():
            certificate.write_bytes((self.home.credentials / f"{name}.pem").read_bytes())
        given = ("--broker", self.broker, "--certificate", str(certificate), "--partition", str(k))
        return self.start(name, "client", *given, "--home", str(self.folder / name), *words)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def status(self):
        return json.loads(self.command("status", "--json"))

    def kill(self, name):
        """kill -9."""
        child = self.processes.pop(name)
        child.send_signal(signal.SIGKILL)
        child.wait(20)

    def close(self):
        for child in self.processes.values():
            child.terminate()
        for name, child in self.processes.items():
            try:
                assert child.wait(30) == 0, (name, self.log(name))
            finally:
                child.kill()
                child.wait()
