"""Real processes on loopback, with TLS and node keys: strangers, bad replies, a flood, a server and nodes killed.

The tests share one server and three nodes, and leave them running.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time

import byzantine
import numpy as np
import pytest
from deployments import NAMES, SCENARIO, run_in_process
from families import command_of, family, family_memory, living

from psofed.common.errors import PsofedError
from psofed.common.files import read_json
from psofed.federation.deploy.credentials import make_credentials, make_node_key
from psofed.federation.deploy.processes import wait_until
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.submit import follow, stop, submit
from psofed.federation.flower import Control
from psofed.federation.server.checkpoint import CheckpointStore

pytestmark = [pytest.mark.federation, pytest.mark.slow, pytest.mark.takes(70)]

NODES = len(NAMES)


def test_a_killed_server_resumes_as_if_nothing_had_happened(deployment, tmp_path):
    first = deployment.run("run", SCENARIO.replace(iterations=16), "--seed", "5")
    wait_until(deployment.round_done(2, of=16), 150.0, "two rounds", check=lambda: deployment.wait("", first))
    everybody = family(deployment.server.pid)
    assert len(everybody) > 3  # the command, SuperLink, SuperExec and ServerApp
    deployment.server.kill()  # kill -9 of the command; the kernel ends what it has started
    wait_until(lambda: not living(everybody), 180.0, "its processes to end")
    interrupted = deployment.status()["round"]
    wait_until(lambda: not first.is_running, 120.0, "the run to notice")
    assert first.process.returncode == 2
    assert "psofed federation resume" in first.tail()
    deployment.start_server("server-again")
    second = deployment.psofed("resume", "resume", "--home", str(deployment.home.folder), "--json")
    result = deployment.finish(second)

    assert [record["round"] for record in result["history"]] == list(range(1, 17))
    assert interrupted < 16
    assert set(result["bad_replies"]) <= {"node-0"}  # the Byzantine one; its noise may be far from the others
    # The same federation within this process, never interrupted, gives the very same model.
    numbers = [deployment.number(k) for k in range(NODES)]
    settings = RunSettings(
        scenario=SCENARIO.replace(iterations=16), seed=5, synthetic=True, samples_per_round=1, min_nodes=NODES
    )
    undisturbed = run_in_process(settings, range(NODES), tmp_path, byzantine=0, numbers=numbers)
    names = {str(number): name for number, name in zip(numbers, NAMES, strict=True)}
    assert [r["participants"] for r in result["history"]] == [
        sorted(names[number] for number in r["participants"]) for r in undisturbed["history"]
    ]
    np.testing.assert_allclose(result["model"], undisturbed["model"], rtol=0, atol=1e-14)
    assert result["communication"]["socket_bytes_up"] > 0


@pytest.mark.parametrize(("rule", "lie"), [("median", "1e300"), ("mean", "bias -0.15")])
def test_lies_count_as_on_a_grid_within_one_process(deployment, tmp_path, rule, lie):
    """So all rules and lies can be tried on a Grid (test_federation_byzantine.py)."""
    few = {"iterations": 6, "num_clients": NODES, "num_participants": NODES}
    settings = byzantine.settings(rule, lie, **few).replace(min_nodes=NODES)
    result = deployment.run_to_the_end(settings)
    numbers = [deployment.number(k) for k in range(NODES)]
    same = run_in_process(settings, range(NODES), tmp_path, byzantine=0, numbers=numbers)
    assert len(result["history"]) == few["iterations"]
    np.testing.assert_allclose(result["model"], same["model"], rtol=0, atol=1e-14)
    # The guard sees the crude lie and benches the Byzantine node. The others it lets pass: they are for the rule.
    dropped = [{"implausible": 3}] if lie == "1e300" else []
    assert [*result["bad_replies"].values()] == [*same["bad_replies"].values()] == dropped
    assert set(result["bad_replies"]) <= {"node-0"}


def test_a_node_gives_up_on_what_cannot_heal_and_says_why(deployment, tmp_path):
    make_node_key(tmp_path / "stranger.key")
    other = make_credentials(tmp_path / "other", [], [])
    unknown = deployment.start_node(1, key=tmp_path / "stranger.key", label="stranger")
    wrong = deployment.start_node(1, authority=other.authority, label="wrong-authority")
    absent = deployment.start_node(1, key=tmp_path / "absent.key", label="absent")
    for process in (unknown, wrong, absent):
        wait_until(lambda process=process: not process.is_running, 180.0, f"{process.name} to give up")
        assert process.process.returncode == 2
        assert "Traceback" not in process.tail(100)
    assert "does not know this node's key" in unknown.tail()
    assert "not issued by --ca" in wrong.tail()
    assert "psofed federation certs" in absent.tail()


def test_runs_cannot_be_submitted_through_the_nodes_port(deployment):
    """The front door closes the APIs that Flower leaves open on its port."""
    info = read_json(deployment.home.server_info)
    authority = deployment.home.credentials.authority
    with Control(info["port"], authority) as control, pytest.raises(PsofedError, match="refused"):
        control.nodes()


STRANGER = """
import encodings.idna, http.client, os, ssl, sys
port, path, secret, length = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    secret = open(secret).read()
except OSError:
    secret = "unreadable"
link = http.client.HTTPSConnection("127.0.0.1", port, context=ssl._create_unverified_context(), timeout=30)
headers = {"content-type": "application/protobuf", "content-length": length, "x-psofed-secret": secret}
link.request("POST", path, b"", headers)
print(os.getuid(), secret, link.getresponse().status)
"""


@pytest.mark.parametrize(
    ("path", "length"),
    [
        ("control/list-nodes", 0),
        ("control/start-run", 0),
        ("fleet/pull-messages", 0),
        ("runtime/acquire-task", 0),
        ("runtime/push-object", 10**12),
    ],
)
def test_another_user_of_the_servers_machine_is_refused(deployment, path, length):
    """The SuperLink listens on loopback, where every local user can connect; no long body of theirs is awaited."""
    info, credentials = read_json(deployment.home.server_info), deployment.home.credentials
    for port, authority in (
        (info["superlink_port"], credentials.link_certificate),
        (info["port"], credentials.authority),
    ):
        with Control(port, authority) as control, pytest.raises(PsofedError, match="refused"):
            control.nodes()
    with Control(info["superlink_port"], credentials.link_certificate, credentials.read_secret()) as control:
        assert [node["name"] for node in control.nodes()] == NAMES
    if os.getuid() != 0:
        pytest.skip("only root can start a process as another user")
    port = str(info["superlink_port"])
    command = [
        sys.executable,
        "-I",
        "-c",
        STRANGER,
        port,
        f"/v1/{path}",
        str(credentials.secret),
        str(length),
    ]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.stdout.split() == ["65534", "unreadable", "401"], told.stderr


def test_bad_replies_are_dropped_and_counted_and_the_model_stays(deployment):
    """A bound that no honest reply keeps makes every reply of the round a bad one."""
    scenario = SCENARIO.replace(num_participants=NODES, iterations=1)
    run = deployment.run("run-bad", scenario, "--max-magnitude", "1e-12", "--bench-after", "1")
    result = deployment.finish(run, code=1)  # nobody has learned anything
    assert result["bad_replies"] == {name: {"out-of-bound": 1} for name in NAMES}
    assert result["benched"] == NAMES
    assert result["model"] == [0.0] * scenario.dimension


def test_a_run_whose_clock_is_set_or_whose_process_is_killed_is_continued(deployment):
    """Flower would end the run: at once if the clock is set a minute ahead, and a minute after the kill."""
    rounds = 400
    scenario = SCENARIO.replace(num_participants=NODES, iterations=rounds)
    run = deployment.run("run-killed", scenario, "--interval", "0.1")
    wait_until(deployment.round_done(3, of=rounds), 120.0, "the first rounds", lambda: None)
    for ahead in (60, -60, 0):
        deployment.clock.set_ahead(ahead)  # without effect where there is no C compiler
        done = deployment.status()["round"]
        wait_until(deployment.round_done(done + 3, of=rounds), 120.0, f"rounds with a clock {ahead} s ahead")
    first = deployment.status()["run"]
    (app,) = [pid for pid in family(deployment.server.pid) if "flwr-serverapp" in command_of(pid)]
    os.kill(app, signal.SIGKILL)
    wait_until(lambda: deployment.status()["run"] != first, 180.0, "the run to be submitted again")
    killed_after = deployment.status()["round"]
    wait_until(deployment.round_done(killed_after + 3, of=rounds), 120.0, "the run to continue")
    assert run.is_running, run.tail(40)  # the command that follows it has noticed nothing
    run.process.terminate()
    assert deployment.status()["state"] == "running"
    stop(deployment.home)
    history = CheckpointStore(deployment.home.checkpoint).load().history
    assert [record["round"] for record in history] == list(range(1, len(history) + 1))


# --- nodes that are stopped, killed and started again while a run is on; and Flower's own among them ---------------


def test_a_stopped_node_leaves_the_draw_and_a_restarted_one_comes_back(
    deployment, psofed_command, monkeypatch
):
    """SIGTERM, then kill -9, of the same node while a run is on; each time it is started again."""
    run = deployment.run(
        "run-restarts",
        SCENARIO.replace(num_participants=NODES, iterations=9999),
        *("--deadline", "10", "--interval", "0.7"),
    )

    def check():
        assert run.is_running, run.tail(40)

    # Until the first round is done, the file may still describe the run before.
    wait_until(deployment.round_done(1, of=9999), 120.0, "the first round", check)
    wait_until(lambda: deployment.last_round_has("node-2"), 120.0, "node-2 to answer", check)
    deployment.nodes[2].process.terminate()
    wait_until(lambda: not deployment.nodes[2].is_running, 180.0, "the node to stop", check)
    assert deployment.nodes[2].process.returncode == 130
    wait_until(
        lambda: "node-2" not in deployment.status()["last"]["participants"], 180.0, "it to leave", check
    )
    deployment.start_node(2)
    wait_until(lambda: deployment.last_round_has("node-2"), 180.0, "it to be back", check)
    deployment.nodes[2].kill()
    deployment.start_node(2)
    wait_until(lambda: "connected" in deployment.nodes[2].tail(), 180.0, "it to connect", check)
    before = deployment.status()["round"]
    wait_until(
        lambda: deployment.last_round_has("node-2") and deployment.status()["round"] > before,
        180.0,
        "it to be back after a kill",
        check,
    )
    file = deployment.folder / "run-restarts.toml"
    other = deployment.in_here(monkeypatch, psofed_command, "run", file)  # while the first is going on
    assert "a run is already in progress" in other.stderr
    stop = deployment.in_here(monkeypatch, psofed_command, "stop")
    wait_until(lambda: not run.is_running, 180.0, "the run to stop")
    assert (stop.returncode, run.process.returncode, other.returncode) == (0, 2, 2)
    assert "stopped after round" in run.tail()
    assert set(deployment.status()["conduct"]["counts"]) <= {"node-2"}
    earlier = deployment.status()["round"] - 2
    back = deployment.in_here(monkeypatch, psofed_command, "rollback", "--to-round", earlier)
    assert f"back at round {earlier}" in back.stdout
    home = deployment.home.folder
    again = deployment.psofed("resume-2", "resume", "--rounds", earlier + 3, "--home", home)
    result = deployment.finish(again)
    assert [record["round"] for record in result["history"]] == list(range(1, earlier + 4))
    assert result["history"][-1]["accepted"] == NAMES


@pytest.mark.slow
def test_a_stock_supernode_works_beside_long_lived_nodes(deployment, psofed_command, monkeypatch):
    def start_again(*options):
        deployment.nodes[1].process.terminate()
        wait_until(lambda: not deployment.nodes[1].is_running, 180.0, "the node to stop")
        deployment.start_node(1, *options)

    start_again("--supernode")
    # A SuperNode starts a Python for every message, which no long-lived node has the patience for.
    scenario = SCENARIO.replace(num_participants=NODES, iterations=2)
    settings = RunSettings(scenario=scenario, synthetic=True, min_nodes=NODES, patience=0.0, deadline=90.0)
    result = follow(deployment.home, submit(deployment.home, settings, force=True), 240.0)
    assert [record["accepted"] for record in result["history"]] == [NAMES] * 2
    assert result["bad_replies"] == {}
    status = json.loads(deployment.in_here(monkeypatch, psofed_command, "status", "--json").stdout)
    assert status["server"] == f"127.0.0.1:{deployment.port}"
    assert [node["name"] for node in status["nodes"]] == NAMES
    assert (status["run"]["state"], status["run"]["round"]) == ("finished", 2)
    start_again()


# --- a hostile outsider at the front door while a run is on, and a node that is revoked ----------------------------

HEAD = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % (300 << 20)


@pytest.fixture
def many_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_flood_and_a_revoked_node_stop_no_round(deployment, many_files, record_property):
    scenario = SCENARIO.replace(num_participants=NODES, iterations=9999)
    run = deployment.run("run-flood", scenario, "--interval", "0.4")

    def check():
        assert run.is_running, run.tail(40)

    def rounds():
        status = deployment.status()
        return status["round"] if status["rounds"] == 9999 else 0

    wait_until(lambda: rounds() >= 5, 120.0, "the first rounds", check)
    before, first = family_memory(deployment.server), rounds()
    with contextlib.ExitStack() as stack:
        for k in range(1000):
            source = ("127.0.0.2" if k % 2 else "127.0.0.1", 0)
            with contextlib.suppress(OSError):
                stack.enter_context(
                    socket.create_connection(
                        ("127.0.0.1", deployment.port), timeout=120, source_address=source
                    )
                )
        trusting = ssl.create_default_context(cafile=str(deployment.home.credentials.authority))
        for _ in range(400):
            with contextlib.suppress(OSError):
                raw = socket.create_connection(("127.0.0.1", deployment.port), timeout=120)
                half = stack.enter_context(trusting.wrap_socket(raw, server_hostname="127.0.0.1"))
                half.sendall(HEAD[:50])
        sent = flood(deployment.port, trusting, HEAD) + flood(deployment.port, trusting, b"POST /v1/fleet/")
        during = rounds()
        wait_until(lambda: rounds() >= during + 5, 180.0, "rounds to continue", check)
        grown = family_memory(deployment.server) - before
    record_property("grown", grown)
    record_property("accepted_without_a_key", sent)
    print(f"rounds {first} to {rounds()}; memory grew by {grown / 2**20:.1f} MB; {sent:,} bytes taken")
    assert grown < 100 << 20
    assert set(deployment.status()["conduct"]["counts"]) == set()

    revoked = deployment.psofed("revoke", "revoke", "node-2", "--home", deployment.home.folder)
    wait_until(lambda: not deployment.nodes[2].is_running, 180.0, "the revoked node to give up")
    assert "does not know this node's key" in deployment.nodes[2].tail()
    assert revoked.process.wait(timeout=180) == 0
    wait_until(
        lambda: deployment.status()["last"]["participants"] == NAMES[:2], 180.0, "rounds without it", check
    )
    files = [path for path in deployment.home.folder.rglob("*") if path.is_file()]
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def flood(port, context, beginning):
    """Send 300 MB without a key, as far as they are taken, and return how many that were."""
    sent, chunk, deadline = 0, b"x" * (1 << 20), time.monotonic() + 60
    with contextlib.suppress(OSError):
        raw = socket.create_connection(("127.0.0.1", port), timeout=120)
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            connection.sendall(beginning)
            while sent < 300 << 20 and time.monotonic() < deadline:
                connection.sendall(chunk)
                sent += len(chunk)
    return sent
