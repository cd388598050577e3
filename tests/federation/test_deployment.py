"""Runs by request, their status, result, audit and metrics, and the operator's commands in every order."""

import json
import random
import re
import shutil
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from deployments import NAMES, SCENARIO, LocalHub, LocalServer, carry_out, nodes, synthetic, wait_until

import psofed
from psofed.common.errors import PsofedError
from psofed.common.files import read_json
from psofed.common.scheduler import Scheduler, use_scheduler
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.deploy import home as audit
from psofed.federation.deploy import runs as operate
from psofed.federation.deploy.demo import demo_settings, run_demo
from psofed.federation.deploy.home import FAILED, FINISHED, STOPPED, Home
from psofed.federation.deploy.options import ClientOptions, DemoOptions, ServerOptions
from psofed.federation.deploy.result import FederationOutcome
from psofed.federation.deploy.runs import FederationRun, RunStatus
from psofed.federation.deploy.server import serve
from psofed.federation.deploy.status import federation_status, status_lines
from psofed.federation.server.checkpoint import CheckpointStore
from psofed.federation.server.step import with_threshold
from psofed.federation.transport.certificates import Certificates

pytestmark = pytest.mark.federation


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path / "fed")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    home = Home(tmp_path_factory.mktemp("finished") / "fed")
    assert carry_out(home, synthetic()) == FINISHED
    return home


# --- one run --------------------------------------------------------------------------------------------------------


def test_a_run_learns_and_reports(finished):
    result = read_json(finished.result)
    assert result["rounds"] == 8
    assert result["examples"] == 24
    assert set(result["nodes"]) == set(NAMES)
    assert result["learning_curve"]["server_msd"][-1] < result["learning_curve"]["server_msd"][0]
    assert result["communication"]["fraction_of_full_sharing"] == 0.5
    assert result["bad_replies"] == {}
    assert [record["event"] for record in audit.read_records(finished.runs)] == ["started", "finished"]


def test_the_outcome_claims_no_byzantine_clients_that_it_cannot_know(finished):
    result = read_json(finished.result)
    assert "0 Byzantine" in FederationOutcome(result).report().subject
    result["settings"]["synthetic"] = False
    assert "Byzantine" not in FederationOutcome(result).report().subject


def test_the_status_is_told_without_a_server(finished):
    found = federation_status(finished)
    assert found["server"] is None
    assert found["run"]["state"] == FINISHED
    lines = "\n".join(status_lines(found))
    assert "server     not running" in lines
    assert "run        finished, round 8 of 8" in lines


def test_a_full_disk_under_the_status_does_not_stop_a_run(home, monkeypatch):
    def full(*_, **__):
        raise PsofedError("status.json: cannot be written (No space left on device)")

    monkeypatch.setattr(Home, "write_status", full)
    assert carry_out(home, synthetic()) == FINISHED
    assert read_json(home.result)["rounds"] == 8


def continued(home, hub=None, **changes):
    """Resume the run within this process, and return how it ended."""
    request = operate.resume(home, **changes)
    return FederationRun(RunStatus(home), request).carry_out(hub or LocalHub(nodes()))


class JumpingClock(Scheduler):
    """A clock that somebody sets back and ahead by an hour; sleeping takes no time."""

    def __init__(self):
        self.ticks, self.slept = 0, 0.0

    def time(self):
        self.ticks += 1
        return super().time() + (3600.0 if self.ticks % 2 else -3600.0)

    def monotonic(self):
        return super().monotonic() + self.slept

    def sleep(self, seconds):
        self.slept += seconds


def test_clocks_may_jump_by_an_hour(home, finished):
    with use_scheduler(JumpingClock()):
        assert carry_out(home, synthetic()) == FINISHED
    assert read_json(home.result)["model"] == read_json(finished.result)["model"]


def test_a_failed_run_says_why_and_can_be_continued(home):
    hub = LocalHub({})
    assert carry_out(home, synthetic(wait_for_nodes=0.1), hub) == FAILED
    assert "no node is available" in federation_status(home)["run"]["reason"]
    assert continued(home) == FINISHED
    assert [record["event"] for record in audit.read_records(home.runs)] == [
        "started", "failed", "started", "finished",
    ]  # fmt: skip


def test_a_request_with_settings_that_cannot_be_read_fails_and_says_why(home):
    request = operate.submit(home, synthetic())
    damaged = replace(request, settings={**request.settings, "deadline": -1})
    assert FederationRun(RunStatus(home), damaged).carry_out(LocalHub(nodes())) == FAILED
    assert "deadline must be" in federation_status(home)["run"]["reason"]


def test_a_full_disk_delays_that_a_run_is_said_to_be_stopped(server, monkeypatch):
    write, fails = Home.write_status, iter([True] * 3)
    request = operate.submit(server.home, synthetic())
    request = server.home.ask(replace(request, wanted=STOPPED))

    def full(home, status):
        if status.get("state") == STOPPED and next(fails, False):
            raise PsofedError("status.json: cannot be written (No space left on device)")
        write(home, status)

    monkeypatch.setattr(Home, "write_status", full)
    server.start()
    wait_until(lambda: server.home.read_status().get("run") == request.number, what="the status")
    assert federation_status(server.home)["run"]["state"] == STOPPED


def test_a_second_run_never_replaces_a_result_unasked(home):
    carry_out(home, synthetic())
    before = read_json(home.result)
    with pytest.raises(PsofedError, match=r"an earlier run: continue it with .*, or replace it with --force"):
        operate.submit(home, synthetic())
    assert read_json(home.result) == before
    assert carry_out(home, synthetic(scenario=SCENARIO.replace(iterations=3)), force=True) == FINISHED
    assert read_json(home.result)["rounds"] == 3


def test_a_runs_threshold_is_that_of_clients_compared_with_their_own_past(home):
    scenario = SCENARIO.replace(defence=psofed.defences.Cusum())
    request = operate.submit(home, synthetic(scenario=scenario))
    defence = request.run_settings().scenario.defence
    assert defence == with_threshold(scenario.defence, scenario)
    assert defence.threshold > 0


def test_a_replaced_run_is_not_continued_by_its_successor_that_has_completed_no_round(home):
    carry_out(home, synthetic())
    settings = synthetic(scenario=SCENARIO.replace(iterations=3))
    assert carry_out(home, settings, LocalHub(nodes()), force=True, attend=lambda: True) == STOPPED
    assert CheckpointStore(home.checkpoint).load().round_number == 8  # still the earlier run's
    request = operate.resume(home)
    assert not home.has_begun(request)
    assert FederationRun(RunStatus(home), request).carry_out(LocalHub(nodes())) == FINISHED
    assert read_json(home.result)["rounds"] == 3


def test_a_rolled_back_run_continues_from_there_to_the_same_end(home, finished):
    carry_out(home, synthetic())
    assert operate.rollback(home, 5) == 5
    assert federation_status(home)["run"]["state"] == STOPPED
    with pytest.raises(PsofedError, match="--to-round 99: must be a round with a checkpoint"):
        operate.rollback(home, 99)
    workers = nodes()
    assert continued(home, hub=LocalHub(workers)) == FINISHED
    assert read_json(home.result)["rounds"] == 8
    assert CheckpointStore(home.checkpoint).load().epoch == 1


def test_a_resumed_run_may_be_longer(home):
    carry_out(home, synthetic())
    assert continued(home, rounds=11) == FINISHED
    assert read_json(home.result)["rounds"] == 11


def test_a_damaged_checkpoint_is_reported_before_a_run_is_continued(home):
    carry_out(home, synthetic())
    home.checkpoint.unlink()
    home.checkpoint.write_bytes(b"PK damaged")
    with pytest.raises(PsofedError, match="rollback --to-round N"):
        operate.resume(home)


@pytest.mark.parametrize("left", ["flower", "app", "traffic.bin", "credentials/superlink.pem"])
def test_homes_of_earlier_versions_are_refused_with_the_new_command(tmp_path, left):
    (tmp_path / left).mkdir(parents=True)
    with pytest.raises(PsofedError, match=r"made by psofed 0\.2.*psofed federation certs --home NEW"):
        Home(tmp_path)


def test_an_address_that_the_brokers_certificate_does_not_name_is_refused_with_the_command(home):
    Certificates(home.credentials).make()
    with pytest.raises(PsofedError, match=r"--host 127\.0\.0\.2: .* certs --host 127\.0\.0\.2 --home "):
        serve(home, ServerOptions(host="127.0.0.2", port=0)).__enter__()


# --- audit ----------------------------------------------------------------------------------------------------------


def test_every_strike_and_ban_has_an_audit_line(home):
    def tamper(node, frame):
        yield node, frame[:-8] if node == "node-0" else frame

    hub = LocalHub(nodes())
    hub.tamper = tamper
    assert carry_out(home, synthetic(ban_after=2), hub) == FINISHED
    records = audit.read_records(home.audit)
    assert [record["event"] for record in records] == ["strike", "strike", "banned"]
    assert {record["client"] for record in records} == {"node-0"}
    assert records[0]["round"] == 1
    found = federation_status(home)
    assert found["run"]["banned"] == ["node-0"]
    assert found["bad_replies"]["node-0"]


def test_excluded_clients_have_an_audit_line(home):
    settings = demo_settings(DemoOptions(rounds=8))
    run_demo(settings, home, lambda text: None, lambda status: None, in_process=True)
    (record,) = audit.read_records(home.audit)
    assert (record["event"], record["client"], record["round"]) == ("excluded", "node-0", 3)


def test_a_full_disk_under_the_audit_is_said_in_the_log(tmp_path, caplog):
    audit.add_record(tmp_path / "none" / "audit.jsonl", "strike", client="a")
    assert "cannot be written" in caplog.text


# --- the server's loop: stop, resume and crashes in every order -----------------------------------------------------


@pytest.fixture
def server(tmp_path):
    server = LocalServer(tmp_path / "fed", nodes(folder=tmp_path))
    yield server
    server.crash()


def test_a_run_asked_for_before_the_server_starts_begins_with_it(server):
    request = operate.submit(server.home, synthetic())
    assert federation_status(server.home)["run"]["state"] == "submitted"
    server.start()
    said = []
    result = operate.follow(server.home, request, lambda status: None, said.append)
    assert result["rounds"] == 8
    assert all("no server is running" in text for text in said)


def test_an_endless_run_is_stopped_resumed_and_survives_a_crash(server):
    """F1: `stop` must stop a run of --rounds 0, and stop and resume must work afterwards."""
    server.start()
    operate.submit(server.home, synthetic(rounds=0))
    wait_until(lambda: server.round_now() >= 3, what="three rounds")
    assert operate.stop(server.home)[0] == STOPPED
    done = server.round_now()
    assert read_json(server.home.result)["rounds"] == done
    assert operate.stop(server.home) == (STOPPED, done)
    with pytest.raises(PsofedError, match="belongs to an earlier run"):
        operate.submit(server.home, synthetic())
    operate.resume(server.home)
    wait_until(lambda: server.round_now() > done, what="the resumed run")
    with pytest.raises(PsofedError, match="a run is in progress"):
        operate.resume(server.home)
    server.crash()
    assert federation_status(server.home)["run"]["state"] == "interrupted"
    operate.resume(server.home)  # does no harm
    word, done = operate.stop(server.home)  # without a server
    assert word == STOPPED
    assert read_json(server.home.result)["rounds"] == done
    server.start()
    wait_until(lambda: server.home.read_status().get("nodes"), what="the server")
    assert federation_status(server.home)["run"]["state"] == STOPPED
    operate.resume(server.home)
    wait_until(lambda: server.round_now() > done, what="the run after the crash")
    server.crash()
    before = CheckpointStore(server.home.checkpoint).load().round_number
    server.start()  # continues by itself
    wait_until(lambda: server.round_now() > before, what="the run after the second crash")
    history = CheckpointStore(server.home.checkpoint).load().history
    assert [entry["round"] for entry in history] == list(range(1, len(history) + 1))
    events = [record["event"] for record in audit.read_records(server.home.runs)]
    assert events == ["started", "stopped", "resumed", "stopped", "resumed", "resumed"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rounds", [0, 40])
def test_commands_and_crashes_in_any_order_leave_a_federation_that_works(server, seed, rounds):
    rng, wanted = random.Random(seed), False
    for _ in range(8):
        word = rng.choice(["run", "stop", "resume", "crash", "start", "wait"])
        try:
            if word == "run":
                operate.submit(server.home, synthetic(rounds=rounds, interval=0.01), force=True)
                wanted = True
            elif word == "stop":
                operate.stop(server.home)
                wanted = False
            elif word == "resume":
                operate.resume(server.home)
                wanted = True
        except PsofedError as error:
            if not re.search("a run is (in progress|waiting)|there is no run", str(error)):
                raise
        if word == "crash":
            server.crash()
        if word == "start":
            server.start()
        if word == "wait" and wanted and server.thread is not None:
            before = server.round_now()
            wait_until(
                lambda before=before: server.round_now() > before or server.home.read_status().get("state") == FINISHED,
                what=f"progress after {word}",
            )
    server.start()
    try:
        operate.submit(server.home, synthetic(rounds=3), force=True)
    except PsofedError:
        operate.stop(server.home)
        operate.submit(server.home, synthetic(rounds=3), force=True)
    request = server.home.read_request()
    result = operate.follow(server.home, request, lambda status: None, lambda text: None)
    assert result["rounds"] == 3


def test_damaged_files_are_said_and_do_not_end_the_server(server, caplog):
    server.start()
    server.home.request.write_text("[]")
    wait_until(lambda: "request.json is damaged" in caplog.text, what="a warning")
    server.home.request.unlink()
    request = operate.submit(server.home, synthetic())
    assert operate.follow(server.home, request, lambda status: None, lambda text: None)["rounds"] == 8


def test_a_revoked_node_leaves_the_run(server):
    server.start()
    operate.submit(server.home, synthetic(rounds=0, interval=0.01))
    wait_until(lambda: server.round_now() >= 2, what="two rounds")
    server.certificates.revoke(["node-2"])
    wait_until(
        lambda: (server.home.read_status().get("last") or {}).get("participants") == ["node-0", "node-1"],
        what="rounds without it",
    )
    (about,) = [node for node in federation_status(server.home)["nodes"] if node["name"] == "node-2"]
    assert about["status"] == "revoked"


def test_a_resumed_run_does_not_wait_for_nodes_that_were_revoked_meanwhile(server):
    server.start()
    operate.submit(server.home, synthetic(rounds=0, interval=0.01))
    wait_until(lambda: server.round_now() >= 2, what="two rounds")
    operate.stop(server.home)
    done = server.round_now()
    server.certificates.revoke(["node-2"])
    operate.resume(server.home)
    wait_until(lambda: server.round_now() > done + 1, 20.0, "rounds of the two that are left")


def test_only_one_follower_of_a_stopped_run_is_told_so(server):
    server.start()
    request = operate.submit(server.home, synthetic(scenario=SCENARIO.replace(iterations=500), interval=0.05))
    wait_until(lambda: server.round_now() >= 1, what="a round")
    operate.stop(server.home)
    with pytest.raises(PsofedError, match=r"stopped after round \d+; .*resume"):
        operate.follow(server.home, request, lambda status: None, lambda text: None)


# --- metrics --------------------------------------------------------------------------------------------------------


def test_figures_for_prometheus_have_expiry_and_sample_lag(server):
    import urllib.request

    from psofed.federation.deploy.status import serve_metrics

    server.start()
    operate.submit(server.home, synthetic(rounds=0, interval=0.01))
    wait_until(lambda: server.round_now() >= 3, what="three rounds")
    with serve_metrics(server.home, 0) as port:
        text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        with pytest.raises(PsofedError, match="--metrics-port"), serve_metrics(server.home, port):
            pass
    assert re.search(r'psofed_node_certificate_expiry_seconds\{node="node-0"\} 1\.\d+e\+09', text)
    assert re.search(r'psofed_node_sample_lag_seconds\{node="node-1"\} \d', text)
    assert "psofed_running 1.0" in text
    dashboard = (Path(__file__).parents[2] / "examples" / "federation" / "grafana.json").read_text()
    assert set(re.findall(r"psofed_[a-z_]+", dashboard)) <= set(re.findall(r"psofed_[a-z_]+", text))


# --- the demo -------------------------------------------------------------------------------------------------------


def test_without_a_broker_the_demo_says_so(home, monkeypatch):
    def missing():
        raise PsofedError("there is no MQTT broker")

    monkeypatch.setattr("psofed.federation.transport.broker.find_mosquitto", missing)
    said = []
    run_demo(demo_settings(DemoOptions(rounds=2)), home, said.append, lambda status: None)
    assert said[0] == "running 4 nodes within this process (no mosquitto is installed)"


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "problem"),
    [
        (ServerOptions, {"metrics_host": "0.0.0.0"}, "add --metrics-port"),
        (ServerOptions, {"broker": "mqtts://b", "port": 1}, "which --broker replaces"),
        (ServerOptions, {"authority": "ca.pem"}, "add --broker"),
        (ClientOptions, {"broker": "x", "certificate": "c", "attack": "sign-flip"}, "add --byzantine"),
    ],
)
def test_options_that_do_not_fit_are_refused(kind, given, problem):
    with pytest.raises(PsofedError, match=problem):
        kind(**given)


def test_a_plan_with_random_features_runs_and_predicts(home, tmp_path):
    """F6: `advise --set model.kind=rff` writes a plan that a federation runs."""
    from psofed.federation.deploy.export import from_server, load_model, predict_rows, save_model
    from psofed.federation.protocol.run_settings import RunSettings

    rng = np.random.default_rng(0)
    options = []
    for k in range(3):
        table = tmp_path / f"{k}.csv"
        x = rng.standard_normal((400, 2))
        y = np.sin(x[:, 0]) * x[:, 1]
        rows = "".join(f"{a:.5f},{b:.5f},{c:.5f}\n" for (a, b), c in zip(x, y, strict=True))
        table.write_text("wind,pressure,output\n" + rows)
        options.append(NodeOptions(data=str(table), features=("wind", "pressure"), target_column="output"))
    scenario = SCENARIO.replace(
        dimension=30, num_shared=15, stepsize=0.5, iterations=300, model=psofed.models.Rff(features=30)
    )
    settings = RunSettings(
        scenario=scenario, features=("wind", "pressure"), target_column="output", samples_per_round=1, min_nodes=3
    )
    assert carry_out(home, settings, LocalHub(nodes(options))) == FINISHED
    curve = [v for v in read_json(home.result)["learning_curve"]["network_mse"] if v is not None]
    assert np.mean(curve[-50:]) < 0.5 * np.mean(curve[:50])
    save_model(from_server(home), tmp_path / "model.json")
    model = load_model(tmp_path / "model.json")
    assert model.width == 2
    (tmp_path / "rows.csv").write_text("pressure,wind\n1,2\n")
    (predicted,) = predict_rows(model, tmp_path / "rows.csv")
    features = psofed.models.Rff(features=30).make_features(2, 30)
    assert predicted == pytest.approx(float(model.weights @ features(np.array([2.0, 1.0]))))


# --- the files in deployment/ ---------------------------------------------------------------------------------------

FILES = Path(__file__).parents[2] / "deployment"


def commands():
    """Yield the psofed commands that the files start."""
    for unit in FILES.glob("*.service"):
        (line,) = [text for text in unit.read_text().splitlines() if text.startswith("ExecStart=")]
        path, *words = line.removeprefix("ExecStart=").split()
        assert path == "/opt/psofed/bin/psofed"
        yield [word for word in words if word != "$OPTIONS"]
    for service in yaml.safe_load((FILES / "compose.yaml").read_text())["services"].values():
        yield ["federation", *service["command"]]
    for file in (*FILES.glob("*.service"), FILES / "compose.yaml"):
        for line in file.read_text().splitlines():
            if line.startswith("#") and (match := re.search(r"(?:psofed federation|server) (certs|run) (.*)", line)):
                yield ["federation", match[1], *match[2].split()]


def test_every_command_in_the_deployment_files_exists(monkeypatch):
    import sys

    import typer

    import psofed.cli.federation as new
    from psofed.cli import make_app

    monkeypatch.setitem(sys.modules, "psofed.cli.federation", new)
    assert len(list(commands())) == 7
    for words in commands():
        command = typer.main.get_command(make_app(("federation",)))
        while hasattr(command, "commands"):
            name, *words = words
            command = command.commands[name]
        assert command.make_context("psofed", list(words)).params["home"]


def test_units_take_options_and_are_always_restarted():
    for unit in FILES.glob("*.service"):
        text = unit.read_text()
        assert "$OPTIONS" in text
        assert "Restart=always" in text
        assert "RestartPreventExitStatus" not in text


def test_the_image_installs_extras_that_exist_and_has_a_health_check():
    text = (FILES / "Dockerfile").read_text()
    project = tomllib.loads((FILES.parent / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'\.\[(.*?)\]'", text)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert json.loads(re.search(r"ENTRYPOINT (.*)", text)[1]) == ["/opt/psofed/bin/psofed", "federation"]
    assert "status --health" in text


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("name", ["psofed-server", "psofed-client@"])
def test_systemd_accepts_the_units_and_finds_them_closed(tmp_path, name):
    text = (FILES / f"{name}.service").read_text().replace("/opt/psofed/bin/psofed", "/bin/true")
    unit = tmp_path / f"{name}north.service" if name.endswith("@") else tmp_path / f"{name}.service"
    unit.write_text(text)
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
