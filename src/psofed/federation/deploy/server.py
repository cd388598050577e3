"""A server on this machine: SuperLink on loopback, gate and relay in front, registered keys let in."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psofed.common.errors import PsofedError
from psofed.federation.app import HOME_VARIABLE
from psofed.federation.deploy.gate import Gate
from psofed.federation.deploy.processes import (
    Process,
    Supervisor,
    flower_environment,
    free_port,
    is_listening,
    wait_until,
)
from psofed.federation.deploy.relay import Relay
from psofed.federation.deploy.superlink import (
    Home,
    register_nodes,
    superlink_command,
    supernode_command,
    write_connection,
)
from psofed.federation.files import read_json, write_json

START_TIMEOUT = 60.0
HASTY_END = 10.0
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
    relay : Relay
        What the nodes connect to.
    superlink : Process
        The SuperLink, on a loopback port of its own.
    """

    home: Home
    supervisor: Supervisor
    relay: Relay
    superlink: Process

    @property
    def address(self) -> str:
        """Where nodes connect."""
        return f"{self.relay.host}:{self.relay.port}"


@contextmanager
def serve(home: Home, host: str = "127.0.0.1", port: int = 0) -> Iterator[Server]:
    """Run a server until the block is left.

    Parameters
    ----------
    host, port
        Where nodes connect; port 0 for the port it had before, or else any free one.
    """
    home.credentials.check_server()
    home.folder.mkdir(parents=True, exist_ok=True)
    previous = read_json(home.server_info) if home.server_info.exists() else {}
    if previous and is_listening("127.0.0.1", int(previous["superlink_port"])):
        raise PsofedError(
            f"a server of {home.folder} is running already, at {previous['host']}:{previous['port']}"
        )
    link_port = free_port()
    environment = {**flower_environment(home.flower.resolve()), HOME_VARIABLE: str(home.folder.resolve())}
    with Supervisor(home.logs) as supervisor:
        link = supervisor.start("superlink", superlink_command(home, link_port), environment)
        wait_until(
            lambda: is_listening("127.0.0.1", link_port),
            START_TIMEOUT,
            "starting the SuperLink",
            supervisor.check,
        )
        write_connection(home, link_port)
        register_nodes(home)
        # The relay opens last and closes first: a SuperNode that is refused a connection tries again, but one
        # whose connection is accepted and then closed takes that for a TLS error and gives up for good.
        with (
            Gate(link_port, home.credentials) as gate,
            Relay(host, port or int(previous.get("port", 0)), gate.port, home.traffic) as relay,
        ):
            # The file stays when the server ends: the next one takes the same port, where the nodes look.
            write_json(home.server_info, {"host": host, "port": relay.port, "superlink_port": link_port})
            yield Server(home, supervisor, relay, link)


def start_node(
    server: str,
    home: Path,
    key: Path,
    authority: Path,
    settings: dict[str, str | int | float | bool],
    supervisor: Supervisor,
) -> Process:
    """Start a SuperNode, with a Flower home and a folder for its model of its own in `home`."""
    settings = {"psofed-state": str((home / "state").resolve()), **settings}
    command = supernode_command(server, authority, key, free_port(), settings)
    return supervisor.start(home.name, command, flower_environment((home / "flower").resolve()))


def keep_node_running(
    start: Callable[[], Process], on_restart: Callable[[str], None], poll: float = 0.5
) -> None:
    """Start a SuperNode, and start it again whenever it ends by itself, until interrupted.

    Flower's SuperNode waits for a server that is away, but gives up for good on some errors of a moment. Its
    model is on disk, so a new one goes on where it was. One that ends three times within ten seconds of its
    start, say because the server does not know its key, is given up.
    """
    hasty = 0
    while True:
        process, started = start(), time.monotonic()
        while process.is_running:
            time.sleep(poll)
        hasty = hasty + 1 if time.monotonic() - started < HASTY_END else 0
        if hasty >= 3:
            raise PsofedError(f"the SuperNode does not stay up; the end of {process.log}:\n{process.tail()}")
        on_restart(f"the SuperNode has ended (code {process.process.returncode}); starting it again")
        time.sleep(min(2.0**hasty, 8.0))


def exposure_warning(host: str, port: int) -> str | None:
    """Return what to know before a server listens on more than loopback, or None if it does not."""
    if host in LOOPBACK:
        return None
    return (
        f"WARNING: {host}:{port} can be reached from other machines. Only nodes with a registered key get in, and\n"
        "only Flower's Fleet API is open: runs are submitted and keys registered from this machine alone, where\n"
        "Flower asks no credential of any user. Let only the nodes' machines reach the port; see docs/federation.md."
    )
