"""Keys, processes, the relay, settings and results, each by itself."""

import dataclasses
import datetime
import json
import logging
import os
import re
import shutil
import stat
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography import x509
from families import family, living

import psofed
from psofed import Data, Scenario
from psofed.attacks import Gaussian
from psofed.cli.federation_run import _with_rule
from psofed.cli.inputs import ScenarioFile
from psofed.common.errors import InvalidValueError, NotCoveredError, PsofedError
from psofed.common.files import read_json, write_json
from psofed.federation.deploy import superlink, supernode
from psofed.federation.deploy.app import client_app, run_server
from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.demo import demo_settings, predict_demo
from psofed.federation.deploy.door import FrontDoor
from psofed.federation.deploy.processes import (
    OFFLINE,
    Supervisor,
    flower_environment,
    wait_until,
)
from psofed.federation.deploy.server import client_command, exposure_warning, serve
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.status import federation_status
from psofed.federation.deploy.submit import write_app
from psofed.federation.deploy.superlink import Home, register_nodes, superlink_command
from psofed.federation.deploy.supernode import keep_node_running, supernode_command
from psofed.federation.flower import number_of_key, public_key_of
from psofed.federation.protocol.run_options import ReplyLimits
from psofed.federation.testing import InProcessGrid

pytestmark = pytest.mark.federation

# --- credentials ----------------------------------------------------------------------------------------


def test_private_keys_are_for_their_owner_only(tmp_path):
    made = make_credentials(tmp_path / "c", ["server.example", "10.0.0.7"], ["node-0", "node-1"])
    private = [made.key, made.folder / "ca.key", made.node_key("node-0"), made.node_key("node-1")]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in private)
    assert [path.name for path in made.public_keys()] == ["node-0.pub", "node-1.pub"]
    certificate = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", "server.example"}
    assert {str(a) for a in names.get_values_for_type(x509.IPAddress)} == {"127.0.0.1", "10.0.0.7"}
    authority = x509.load_pem_x509_certificate(made.authority.read_bytes())
    certificate.verify_directly_issued_by(authority)


def test_a_folder_that_another_user_made_or_can_write_to_is_refused(tmp_path, monkeypatch):
    """Its owner could have put an authority of his own there, which would sign the server's certificate."""
    (folder := tmp_path / "fed" / "credentials").mkdir(parents=True)
    for place in (folder, folder.parent):
        place.chmod(0o777)
        with pytest.raises(PsofedError, match="could replace the keys in it; choose another --home"):
            make_credentials(folder, [], [])
        with pytest.raises(PsofedError, match="could replace the keys"), serve(Home(folder.parent), "", 0):
            pass
        place.chmod(0o1777)  # where nobody replaces what is another's, as in /tmp
        make_credentials(folder, [], [])
        place.chmod(0o700)
    monkeypatch.setattr("os.geteuid", lambda: folder.stat().st_uid + 1)
    if os.getuid():  # what belongs to root is nobody else's
        with pytest.raises(PsofedError, match="could replace the keys"):
            make_credentials(folder, [], [])


def test_nothing_that_exists_is_replaced_but_a_certificate_that_lacks_a_name(tmp_path):
    made = make_credentials(tmp_path, [], ["node-0"])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    make_credentials(tmp_path, [], ["node-0"])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    make_credentials(tmp_path, ["new.example"], ["node-0"])
    changed = {path.name for path in tmp_path.iterdir() if path.read_bytes() != before[path.name]}
    assert changed == {"server.pem", "server.key"}
    (tmp_path / "ca.key").unlink()
    with pytest.raises(PsofedError, match=r"ca\.key"):
        make_credentials(tmp_path, ["newer.example"], [])
    assert made.authority.exists()


def test_a_new_certificate_still_names_the_hosts_of_before(tmp_path):
    for host in ("old.example", "new.example"):
        made = make_credentials(tmp_path, [host], [])
    certificate = x509.load_pem_x509_certificate(made.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert set(names.get_values_for_type(x509.DNSName)) == {"localhost", "old.example", "new.example"}


@pytest.mark.parametrize(
    "name", ["../x", "a\x1b[31mb", "ca", "server", "", ".hidden", "a/b", "x" * 65, "a b"]
)
def test_a_node_is_named_so_that_its_name_can_be_a_file_and_be_printed(name, tmp_path):
    with pytest.raises(PsofedError, match="node"):
        make_credentials(tmp_path / "c", [], ["pump-1", name])
    assert not (tmp_path / "c").exists()


def test_damaged_credentials_are_refused_by_name(tmp_path):
    made = make_credentials(tmp_path, [], [])
    (tmp_path / "ca.key").write_text("damaged")
    with pytest.raises(PsofedError, match=r"ca\.key is not a key made by psofed"):
        make_credentials(tmp_path, ["new.example"], [])
    made.certificate.write_text("damaged")
    with pytest.raises(PsofedError, match=r"server\.pem is not a certificate; restore it, or move it away"):
        make_credentials(tmp_path, [], [])
    assert "server.pem is not a certificate" in made.warning(datetime.datetime.now(datetime.UTC))
    made.make_link_certificate()
    with pytest.raises(PsofedError, match="are damaged or not a pair"):
        FrontDoor("127.0.0.1", 0, 1, made, tmp_path / "counts", str(tmp_path / "bell"))


def test_a_host_that_no_certificate_can_name_is_refused(tmp_path):
    with pytest.raises(PsofedError, match="host"):
        make_credentials(tmp_path, ["bücher.example"], [])


def test_a_key_that_was_moved_to_its_node_stays_valid(tmp_path):
    made = make_credentials(tmp_path, [], ["pump-1"])
    before = (tmp_path / "pump-1.pub").read_bytes()
    made.node_key("pump-1").unlink()
    make_credentials(tmp_path, [], ["pump-1"])
    assert (tmp_path / "pump-1.pub").read_bytes() == before


def test_a_revoked_node_can_be_given_a_new_key(tmp_path):
    made = make_credentials(tmp_path, [], ["pump-1"])
    before = made.node_key("pump-1").read_bytes()
    made.revoke("pump-1")
    assert made.public_keys() == []
    make_credentials(tmp_path, [], ["pump-1"])
    assert made.node_key("pump-1").read_bytes() != before


def test_missing_files_are_named_before_anything_starts(tmp_path):
    with pytest.raises(PsofedError, match="psofed federation certs"):
        superlink_command(Home(tmp_path), 1)
    with pytest.raises(PsofedError, match="psofed federation certs"):
        supernode_command("h:1", tmp_path / "ca.pem", tmp_path / "k", 1, {})


# --- processes ------------------------------------------------------------------------------------------

FAMILY = (
    "import subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', \"import signal, time; signal.signal(15, signal.SIG_IGN)\\n"
    "print('deaf', flush=True); time.sleep(600)\"]); time.sleep(600)"
)


def test_descendants_that_will_not_end_are_stopped_too(tmp_path):
    with Supervisor(tmp_path, patience=1.0) as supervisor:
        process = supervisor.start("family", [sys.executable, "-c", FAMILY], dict(os.environ))
        wait_until(lambda: "deaf" in process.tail(), 180.0, "the child")
        everybody = family(process.pid)
        assert len(everybody) == 2
    assert not process.is_running
    # Who is killed needs a moment of a busy core.
    wait_until(lambda: not living(everybody), 180.0, "them to end")


def test_a_parent_killed_outright_takes_its_processes_along(tmp_path):
    script = (
        "import os, sys, time\nfrom pathlib import Path\n"
        "from psofed.federation.deploy.processes import Supervisor\n"
        "supervisor = Supervisor(Path(sys.argv[1]))\n"
        "supervisor.start('child', ['sleep', '600'], dict(os.environ))\n"
        "time.sleep(600)\n"
    )
    with Supervisor(tmp_path) as supervisor:
        parent = supervisor.start(
            "parent", [sys.executable, "-c", script, str(tmp_path / "logs")], dict(os.environ)
        )
        wait_until(lambda: len(family(parent.pid)) == 2, 180.0, "the child")
        everybody = family(parent.pid)
        parent.kill()
        wait_until(lambda: living(everybody) == [], 180.0, "the child to follow")


def test_a_process_that_ends_by_itself_is_reported_with_its_log(tmp_path):
    with Supervisor(tmp_path) as supervisor:
        process = supervisor.start(
            "short", [sys.executable, "-c", "print('so long'); exit(3)"], dict(os.environ)
        )
        process.process.wait(timeout=180)
        with pytest.raises(PsofedError, match=r"(?s)short ended with code 3.*so long"):
            supervisor.check()


@pytest.mark.parametrize(
    ("text", "patience", "reason"),
    [("refused", 0.5, "is its key known"), ("CERTIFICATE_VERIFY_FAILED", 60.0, "not issued by --ca")],
)
def test_a_supernode_that_does_not_stay_up_is_given_up_with_the_reason(tmp_path, text, patience, reason):
    said = []
    command = [sys.executable, "-c", f"print('{text}')"]
    with Supervisor(tmp_path) as supervisor, pytest.raises(PsofedError, match=reason):
        keep_node_running(lambda: supervisor.start("node", command, dict(os.environ)), said.append, patience)
    assert bool(said) == (text == "refused")


def test_a_supernode_is_given_up_only_once_it_has_failed_for_longer_than_the_patience(monkeypatch):
    """Each of these lives for ten seconds, but the third for twenty, so that patience starts over."""
    now, lives, said = [1000.0], iter([10.0, 10.0, 20.0, *[10.0] * 99]), []

    class Failing:
        log, process = "the log", SimpleNamespace(returncode=3)

        def __init__(self):
            self.until = now[0] + next(lives)

        @property
        def is_running(self):
            return now[0] < self.until

        def rotate_log(self):
            pass

        def tail(self, lines=10):
            return "refused"

    clock = SimpleNamespace(
        monotonic=lambda: now[0], sleep=lambda seconds: now.__setitem__(0, now[0] + seconds)
    )
    monkeypatch.setattr(supernode, "time", clock)
    with pytest.raises(PsofedError, match="does not stay up"):
        keep_node_running(Failing, said.append, patience=40.0)
    # Restarted after 14, 28 and 52 s; then it fails from 52 s on, and after 62, 76 and 90 s for not too long.
    assert len(said) == 6
    assert 1094.0 <= now[0] <= 1106.0


def test_a_process_without_state_is_started_again_unless_it_keeps_ending(tmp_path):
    """One refused request ends Flower's SuperExec; the server must outlive that."""
    with Supervisor(tmp_path) as supervisor:
        supervisor.start("fickle", ["true"], dict(os.environ), restart=True)
        steady = supervisor.start("steady", ["sleep", "60"], dict(os.environ))
        for _ in range(5):
            supervisor.processes[0].process.wait(timeout=30)
            supervisor.check()
        supervisor.processes[0].process.wait(timeout=30)
        with pytest.raises(PsofedError, match="fickle ended with code 0"):
            supervisor.check()
        assert steady.is_running
    assert not steady.is_running


def test_a_process_is_signalled_once(tmp_path):
    script = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('told', flush=True), time.sleep(1), exit(0)))\n"
        "print('ready', flush=True)\ntime.sleep(600)\n"
    )
    with Supervisor(tmp_path) as supervisor:
        process = supervisor.start("polite", [sys.executable, "-c", script], dict(os.environ))
        wait_until(lambda: "ready" in process.tail(), 180.0, "it to start")
    assert process.tail().count("told") == 1


def test_a_server_may_have_many_connections_whatever_the_shell_says():
    code = (
        "import resource; from psofed.federation.deploy.processes import allow_many_files\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)); allow_many_files()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(told.stdout) >= 4096


def test_waiting_has_an_end():
    with pytest.raises(PsofedError, match=r"nothing took longer than 0\.01 s"):
        wait_until(lambda: False, 0.01, "nothing")


def test_flowers_processes_are_offline_by_default(tmp_path):
    environment = flower_environment(tmp_path)
    assert OFFLINE.items() <= environment.items()
    assert environment["FLWR_HOME"] == str(tmp_path)


def test_a_warning_comes_with_every_address_but_loopback():
    assert exposure_warning("127.0.0.1", 1) is None
    warning = exposure_warning("0.0.0.0", 1) or ""
    assert "Only nodes with a registered key get in" in warning
    assert warning.isprintable()  # one line of the log


def test_a_stray_file_among_the_keys_is_skipped_with_one_warning(tmp_path, monkeypatch):
    # Whatever earlier tests in this process did to loggers.
    warnings = []
    logger = logging.getLogger("psofed.federation")
    monkeypatch.setattr(logger, "warning", lambda text, *values: warnings.append(text % values))

    class Link:
        """The two calls of a SuperLink's Control API that registering needs."""

        names: list = []  # noqa: RUF012

        def nodes(self):
            return []

        def register(self, key, name):
            self.names.append(name)

    home = Home(tmp_path)
    make_credentials(home.credentials.folder, [], ["north"])
    (home.credentials.folder / "notes.pub").write_text("not a key")
    for _ in range(2):
        assert register_nodes(home, Link()) == ["north"]
    assert [text.count("notes.pub") for text in warnings] == [1]


# --- settings, app, results -----------------------------------------------------------------------------


def test_a_run_has_the_limits_on_replies_that_the_strategy_has_by_itself():
    scenario = Scenario(num_clients=3, dimension=2, aggregation="median")
    assert RunSettings(scenario=scenario).limits == ReplyLimits()
    plain = RunSettings(scenario=scenario.replace(aggregation="mean"))
    assert plain.limits == ReplyLimits(max_drift=plain.max_drift)
    assert dataclasses.replace(plain, synthetic=True).limits == ReplyLimits()


def test_settings_survive_flowers_config():
    settings = RunSettings(
        scenario=Scenario(num_clients=6, dimension=3, attack=Gaussian(num_byzantine=1)),
        seed=7,
        leave_out=("North, gate", "S08"),
    )
    assert RunSettings.from_config(settings.to_config()) == settings
    whole = {name: int(v) if isinstance(v, float) else v for name, v in settings.to_config().items()}
    assert RunSettings.from_config(whole) == settings  # 60.0 may arrive as 60
    older = {name: value for name, value in settings.to_config().items() if name != "interval"}
    assert RunSettings.from_config(older) == settings  # written before there was an interval


def test_an_honest_client_needs_no_plugin_for_the_servers_rule_nor_for_the_attack():
    config = RunSettings(scenario=Scenario(num_clients=3, dimension=2, stepsize=0.25)).to_config()
    own = 'plugins = ["my_parts"]\naggregation = "my-rule"\n'
    config["scenario"] = own + str(config["scenario"]).replace('aggregation = "mean"\n', "")
    config["scenario"] += '\n[attack]\nkind = "my-attack"\n\n[defence]\nkind = "my-defence"\n'
    assert RunSettings.for_client(config).scenario.stepsize == 0.25
    with pytest.raises(PsofedError, match="my_parts"):
        RunSettings.for_client(config, attack=True)
    with pytest.raises(PsofedError, match="my_parts"):
        RunSettings.from_config(config)


@pytest.mark.parametrize("bad", [{"deadline": 0}, {"seed": -1}, {"dtype": "int8"}, {"samples_per_round": -1}])
def test_bad_settings_are_named(bad):
    with pytest.raises(InvalidValueError, match=next(iter(bad))):
        RunSettings(scenario=Scenario(num_clients=6, dimension=3), **bad)


@pytest.mark.parametrize(
    "change",
    [
        {"uplink": "redrawn"},
        {"algorithm": "online-fed"},
        {"model": psofed.models.Rff(features=3)},
        {"drift": psofed.drifts.RandomWalk(variance=0.1)},
        {"data": psofed.Data(function="sine")},
    ],
)
def test_what_only_the_simulator_can_do_is_refused(change):
    with pytest.raises(NotCoveredError, match=next(iter(change))):
        RunSettings(scenario=Scenario(num_clients=6, dimension=3, **change), synthetic=True)


def test_the_app_that_is_submitted_carries_settings_and_no_paths(tmp_path):
    home = Home(tmp_path)
    settings = RunSettings(scenario=Scenario(num_clients=6, dimension=3))
    write_app(home, settings.to_config())
    import tomllib

    written = tomllib.loads((home.app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert RunSettings.from_config(written["config"]) == settings
    assert str(tmp_path) not in (home.app / "pyproject.toml").read_text()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small run of the ready-made app on a Grid within this process."""
    scenario = Scenario(
        num_clients=4, dimension=4, num_participants=2, iterations=60, attack=Gaussian(num_byzantine=1, variance=0.1),
        data=Data(noise_variance=0.01),
    )  # fmt: skip
    settings = RunSettings(scenario=scenario, synthetic=True, seed=3)
    nodes = {101 + k: {"partition": k, "byzantine": k == 0} for k in range(4)}
    grid = InProcessGrid(dict.fromkeys(nodes, client_app), node_config=nodes)
    for context in grid.contexts.values():
        context.run_config = settings.to_config()
    home = Home(tmp_path_factory.mktemp("finished"))
    run_server(grid, settings, home)
    return home


def test_the_ready_made_app_learns_and_reports(finished):
    result = read_json(finished.result)
    curve = result["learning_curve"]
    assert curve["round"] == list(range(1, 61))
    assert np.mean(curve["network_mse"][-20:]) < 0.1 * np.mean(curve["network_mse"][:5])
    assert curve["server_msd"][-1] < 0.3
    assert min(curve["clients_reporting"][:30]) == 4  # those left out have caught up by the end
    traffic = result["communication"]
    assert traffic["values_down"] == traffic["values_up"] == 60 * 2
    assert traffic["fraction_of_full_sharing"] == 0.25
    assert traffic["socket_bytes_up"] is None  # there was no front door to count
    assert read_json(finished.status)["state"] == "finished"


def test_the_result_is_read_like_a_simulations(finished):
    loaded = psofed.load_result(finished.result.with_suffix(".nc"))
    result = read_json(finished.result)
    np.testing.assert_array_equal(loaded.curve["network_mse"], result["learning_curve"]["network_mse"])
    assert loaded.curve["server_msd"][0] == pytest.approx(1.0)  # as in a simulation, at the round's start
    np.testing.assert_array_equal(loaded.curve["server_msd"][1:], result["learning_curve"]["server_msd"][:-1])
    assert loaded.trials == 1
    assert loaded.scenario.dimension == 4


def test_the_status_is_told_without_a_server(finished):
    status = federation_status(finished)
    assert status["server"] is None
    assert status["run"]["round"] == 60
    assert "checkpoint.npz" in status["checkpoint"]
    with pytest.raises(PsofedError, match="there is no federation"):
        federation_status(Home(finished.folder / "absent"))


def test_clients_of_csv_files_learn_from_what_arrives(tmp_path):
    """Two files grow between rounds; nothing is read twice, also by a client that was left out."""
    truth = np.array([0.5, -1.0, 2.0])
    rng = np.random.default_rng(0)
    files = [tmp_path / f"readings-{k}.csv" for k in range(3)]

    def grow():
        for path in files:
            with path.open("a") as file:
                for x in rng.standard_normal((20, 3)):
                    file.write(",".join(map(repr, [*x.tolist(), float(x @ truth)])) + "\n")

    grow()
    settings = RunSettings(
        scenario=Scenario(num_clients=3, dimension=3, num_participants=2, iterations=25, stepsize=0.1),
        samples_per_round=0,
    )
    nodes = {7 + k: {"data": str(path)} for k, path in enumerate(files)}
    grid = InProcessGrid(
        dict.fromkeys(nodes, client_app), node_config=nodes, tamper=lambda reply: (grow(), [reply])[1]
    )
    for context in grid.contexts.values():
        context.run_config = settings.to_config()
    run_server(grid, settings, Home(tmp_path / "home"))
    result = read_json(tmp_path / "home" / "result.json")
    # Scaled as they come: the inputs have a deviation of 1, the target one of ‖truth‖.
    np.testing.assert_allclose(np.array(result["model"]) * np.linalg.norm(truth), truth, atol=0.15)
    examples = sum(record["examples"] for record in result["history"])
    lines = sum(len(path.read_text().splitlines()) for path in files)
    assert lines - 3 * 20 * 12 < examples <= lines
    assert result["bad_replies"] == {}
    assert result["learning_curve"]["server_msd"] == [None] * 25  # nobody knows the truth


def test_a_client_without_data_says_so(tmp_path):
    settings = RunSettings(scenario=Scenario(num_clients=1, dimension=3, num_participants=1, iterations=1))
    grid = InProcessGrid({5: client_app})
    grid.contexts[5].run_config = settings.to_config()
    with pytest.raises(PsofedError, match="no node could name its columns"):
        run_server(grid, settings, Home(tmp_path))


def test_the_prediction_covers_one_sample_per_round_only():
    assert predict_demo(demo_settings(4, 5, seed=0, samples_per_round=10)) is None


def test_the_prediction_has_a_number_for_every_round_and_single_runs_around_it():
    prediction = predict_demo(demo_settings(4, 5, seed=0), trials=64)
    assert [len(curve) for curve in dataclasses.astuple(prediction)] == [5] * 4
    assert (np.array(prediction.low) < prediction.server_msd).all()
    assert (np.array(prediction.server_msd) < prediction.high).all()


def test_a_run_whose_curve_is_averaged_over_rounds_has_no_prediction(monkeypatch):
    from psofed.simulation import monte_carlo

    averaged = SimpleNamespace(trial_curves={"server_msd": np.zeros((2, 3))}, bin_width=2)
    monkeypatch.setattr(monte_carlo, "simulate", lambda *scenario, **settings: averaged)
    assert predict_demo(demo_settings(4, 5, seed=0)) is None


# --- the command line -----------------------------------------------------------------------------------


def test_a_key_is_made_a_gateways_and_stays_the_same_key(tmp_path):
    made = make_credentials(tmp_path, [], ["north"], ["plant"])
    assert [made.is_gateway(name) for name in ("north", "plant", "absent")] == [False, True, False]
    before = public_key_of(made.public_key("north"))
    assert make_credentials(tmp_path, [], [], ["north"]).is_gateway("north")
    assert public_key_of(made.public_key("north")) == before
    made.revoke("north")
    assert not make_credentials(tmp_path, [], ["north"]).is_gateway("north")
    with pytest.raises(PsofedError, match="--gateway must be"):
        make_credentials(tmp_path, [], [], ["ca"])


def test_certs_are_made_and_listed(tmp_path, psofed_command):
    done = psofed_command(
        "federation", "certs", "--home", str(tmp_path), "--nodes", "2", "--host", "server.example"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("goes to that node alone") == 2


@pytest.mark.parametrize(
    ("line", "changes", "synthetic", "said"),
    [
        ("", (), False, 'names no aggregation rule: using "centred-clipping"'),
        ('aggregation = "mean"', (), False, "one Byzantine node can lead the model away"),
        ('aggregation = "median"', (), False, ""),
        ("", ("aggregation=krum",), False, ""),
        ("", (), True, ""),
    ],
)
def test_a_run_says_which_rule_it_uses_unless_the_scenario_names_a_robust_one(
    tmp_path, line, changes, synthetic, said
):
    scenario = tmp_path / "s.toml"
    scenario.write_text(f"num_clients = 5\ndimension = 3\n{line}\n")
    _, remark = _with_rule(ScenarioFile(file=scenario, changes=changes), synthetic)
    assert said in remark
    assert bool(said) == bool(remark)


def test_mistakes_end_with_one_line_and_code_2(tmp_path, psofed_command):
    scenario = tmp_path / "s.toml"
    scenario.write_text(Scenario(num_clients=5, dimension=3).to_toml())
    cases = {
        ("server", "--home", str(tmp_path)): f"psofed federation certs --home {tmp_path}",
        ("run", str(scenario), "--home", str(tmp_path)): f"psofed federation server --home {tmp_path}",
        ("stop", "--home", str(tmp_path / "absent")): "no federation",
        ("client", "--server", "http://localhost:9092"): "--server must be HOST:PORT",
        ("client", "--data", str(scenario)): "this is TOML",
        ("client", "--data", "no_such_module:samples"): "cannot load no_such_module:samples",
        (
            "export",
            "--out",
            "m.npz",
            "--home",
            str(tmp_path),
            "--scaling",
            "nobody",
        ): "nobody: not the folder",
        ("resume", "--home", str(tmp_path)): "no round has been completed",
        ("status", "--home", str(tmp_path / "absent")): "no federation",
        ("client", "--data", "absent.csv", "--home", str(tmp_path)): "--data absent.csv: no such file",
    }
    for arguments, text in cases.items():
        done = psofed_command("federation", *arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert text in done.stderr
        assert "Traceback" not in done.stderr


def test_without_flower_the_error_says_what_to_install():
    script = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'flwr' else real(name, *a)\n"
        "sys.argv = ['psofed', 'federation', 'demo']\n"
        "from psofed.cli import main; main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 2
    assert "pip install -e '.[federation]'" in done.stderr


def test_help_imports_nothing_of_flower():
    script = (
        "import sys; sys.argv = ['psofed', 'federation', '--help']\n"
        "from psofed.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "import json; print(json.dumps([m for m in ('flwr', 'numpy', 'grpc') if m in sys.modules]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=180, check=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_a_run_can_be_drawn_beside_its_prediction(finished, tmp_path):
    from psofed.federation.deploy.demo import RunPrediction
    from psofed.federation.deploy.outcome import FederationOutcome
    from psofed.render.figures import save_figure

    result = read_json(finished.result)
    flat = [0.1] * 60
    figure = FederationOutcome(result, RunPrediction(flat, flat, [0.05] * 60, [0.2] * 60)).plot()
    save_figure(figure, tmp_path / "curve.svg")
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "server MSD, theory" in labels
    assert "server MSD, 90 % of simulated runs" in labels
    assert len(FederationOutcome(result).plot().legends[0].get_texts()) == 2


def test_an_outcome_shows_rounds_with_a_value_and_claims_no_byzantine_clients_it_cannot_know(finished):
    from psofed.federation.deploy.outcome import FederationOutcome

    result = read_json(finished.result)
    assert "4 clients, 1 Byzantine, sharing 1 of 4 parameters." in str(FederationOutcome(result))
    result["settings"]["synthetic"] = False
    curve = result["learning_curve"]
    curve["network_mse"], curve["server_msd"] = [0.5, *[None] * 59], [None] * 60
    report = FederationOutcome(result).report()
    assert report.subject == "4 clients, sharing 1 of 4 parameters."
    assert [row[0] for row in report.tables[0].rows] == [1]
    curve["network_mse"] = [None] * 60
    assert not FederationOutcome(result).report().tables


def test_the_status_is_shown_by_name(finished):
    from psofed.federation.deploy.status import status_lines

    found = federation_status(finished)
    found["nodes"] = [{"name": "pump-1", "status": "online", "last_seen": 100.0, "last_round": 7}]
    found["bad_replies"] = {"pump-1": {"nan": 2}}
    found["run"]["resting"] = {"pump-2": 75}
    text = "\n".join(status_lines(found, now=103.4))
    assert "resting    pump-2 (until round 75): did not answer" in text
    assert "finished, round 60 of 60" in text
    assert "pump-1  online            3 s           7  2 nan" in text


def test_a_revoked_node_is_told_to_a_server_that_runs(tmp_path, monkeypatch):
    home = SimpleNamespace(credentials=make_credentials(tmp_path, [], ["node-0", "node-1"]))
    number, told = number_of_key(public_key_of(home.credentials.public_keys()[0])), []
    nodes = [{"number": number, "id": 7}, {"number": number + 1, "id": 8}]
    running = SimpleNamespace(nodes=lambda: nodes, unregister=told.append)
    monkeypatch.setattr(superlink, "open_control", lambda home: nullcontext(running))
    assert superlink.revoke_node(home, "node-0")
    assert told == [7]

    def refuse(home):
        raise PsofedError("not running")

    monkeypatch.setattr(superlink, "open_control", refuse)
    assert not superlink.revoke_node(home, "node-1")


def test_a_file_that_is_no_key_is_refused_before_it_is_moved(tmp_path):
    home = SimpleNamespace(credentials=make_credentials(tmp_path, [], ["node-0"]))
    (tmp_path / "node-0.pub").write_text("not a key")
    with pytest.raises(PsofedError, match=r"node-0\.pub is not a node's public key"):
        superlink.revoke_node(home, "node-0")
    assert (tmp_path / "node-0.pub").read_text() == "not a key"
    assert home.credentials.node_key("node-0").exists()
    assert not (tmp_path / "revoked").exists()


def test_the_status_counts_bad_replies_and_names_suspects(tmp_path):
    home = Home(tmp_path)
    assert federation_status(home)["bad_replies"] == {}
    counts, suspects = {"node-1": {"nan": 2}}, {"node-1": {"out": True, "since_round": 3}}
    write_json(home.status, {"conduct": {"counts": counts}, "suspects": suspects})
    found = federation_status(home)
    assert (found["bad_replies"], found["suspects"], found["server"]) == (counts, suspects, None)


def test_a_nodes_command_has_switches_that_are_on_and_values_that_are_given():
    options = {"byzantine": True, "quiet": False, "partition": 3, "label": ""}
    command = client_command("host:1", Path("home"), Path("node.key"), Path("ca.pem"), options)
    assert command[-5:] == ["--byzantine", "--partition", "3", "--label", ""]
    assert command[-13:-5] == ["--server", "host:1", "--home", "home", "--key", "node.key", "--ca", "ca.pem"]


def test_figures_for_prometheus(finished):
    pytest.importorskip("prometheus_client")
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    from psofed.federation.deploy.metrics import serve_metrics

    with serve_metrics(finished, 0) as port:
        address = f"http://127.0.0.1:{port}/metrics"
        with urlopen(address, timeout=120) as page:
            text = page.read().decode()
        with pytest.raises(
            HTTPError, match="400"
        ):  # of a web page that calls this machine by a name of its own
            urlopen(Request(address, headers={"Host": "evil.example"}), timeout=120)
    assert "psofed_round 60.0" in text
    assert "psofed_running 0.0" in text
    reported = [float(value) for value in re.findall(r"psofed_node_squared_error{.*} (\S+)", text)]
    assert len(reported) == 4
    assert f"psofed_network_mse {np.mean(reported)}"[:30] in text


def test_the_dashboard_asks_for_metrics_that_exist(tmp_path):
    pytest.importorskip("prometheus_client")
    from prometheus_client import CollectorRegistry, generate_latest

    from psofed.federation.deploy.metrics import FederationCollector

    suspects = {"a": {"out": True, "since_round": 3}}
    run = {"conduct": {"counts": {"a": {"nan": 2}}}, "suspects": suspects, "errors": {"a": 0.5}}
    write_json(Home(tmp_path).status, run)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FederationCollector(Home(tmp_path)))
    offered = set(re.findall(r"^# TYPE (\w+)", generate_latest(registry).decode(), flags=re.M))
    dashboard = read_json(Path(__file__).parents[2] / "examples" / "federation" / "grafana.json")
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = {name for query in queries for name in re.findall(r"psofed_\w+", query)}
    assert asked <= offered, asked - offered
    assert offered <= asked | {"psofed_rounds"}, "a metric that the dashboard does not show"


def test_a_second_run_never_replaces_a_result_unasked(finished):
    from psofed.common.files import only_one
    from psofed.federation.deploy.submit import check_free

    with pytest.raises(PsofedError, match="--force"):
        check_free(finished)
    check_free(finished, force=True)
    with only_one(finished.run_lock, ""), pytest.raises(PsofedError, match="in progress"):
        check_free(finished, force=True)


def test_a_server_continues_its_own_runs_and_not_those_that_another_has_left_behind(tmp_path, monkeypatch):
    """Whoever starts a killed server again says `resume`; a second continuation would be in its way."""
    from psofed.federation.deploy.keeper import RunKeeper

    continued = []
    monkeypatch.setattr(RunKeeper, "_continue", lambda self, run: continued.append(run))
    home = Home(tmp_path)
    write_json(home.status, {"round": 3, "state": "running", "run": "1"})
    keeper = RunKeeper(home)
    for _ in range(4):
        keeper.look()
    assert continued == []
    write_json(
        home.status, {"round": 3, "state": "running", "run": "2"}
    )  # what `resume` has submitted, and died
    for _ in range(4):
        keeper.look()
    assert continued == ["2", "2"]
    for damaged in ("{", "[]", "{}"):
        home.status.write_text(damaged)
        keeper.look()
    assert continued == ["2", "2"]


def test_a_run_without_a_completed_round_is_not_continued_from_the_one_that_it_replaces(
    finished, tmp_path, psofed_command
):
    from psofed.federation.deploy.submit import has_completed_round
    from psofed.federation.server.checkpoint import CheckpointStore

    assert has_completed_round(finished)
    home = Home(tmp_path)
    shutil.copy(finished.checkpoint, home.checkpoint)
    replaced = CheckpointStore(home.checkpoint).session()
    write_json(
        home.status, {"round": 0, "state": "interrupted", "replaces": replaced}
    )  # as `submit` writes it
    assert not has_completed_round(home)
    told = psofed_command("federation", "resume", "--home", tmp_path)
    assert (told.returncode, told.stderr.count("\n")) == (2, 1)
    assert "belongs to an earlier run" in told.stderr
    write_json(home.status, {"round": 0, "state": "interrupted", "replaces": "the session before"})
    assert has_completed_round(home)


def test_a_checkpoint_survives_a_power_loss_before_a_resumed_run_builds_on_it(finished):
    from psofed.common.disk import Disk, use_disk
    from psofed.federation.server.checkpoint import CheckpointStore
    from psofed.federation.server.sessions import load_usable

    done = []

    class Watched(Disk):
        """Notes syncs of folders and reads."""

        def sync_folder(self, folder):
            done.append(("sync", folder))
            super().sync_folder(folder)

        def read(self, path):
            done.append(("read", path))
            return super().read(path)

    with use_disk(Watched()):
        load_usable(CheckpointStore(finished.checkpoint))
    assert done[:2] == [("sync", finished.checkpoint.parent), ("read", finished.checkpoint)]
