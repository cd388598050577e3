"""A federation of real processes on loopback, with TLS and node keys, for tests."""

import sys
from contextlib import contextmanager
from pathlib import Path

from clocks import SettableClock

from psofed import Scenario
from psofed.attacks import Gaussian
from psofed.common.files import read_json
from psofed.federation.deploy.app import client_app, run_server
from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.processes import Supervisor, flower_environment, free_port, wait_until
from psofed.federation.deploy.submit import follow, submit
from psofed.federation.deploy.superlink import Home, open_control, revoke_node
from psofed.federation.flower import number_of_key, public_key_of
from psofed.federation.testing import InProcessGrid

PSOFED = [sys.executable, "-c", "from psofed.cli import main; main()", "federation"]


class Deployment:
    """A server and its nodes, each a separate process of `psofed federation`.

    Leave it as a context and every process is stopped. With `host`, the server is that of another deployment.
    """

    def __init__(self, folder: Path, names, host=None) -> None:
        self.home = Home(folder / "server") if host is None else host.home
        self.folder, self.names = folder, list(names)
        self.supervisor = Supervisor(folder / "logs")
        self.port = free_port() if host is None else host.port
        self.server = None if host is None else host.server
        make_credentials(self.home.credentials.folder, [], self.names, gateways_in(self.names))
        self.nodes = {}
        self.clock = SettableClock(folder)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.supervisor.stop()

    def psofed(self, name, *arguments, environment=None):
        environment = flower_environment(self.folder / "flower") | (environment or {})
        return self.supervisor.start(name, [*PSOFED, *map(str, arguments)], environment)

    def in_here(self, monkeypatch, command, *arguments):
        """Run one of our commands within this process, with `command` = the fixture psofed_command."""
        with monkeypatch.context() as patch:
            for name, value in flower_environment(self.folder / "flower").items():
                patch.setenv(name, value)
            return command("federation", *arguments, "--home", self.home.folder)

    def start_server(self, name="server", *more):
        """Start the server, on its own clock."""
        arguments = ["server", "--home", self.home.folder, "--port", self.port, *more]
        self.server = self.psofed(name, *arguments, environment=self.clock.environment)
        self.wait("listening on", self.server)

    def start_node(self, k, *more, key=None, authority=None, label=None):
        """Start node `k`; with another `key` or `authority`, a stranger in a separate folder."""
        credentials, name = self.home.credentials, self.names[k]
        label = label or f"{name}-{len(self.supervisor.processes)}"
        arguments = ["--server", f"127.0.0.1:{self.port}", "--partition", k]
        arguments += ["--key", key or credentials.node_key(name)]
        arguments += ["--ca", authority or credentials.authority]
        arguments += ["--home", self.folder / (label if key or authority else name)]
        process = self.psofed(label, "client", *arguments, *more)
        if key is None and authority is None:
            self.nodes[k] = process
        return process

    def run(self, name, scenario, *arguments):
        """Start the command that runs a scenario on synthetic data."""
        path = self.folder / f"{name}.toml"
        path.write_text(scenario.to_toml())
        common = ["--home", self.home.folder, "--json", "--synthetic", "--min-nodes", len(self.names)]
        return self.psofed(name, "run", path, *common, "--force", *arguments)

    def run_to_the_end(self, settings):
        """Submit a run from this process, and return its result."""
        return follow(self.home, submit(self.home, settings, force=True), 180.0, check=self.check)

    def check(self):
        """Fail if the server or a node has ended that was not ended on purpose."""
        for process in (self.server, *self.nodes.values()):
            assert process.is_running, process.tail(40)

    @contextmanager
    def admit(self, *names):
        """Let further nodes in until the block ends."""
        make_credentials(self.home.credentials.folder, [], names, gateways_in(names))

        def are_known():
            with open_control(self.home) as control:
                return {node["name"] for node in control.nodes()} >= set(names)

        wait_until(are_known, 60.0, "the server to register new keys")
        yield
        for name in names:
            revoke_node(self.home, name)

    @contextmanager
    def lend_server(self, folder, *names):
        """Give a deployment of other nodes at the same server, which has none yet; they leave when the block ends."""
        assert not self.nodes, "every node takes part in every run: run these tests before those with nodes"
        with self.admit(*names), Deployment(folder, names, self) as guests:
            yield guests

    def number(self, k):
        """Return the number by which node `k` is drawn."""
        return number_of_key(public_key_of(self.home.credentials.folder / f"{self.names[k]}.pub"))

    def wait(self, text, process, timeout=120.0):
        def there():
            assert process.is_running or text in process.tail(200), process.tail(40)
            return text in process.tail(400)

        wait_until(there, timeout, f"waiting for {text!r}")

    def finish(self, process, timeout=240.0, code=0):
        wait_until(lambda: not process.is_running, timeout, f"waiting for {process.name}")
        assert process.process.returncode == code, process.tail(60)
        return read_json(self.home.result)

    def status(self):
        return read_json(self.home.status) if self.home.status.exists() else {"rounds": 0, "round": 0}

    def round_done(self, count, of):
        return lambda: self.status()["rounds"] == of and self.status()["round"] >= count

    def last_round_has(self, name):
        return name in (self.status().get("last") or {"accepted": []})["accepted"]


NAMES = [f"node-{k}" for k in range(3)]
SCENARIO = Scenario(
    num_clients=3,
    dimension=4,
    num_participants=2,
    iterations=6,
    attack=Gaussian(num_byzantine=1, probability=0.5),
)


def run_in_process(settings, partitions, folder, *, byzantine=None, numbers=None):
    """Run the ready-made app on a Grid within this process and return the result; nodes go by their numbers."""
    numbers = [1000 + k for k in partitions] if numbers is None else numbers
    config = {
        number: {"partition": k, "byzantine": k == byzantine}
        for number, k in zip(numbers, partitions, strict=True)
    }
    grid = InProcessGrid(dict.fromkeys(numbers, client_app), node_config=config)
    for context in grid.contexts.values():
        context.run_config = settings.to_config()
    run_server(grid, settings, Home(folder))
    return read_json(folder / "result.json")


def gateways_in(names):
    """Return the nodes that may have many clients."""
    return [name for name in names if name.startswith(("gate", "plant"))]
