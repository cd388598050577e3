"""A server on this machine: a SuperLink on loopback, and the front door that nodes come through."""

import datetime
import logging
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.files import only_one, write_json
from psofed.common.logs import OncePerChange
from psofed.federation.deploy.app import HOME_VARIABLE, LOG_JSON_VARIABLE
from psofed.federation.deploy.credentials import check_private
from psofed.federation.deploy.door import FrontDoor
from psofed.federation.deploy.keeper import RunKeeper
from psofed.federation.deploy.limits import DoorLimits
from psofed.federation.deploy.notify import notify
from psofed.federation.deploy.processes import (
    Process,
    Supervisor,
    allow_many_files,
    flower_environment,
    free_port,
    is_listening,
    wait_until,
)
from psofed.federation.deploy.superlink import (
    Home,
    check_closed,
    link_environment,
    register_nodes,
    superexec_command,
    superlink_command,
)
from psofed.federation.flower import Control
from psofed.federation.protocol.bell import BELL_VARIABLE

_log = logging.getLogger("psofed.federation")

START_TIMEOUT = 180.0  # seconds, on a busy machine
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes
    ----------
    home : Home
        Its files.
    supervisor : Supervisor
        Of its processes; more can be started with it.
    door : FrontDoor
        What the nodes connect to.
    control : Control
        To speak with the SuperLink.
    superlink : Process
        The SuperLink, on its own loopback port.
    """

    home: Home
    supervisor: Supervisor
    door: FrontDoor
    control: Control
    superlink: Process

    @property
    def address(self) -> str:
        """Where nodes connect."""
        return f"{self.door.host}:{self.door.port}"

    def watch(self, poll: float = 1.0, *, resume: bool = False) -> None:
        """Let in keys and take up certificates that are made meanwhile, and continue a run whose process has died.

        With `resume` a run that an earlier server has left unfinished is continued as well. It ends when interrupted. A
        process of the server itself that ends is an error.
        """
        keeper, is_news = RunKeeper(self.home, resume=resume), OncePerChange()
        certificate = self.home.credentials.certificate
        shown = certificate.stat().st_mtime_ns
        notify("READY=1")
        try:
            while True:
                self.supervisor.check()
                problem = self._register()
                if is_news("keys", problem) and problem:
                    _log.warning("%s; new keys are let in later", problem)
                if certificate.exists() and certificate.stat().st_mtime_ns != shown and self._renew():
                    shown = certificate.stat().st_mtime_ns
                    _log.info("took up the new certificate %s", certificate)
                ending = self.home.credentials.warning(datetime.datetime.now(datetime.UTC))
                if is_news("certificate", ending) and ending:
                    _log.warning("%s", ending)
                keeper.look()
                notify("WATCHDOG=1")
                time.sleep(poll)
        finally:
            notify("STOPPING=1")

    def _register(self) -> str:
        """Let in keys that were made meanwhile, and return what is in the way."""
        try:
            register_nodes(self.home, self.control)
        except (
            PsofedError
        ) as error:  # a busy machine; a SuperLink that has ended is noticed by the supervisor
            return str(error)
        return ""

    def _renew(self) -> bool:
        try:
            self.door.renew(self.home.credentials)
        except OSError:  # an SSLError is one: the key or the certificate is not written yet
            return False
        return True


@contextmanager
def serve(
    home: Home,
    host: str = "127.0.0.1",
    port: int = 0,
    limits: DoorLimits | None = None,
    *,
    log_json: bool = False,
) -> Iterator[Server]:
    """Run a server until the block is left.

    Parameters
    ----------
    host, port
        Where nodes connect; port 0 for the port it had before, or else any free one.
    limits : DoorLimits, optional
        What the front door puts up with.
    log_json : bool
        Whether runs write their log lines as JSON.
    """
    allow_many_files()
    check_private(home.folder, home.credentials.folder)
    home.credentials.check_server()
    home.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    previous = home.read_server()
    where = f", at {previous['host']}:{previous['port']}" if previous else ""
    link_port = free_port()
    with (
        only_one(home.server_lock, f"a server of {home.folder} is running already{where}"),
        tempfile.TemporaryDirectory(prefix="psofed-") as private,
        Supervisor(home.logs) as supervisor,
    ):
        bell = str(Path(private) / "bell")
        environment = flower_environment(home.flower.resolve())
        environment |= {HOME_VARIABLE: str(home.folder.resolve()), BELL_VARIABLE: bell}
        environment |= {LOG_JSON_VARIABLE: "1"} if log_json else {}
        secret = home.credentials.make_secret()
        home.credentials.make_link_certificate()
        command = superlink_command(home, link_port)
        link = supervisor.start("superlink", command, environment | link_environment(home))
        wait_until(
            lambda: is_listening("127.0.0.1", link_port),
            START_TIMEOUT,
            "starting the SuperLink",
            supervisor.check,
        )
        check_closed(home, link_port)
        # It ends for good if one of its requests is refused, as happens when the clock is set back in between.
        supervisor.start("superexec", superexec_command(home, link_port), environment, restart=True)
        with Control(link_port, home.credentials.link_certificate, secret) as control:
            register_nodes(home, control)
            # The door opens last and closes first: behind an open door there is always somebody.
            with FrontDoor(
                host,
                port or int(previous.get("port", 0)),
                link_port,
                home.credentials,
                home.traffic,
                bell,
                limits,
            ) as door:
                # The file stays when the server ends: the next one takes the same port, where the nodes look.
                write_json(home.server_info, {"host": host, "port": door.port, "superlink_port": link_port})
                yield Server(home, supervisor, door, control, link)


def client_command(
    server: str, home: Path, key: Path, authority: Path, options: Mapping[str, Any]
) -> list[str]:
    """Return the command of a long-lived node: ``psofed federation client``.

    `options` are the command's, by name; True for a switch.
    """
    command = [sys.executable, "-c", "from psofed.cli import main; main()", "federation", "client"]
    command += ["--server", server, "--home", str(home), "--key", str(key), "--ca", str(authority)]
    for name, value in options.items():
        if value is True:
            command.append(f"--{name}")
        elif value is not False:
            command += [f"--{name}", str(value)]
    return command


def exposure_warning(host: str, port: int) -> str | None:
    """Return what to know before a server listens on more than loopback, or None if it does not."""
    if host in LOOPBACK:
        return None
    return (
        f"WARNING: {host}:{port} can be reached from other machines. Only nodes with a registered key get in, and "
        "only Flower's Fleet API is open: runs are submitted and keys registered from this machine alone, by this "
        "user. Let only the nodes' machines reach the port; see docs/federation.md."
    )
