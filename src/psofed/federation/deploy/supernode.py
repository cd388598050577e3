"""Flower's own SuperNode, for Flower versions that the long-lived node was not tested with, and to compare."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.toml import toml_value
from psofed.federation.deploy.credentials import check_made
from psofed.federation.deploy.processes import Process, Supervisor, flower_environment, free_port

HASTY_END = 15.0
STILL_ONLINE = 75.0  # Flower takes a SuperNode for online for 60 s after its last sign of life


def supernode_command(
    server: str, authority: Path, key: Path, port: int, settings: Mapping[str, Any]
) -> list[str]:
    """Return the command of a SuperNode; `port` is for its own processes and on loopback."""
    check_made(authority, key)
    return [
        "flower-supernode",
        *("--superlink", server),
        *("--root-certificates", str(authority)),
        *("--auth-supernode-private-key", str(key)),
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--node-config", " ".join(f"{name}={toml_value(value)}" for name, value in settings.items())),
    ]


def start_supernode(
    server: str,
    home: Path,
    key: Path,
    authority: Path,
    settings: dict[str, str | int | float | bool],
    supervisor: Supervisor,
) -> Process:
    """Start Flower's SuperNode, with its own Flower home and a folder for its model in `home`."""
    settings = {"psofed-state": str((home / "state").resolve()), **settings}
    command = supernode_command(server, authority, key, free_port(), settings)
    return supervisor.start(home.name, command, flower_environment((home / "flower").resolve()))


def keep_node_running(
    start: Callable[[], Process], on_restart: Callable[[str], None], patience: float = STILL_ONLINE
) -> None:
    """Start a SuperNode, and start it again whenever it ends by itself, until interrupted.

    Flower's SuperNode waits for a server that is away, but gives up for good on some errors of a moment: one that was
    killed is taken for online for a minute, and refused. Its model is on disk, so a new one continues where it was. It
    is given up at once if the server's authority is another, and if it has not stayed up for longer than `patience`.
    """
    first_failure: float | None = None
    while True:
        process, started = start(), time.monotonic()
        while process.is_running:
            process.rotate_log()
            time.sleep(0.2)
        ended = time.monotonic()
        text = process.tail(40)
        if "CERTIFICATE_VERIFY_FAILED" in text:
            raise PsofedError("the server's certificate was not issued by --ca")
        if ended - started > HASTY_END:
            first_failure = None
        elif first_failure is None:
            first_failure = started
        elif ended - first_failure > patience:
            raise PsofedError(
                f"the SuperNode does not stay up; is its key known to the server? The end of {process.log}:\n"
                f"{process.tail()}"
            )
        on_restart(f"the SuperNode has ended (code {process.process.returncode}); starting it again")
        time.sleep(min(5.0, patience / 10))
