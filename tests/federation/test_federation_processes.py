"""Real processes on loopback, with TLS and node keys, once for each thing that must hold."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np
import pytest

from psofed import Attack, Scenario
from psofed.common.errors import PsofedError
from psofed.federation.app import client_app, run_server
from psofed.federation.deploy.credentials import make_credentials, make_node_key
from psofed.federation.deploy.processes import Supervisor, flower_environment, free_port, wait_until
from psofed.federation.deploy.superlink import (
    CONNECTION,
    Home,
    flower_command,
    supernode_command,
    write_connection,
)
from psofed.federation.files import read_json
from psofed.federation.settings import RunSettings
from psofed.federation.testing import InProcessGrid

PSOFED = str(Path(sys.executable).with_name("psofed"))
NODES = 3
SCENARIO = Scenario(
    num_clients=NODES,
    dimension=4,
    num_participants=2,
    iterations=4,
    attack=Attack(num_byzantine=1, probability=0.5),
)
DEADLINE = 25.0  # more than a loaded machine needs for a round


class Deployment:
    """A server and its nodes, each a `psofed federation` command in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "server")
        self.folder = folder
        self.supervisor = Supervisor(folder / "logs")
        self.port = free_port()
        make_credentials(self.home.credentials.folder, [], [f"node-{k}" for k in range(NODES)])
        self.scenario_file = folder / "scenario.toml"
        self.scenario_file.write_text(SCENARIO.to_toml())

    def psofed(self, name, *arguments):
        environment = flower_environment(self.folder / "flower")
        return self.supervisor.start(name, [PSOFED, "federation", *arguments], environment)

    def start_server(self, name="server"):
        self.server = self.psofed(name, "server", "--home", str(self.home.folder), "--port", str(self.port))
        self.wait("listening on", self.server)

    def start_node(self, k):
        credentials = self.home.credentials
        arguments = ["--server", f"127.0.0.1:{self.port}", "--key", str(credentials.node_key(f"node-{k}"))]
        arguments += [
            "--ca",
            str(credentials.authority),
            "--partition",
            str(k),
            "--home",
            str(self.folder / f"node-{k}"),
        ]
        return self.psofed(f"node-{k}", "client", *arguments, *(["--byzantine"] if k == 0 else []))

    def run(self, name, *arguments):
        common = ["--home", str(self.home.folder), "--json"]
        return self.psofed(name, *arguments, *common)

    def wait(self, text, process, timeout=120.0):
        def there():
            assert process.is_running or text in process.tail(200), process.tail(40)
            return text in process.tail(400)

        wait_until(there, timeout, f"waiting for {text!r}")

    def finish(self, process, timeout):
        wait_until(lambda: not process.is_running, timeout, f"waiting for {process.name}")
        assert process.process.returncode == 0, process.tail(60)
        return read_json(self.home.result)

    def round_done(self, count, of):
        def done():
            status = read_json(self.home.status) if self.home.status.exists() else {"rounds": 0}
            return status["rounds"] == of and status["round"] >= count

        return done

    def node_ids(self):
        """Return Flower's id of each node, by which its state is filed."""
        found = {}
        for k in range(NODES):
            for path in (self.folder / f"node-{k}" / "state").glob("*.npz"):
                found[k] = int(path.name.split("-")[0])
        return found


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    deployed = Deployment(tmp_path_factory.mktemp("federation"))
    with deployed.supervisor:
        deployed.start_server()
        deployed.nodes = [deployed.start_node(k) for k in range(NODES)]
        yield deployed


def test_a_killed_server_resumes_as_if_nothing_had_happened(deployment, tmp_path):
    arguments = [
        "run",
        str(deployment.scenario_file),
        "--synthetic",
        "--seed",
        "5",
        "--min-nodes",
        str(NODES),
    ]
    first = deployment.run("run", *arguments)
    wait_until(deployment.round_done(2, of=4), 150.0, "two rounds", check=lambda: deployment.wait("", first))
    deployment.server.kill()  # kill -9 of the command, its SuperLink and its ServerApp at once
    interrupted = read_json(deployment.home.status)["round"]
    wait_until(lambda: not first.is_running, 120.0, "the run to notice")
    assert first.process.returncode == 2
    deployment.start_server("server-again")
    second = deployment.run("resume", "resume")
    result = deployment.finish(second, 300.0)

    assert [record["round"] for record in result["history"]] == [1, 2, 3, 4]
    assert interrupted < 4
    assert result["bad_replies"] == {}
    # The same federation within this process, never interrupted, gives the very same model.
    nodes = deployment.node_ids()
    settings = RunSettings(scenario=SCENARIO, seed=5, synthetic=True, samples_per_round=1, min_nodes=NODES)
    node_config = {node: {"partition": k, "byzantine": k == 0} for k, node in nodes.items()}
    node_config[nodes[0]] |= {"attack-probability": 0.2, "attack-variance": 0.5}
    grid = InProcessGrid(dict.fromkeys(nodes.values(), client_app), node_config=node_config)
    for context in grid.contexts.values():
        context.run_config = settings.to_config()
    run_server(grid, settings, Home(tmp_path))
    undisturbed = read_json(tmp_path / "result.json")
    assert [r["participants"] for r in result["history"]] == [
        r["participants"] for r in undisturbed["history"]
    ]
    np.testing.assert_allclose(result["model"], undisturbed["model"], rtol=0, atol=1e-15)
    assert result["communication"]["socket_bytes_up"] > 0


def test_strangers_are_refused(deployment):
    """A node with a key that was not registered, one without a key, and one without the authority."""
    credentials = deployment.home.credentials
    server = f"127.0.0.1:{deployment.port}"
    stranger = deployment.folder / "stranger.key"
    make_node_key(stranger)
    commands = {
        "unregistered": supernode_command(server, credentials.authority, stranger, free_port(), {}),
        "keyless": _without(
            supernode_command(server, credentials.authority, stranger, free_port(), {}),
            "--auth-supernode-private-key",
        ),
        "no-authority": _without(
            supernode_command(server, credentials.authority, credentials.node_key("node-1"), free_port(), {}),
            "--root-certificates",
        ),
    }
    processes = {}
    with Supervisor(deployment.folder / "strangers", patience=2.0) as supervisor:
        for name, command in commands.items():
            command = [*command, "--max-retries", "0"]
            processes[name] = supervisor.start(name, command, flower_environment(deployment.folder / name))
        for name, process in processes.items():
            wait_until(lambda process=process: not process.is_running, 90.0, f"{name} to be refused")
            assert "SuperNode ID" not in process.tail(200), name  # what a node says once it is let in
    assert "Failed to activate SuperNode" in processes["unregistered"].tail(200)
    assert "must be registered" in processes["keyless"].tail(200)
    assert "CERTIFICATE_VERIFY_FAILED" in processes["no-authority"].tail(200)


def test_runs_cannot_be_submitted_through_the_nodes_port(deployment, tmp_path):
    """What Flower leaves open to whoever reaches its port is closed at the gate."""
    info = read_json(deployment.home.server_info)
    through_the_gate = Home(tmp_path)
    shutil.copytree(deployment.home.credentials.folder, through_the_gate.credentials.folder)
    write_connection(through_the_gate, info["port"])
    with pytest.raises(PsofedError, match="failed"):
        flower_command(through_the_gate, "list", CONNECTION)
    write_connection(through_the_gate, info["superlink_port"])  # on loopback, the very same works
    assert "runs" in flower_command(through_the_gate, "list", CONNECTION)


def test_bad_replies_are_dropped_and_counted_and_the_model_stays(deployment):
    """A bound that no honest reply keeps makes every reply of the round a bad one."""
    scenario = SCENARIO.replace(num_participants=NODES, iterations=1)
    path = deployment.folder / "bounded.toml"
    path.write_text(scenario.to_toml())
    limits = ["--max-magnitude", "1e-12", "--bench-after", "1"]
    run = deployment.run("run-bad", "run", str(path), "--synthetic", "--min-nodes", str(NODES), *limits)
    result = deployment.finish(run, 240.0)
    nodes = sorted(map(str, deployment.node_ids().values()))
    assert result["bad_replies"] == {node: {"out-of-bound": 1} for node in nodes}
    assert sorted(result["benched"]) == nodes
    assert result["model"] == [0.0] * scenario.dimension


def test_a_killed_node_costs_a_round_no_more_than_its_deadline(deployment):
    scenario = SCENARIO.replace(num_participants=NODES, iterations=3)
    deployment.scenario_file.write_text(scenario.to_toml())
    run = deployment.run(
        "run-killed", "run", str(deployment.scenario_file), "--synthetic", "--seed", "6",
        "--min-nodes", str(NODES), "--deadline", str(DEADLINE),
    )  # fmt: skip
    wait_until(
        deployment.round_done(1, of=3), 150.0, "the first round", check=lambda: deployment.wait("", run)
    )
    deployment.nodes[2].kill()
    victim = deployment.node_ids()[2]
    result = deployment.finish(run, 240.0)
    others = sorted(node for node in deployment.node_ids().values() if node != victim)
    assert [record["accepted"] for record in result["history"][1:]] == [others] * 2
    assert result["history"][1]["dropped"] == {str(victim): "no-reply"}
    assert result["history"][2]["participants"] == others  # the dead node rests
    assert DEADLINE <= result["history"][1]["seconds"] < DEADLINE + 5.0
    assert result["bad_replies"] == {str(victim): {"no-reply": 1}}
    check_status(deployment, victim)


def check_status(deployment, victim):
    """What `psofed federation status` says after that run."""
    done = deployment.run("status", "status")
    wait_until(lambda: not done.is_running, 60.0, "status")
    status = json.loads("{" + done.log.read_text().split("{", 1)[1])
    assert status["server"] == f"127.0.0.1:{deployment.port}"
    assert len(status["nodes"]) == NODES
    assert (status["run"]["state"], status["run"]["round"]) == ("finished", 3)
    assert status["bad_replies"] == {str(victim): {"no-reply": 1}}


def test_nothing_is_left_running_after_an_interrupt(tmp_path):
    """The demo, ended by Ctrl-C once its nodes are up, stops every process it has started."""
    with Supervisor(tmp_path / "logs") as supervisor:
        command = [
            PSOFED,
            "federation",
            "demo",
            "--nodes",
            "2",
            "--rounds",
            "50",
            "--home",
            str(tmp_path / "demo"),
        ]
        demo = supervisor.start("demo", command, dict(os.environ))
        wait_until(lambda: "submitted" in demo.tail(), 120.0, "the demo to start", check=supervisor.check)
        assert len(_descendants(demo)) > 3
        demo.process.send_signal(signal.SIGINT)
        wait_until(lambda: not demo.is_running, 60.0, "the demo to end")
        assert demo.process.returncode == 130
        wait_until(lambda: not _descendants(demo), 5.0, "its processes to end")
    assert (tmp_path / "demo" / "logs" / "superlink.log").stat().st_size > 0


def _descendants(process):
    from psofed.federation.deploy.processes import _marked

    return _marked([process])


def _without(command, option):
    at = command.index(option)
    return command[:at] + command[at + 2 :]
