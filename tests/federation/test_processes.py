"""Real processes and a real mosquitto: kill -9 of node, server and broker, revocation, wrong values, missing files."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import psutil
import pytest
from deployments import COMMAND, NAMES, Deployment, LocalHub, carry_out, nodes, synthetic, wait_until

from psofed.common.files import read_json
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.deploy.home import FINISHED, Home
from psofed.federation.transport.broker import Mosquitto, find_mosquitto
from psofed.federation.transport.certificates import Certificates

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.takes(120)]

TEXT = """\
num_clients = 3
dimension = 4
num_participants = 3
num_shared = 2
stepsize = 0.2
iterations = 8
"""


@pytest.fixture
def deployment(tmp_path):
    made = Deployment(tmp_path)
    (tmp_path / "s.toml").write_text(TEXT)
    try:
        yield made
    finally:
        made.close()


def submit(deployment, *words):
    deployment.command("run", str(deployment.folder / "s.toml"), "--seed", "5", *words)


def round_now(deployment):
    return int(deployment.home.read_status().get("round", 0))


def wait_for_round(deployment, number, seconds=60.0):
    wait_until(lambda: round_now(deployment) >= number, seconds, f"round {number}")


def last_participants(deployment):
    return (deployment.home.read_status().get("last") or {}).get("accepted")


def mosquitto_of(server):
    children = subprocess.run(["pgrep", "-P", str(server.pid)], capture_output=True, text=True).stdout.split()
    (child,) = map(int, children)
    return child


def test_processes_learn_the_model_of_nodes_within_one_process(deployment, tmp_path):
    deployment.start_server()
    deployment.start_node(0, "--byzantine", "--attack", "sign-flip", "--attack-probability", "1")
    for k in (1, 2):
        deployment.start_node(k)
    told = deployment.command(
        "run", str(tmp_path / "s.toml"), "--seed", "5", "--synthetic", "--min-nodes", "3", "--json"
    )
    result = json.loads(told[told.index("{") : told.rindex("}") + 1])
    attack = NodeOptions(partition=0, byzantine=True, attack="sign-flip", attack_probability=1.0)
    workers = nodes([attack, NodeOptions(partition=1), NodeOptions(partition=2)])
    home = Home(tmp_path / "same")
    assert carry_out(home, synthetic(), LocalHub(workers)) == FINISHED
    assert result["model"] == read_json(home.result)["model"]


def test_an_endless_run_survives_the_death_of_everybody(deployment):
    """F1 with real processes: stop stops it, and stop and resume work in every order."""
    deployment.start_server()
    for k in range(3):
        deployment.start_node(k)
    submit(deployment, "--synthetic", "--rounds", "0", "--interval", "0.05", "--min-nodes", "3", "--detach")
    wait_for_round(deployment, 3)

    deployment.kill("node-1")
    wait_until(lambda: last_participants(deployment) == ["node-0", "node-2"], what="rounds without node-1")
    deployment.start_node(1)
    wait_until(lambda: last_participants(deployment) == [*NAMES], what="node-1 to come back")

    before = mosquitto_of(deployment.processes["server"])
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: "is started again" in deployment.log("server"), what="mosquitto's restart")
    done = round_now(deployment)
    wait_until(
        lambda: round_now(deployment) > done + 2 and last_participants(deployment) == [*NAMES],
        120.0,
        "everybody after the broker's death",
    )

    deployment.kill("server")
    assert deployment.status()["run"]["state"] == "interrupted"
    done = round_now(deployment)
    deployment.start_server()
    wait_until(
        lambda: round_now(deployment) > done + 2 and last_participants(deployment) == [*NAMES],
        120.0,
        "everybody after the server's death",
    )

    assert "stopped after round" in deployment.command("stop")
    stopped = round_now(deployment)
    assert "stopped after round" in deployment.command("stop")
    time.sleep(1.0)
    assert round_now(deployment) == stopped
    assert deployment.status()["run"]["state"] == "stopped"
    deployment.kill("server")
    deployment.command("resume", "--detach")
    deployment.start_server()
    wait_for_round(deployment, stopped + 3, 120.0)
    deployment.command("resume", code=2)
    deployment.kill("server")
    told = deployment.command("stop")
    deployment.start_server()
    assert deployment.status()["run"]["state"] == "stopped"
    assert f"stopped after round {read_json(deployment.home.result)['rounds']};" in told


def test_a_revoked_certificate_is_refused_at_once_and_audited(deployment):
    deployment.start_server()
    for k in range(3):
        deployment.start_node(k)
    submit(deployment, "--synthetic", "--rounds", "0", "--interval", "0.05", "--min-nodes", "3", "--detach")
    wait_for_round(deployment, 2)
    deployment.command("revoke", "node-2")
    began = time.monotonic()
    wait_until(lambda: last_participants(deployment) == ["node-0", "node-1"], what="rounds without node-2")
    assert time.monotonic() - began < 15.0
    deployment.kill("node-2")
    deployment.start_node(2)  # with the certificate that it still has
    wait_until(lambda: "certificate verify failed" in deployment.command("status", "--audit"), what="an audit line")
    assert "revoked  node node-2" in deployment.command("status", "--audit")
    statuses = {node["name"]: node["status"] for node in deployment.status()["nodes"]}
    assert statuses == {"node-0": "online", "node-1": "online", "node-2": "revoked"}
    done = round_now(deployment)
    wait_for_round(deployment, done + 3)


def test_the_processes_of_a_killed_demo_end_with_it(deployment):
    home = Home(deployment.folder / "demo")
    words = ("demo", "--home", str(home.folder), "--nodes", "2", "--rounds", "100000")
    demo = deployment.start("demo", *words)
    wait_until(lambda: home.read_status().get("round", 0) >= 2, what="rounds")
    children = psutil.Process(demo.pid).children()
    assert len(children) == 3
    deployment.kill("demo")
    wait_until(lambda: not any(child.is_running() for child in children), 20.0, "the end of mosquitto and nodes")


def table(path, clients=("",), rows=80):
    rng, lines = np.random.default_rng(0), []
    for _ in range(rows):
        for client in clients:
            x = rng.standard_normal(4)
            y = float(x @ [1.0, -1.0, 0.5, 2.0])
            lines.append(",".join(([client] if client else []) + [f"{value:.5f}" for value in (*x, y)]))
    header = (["client"] if clients != ("",) else []) + ["a", "b", "c", "d", "y"]
    path.write_text("\n".join([",".join(header), *lines]) + "\n")


def test_a_missing_table_is_waited_for_and_a_gateways_clients_count_as_participants(deployment, tmp_path):
    deployment.command("certs", "--gateway", "roof=5")
    deployment.start_server()
    table(tmp_path / "roof.csv", ("roof-1", "roof-2", "roof-3"))
    given = ("--broker", deployment.broker, "--certificate", str(deployment.home.credentials / "roof.pem"))
    table_of = ("--data", str(tmp_path / "roof.csv"), "--client-column", "client", "--target-column", "y")
    deployment.start("roof", "client", *given, "--home", str(tmp_path / "roof"), *table_of)
    late = tmp_path / "late.csv"
    node = deployment.start_node(1, "--data", str(late), "--target-column", "y")
    columns = ("--features", "a,b,c,d", "--target-column", "y", "--samples-per-round", "1")
    began = time.monotonic()
    submit(deployment, *columns, "--rounds", "30", "--min-nodes", "3")
    assert time.monotonic() - began < 60.0  # the gateway's three clients are the three of --min-nodes
    result = read_json(deployment.home.result)
    assert {"roof-1", "roof-2", "roof-3"} <= result["nodes"].keys()
    assert node.poll() is None
    table(late)
    submit(deployment, *columns, "--rounds", "60", "--min-nodes", "4", "--force")
    assert read_json(deployment.home.result)["nodes"]["node-1"]["examples"] > 0
    told = deployment.command("export", "--out", str(tmp_path / "m.json"), "--scaling", str(tmp_path / "node-1"))
    assert "with a scaling" in told


def test_two_servers_of_one_home_and_a_taken_port_are_refused(deployment, tmp_path):
    deployment.start_server()
    assert "is running already" in deployment.command("server", code=2)
    other = Deployment(tmp_path / "other") if (tmp_path / "other").mkdir() is None else None
    told = other.command("server", "--port", str(deployment.port), code=2)
    assert "already in use" in told


def test_health_and_metrics_of_processes(deployment):
    import urllib.request

    deployment.start_server("--metrics-port", "0")
    deployment.start_node(0)
    wait_until(lambda: "connected" in deployment.log("node-0"), what="the node")
    port = deployment.log("server").partition("http://127.0.0.1:")[2].partition("/")[0]
    wait_until(
        lambda: (
            'psofed_node_online{node="node-0"} 1.0'
            in urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        ),
        what="the node in the metrics",
    )
    assert "healthy" in deployment.command("status", "--health")
    node = Home(deployment.folder / "node-0")
    assert node.is_healthy()
    deployment.kill("node-0")
    assert not node.is_healthy()


def test_a_broker_that_somebody_else_runs_is_used_only_if_it_keeps_nodes_apart(deployment, tmp_path):
    certificates, folder = Certificates(deployment.home.credentials), tmp_path / "broker"
    ours = Mosquitto(folder, certificates, deployment.port, "127.0.0.1")
    ours.start()  # which writes the configuration
    ours.stop()
    by_hand = [find_mosquitto(), "-c", str(folder / "mosquitto.conf")]
    with subprocess.Popen(by_hand, stderr=subprocess.DEVNULL) as broker:
        try:
            server = ("server", "--home", str(deployment.home.folder), "--broker", deployment.broker)
            process = deployment.start("server", *server)
            wait_until(lambda: "serving" in deployment.log("server"))
            for k in range(3):
                deployment.start_node(k)
            submit(deployment, "--synthetic", "--min-nodes", "3", "--rounds", "0", "--detach")
            wait_for_round(deployment, 3)
            assert last_participants(deployment) == list(NAMES)
            deployment.command("revoke", "node-1")
            wait_until(lambda: last_participants(deployment) == ["node-0", "node-2"])
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
            (folder / "mosquitto.acl").write_text("topic readwrite psofed/#\npattern readwrite psofed/#\n")
            broker.send_signal(signal.SIGHUP)
            refused = subprocess.run([*COMMAND, *server], capture_output=True, text=True, timeout=60)
            assert refused.returncode == 2
            assert "is not safe to use: a node may" in refused.stderr
            assert "Traceback" not in refused.stderr
        finally:
            broker.terminate()
