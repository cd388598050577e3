"""The files of a federation, the commands of Flower's processes, and the SuperLink's list of keys.

The SuperLink keeps everything in memory. What must outlive it is ours: the model and what is known of each node are
in the checkpoint, the keys are files, and masks follow from the keys. So a restart loses nothing but the messages of
the round that it cuts short, and each request is twice as fast as with Flower's database.
"""

import logging
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.files import read_json, write_json
from psofed.federation.deploy.credentials import Credentials
from psofed.federation.flower import SECRET_VARIABLE, Control, number_of_key, public_key_of

_log = logging.getLogger("psofed.federation")
_skipped: set[Path] = set()  # files named already; the server looks for new keys every second


class Home:
    """The files of one federation on one machine, all within `folder`.

    Attributes
    ----------
    credentials : Credentials
        Certificates and keys.
    logs, flower, app : path
        Folders: all processes' logs, Flower's own files (FLWR_HOME), and the Flower app that is submitted.
    server_info, server_lock : path
        Where the running server listens, and the lock that it holds.
    traffic : path
        The front door's counts of bytes.
    settings, status, checkpoint, result : path
        Of the latest run: its settings, its progress, the strategy's checkpoint, and the result as JSON. The labelled
        arrays lie beside the result as NetCDF.
    run_lock : path
        Lock held by the current run.
    stop_mark : path
        Exists while a run is being stopped, so that the run does not report a failure.
    """

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder
        self.credentials: Credentials = Credentials(folder / "credentials")
        self.logs: Path = folder / "logs"
        self.flower: Path = folder / "flower"
        self.app: Path = folder / "app"
        self.server_info: Path = folder / "server.json"
        self.server_lock: Path = folder / "server.lock"
        self.traffic: Path = folder / "traffic.bin"
        self.settings: Path = folder / "run.json"
        self.status: Path = folder / "status.json"
        self.checkpoint: Path = folder / "checkpoint.npz"
        self.result: Path = folder / "result.json"
        self.run_lock: Path = folder / "run.lock"
        self.stop_mark: Path = folder / "stopping"

    def command(self, words: str) -> str:
        """Return a command about this federation, to be pasted.

        Examples
        --------
        >>> Home(Path("fed")).command("resume")
        '`psofed federation resume --home fed`'
        """
        return f"`psofed federation {words} --home {shlex.quote(str(self.folder))}`"

    def read_status(self) -> dict[str, Any]:
        """Return the progress of the latest run; empty if there was none."""
        return _read_table(self.status)

    def write_status(self, status: Mapping[str, Any], **changes: Any) -> None:
        """Write the progress of the latest run, with some changes."""
        write_json(self.status, {**status, **changes})

    def read_server(self) -> dict[str, Any]:
        """Return where the server that was started last listens; empty if there was none."""
        return _read_table(self.server_info)


def _read_table(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; empty if there is no file."""
    found = read_json(path) if path.exists() else {}
    if not isinstance(found, dict):
        raise PsofedError(f"{path} is damaged: it holds no JSON object; move it away")
    return found


def superlink_command(home: Home, port: int) -> list[str]:
    """Return the command of a SuperLink on loopback, with TLS and node keys; it starts no further processes.

    It needs the environment of :func:`link_environment`.
    """
    credentials = home.credentials
    credentials.check_server()
    return [
        *(sys.executable, "-c", "from psofed.federation.flower.link import main; main()"),
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--ssl-ca-certfile", str(credentials.link_certificate)),
        *("--ssl-certfile", str(credentials.link_certificate)),
        *("--ssl-keyfile", str(credentials.link_key)),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        *("--isolation", "process"),
        *("--superexec-auth-secret-file", str(credentials.secret)),
    ]


def link_environment(home: Home) -> dict[str, str]:
    """Return what the SuperLink must be told by its environment: where its secret is."""
    return {SECRET_VARIABLE: str(home.credentials.secret.resolve())}


def superexec_command(home: Home, port: int) -> list[str]:
    """Return the command of the SuperExec that starts a SuperLink's ServerApps, in its own process group."""
    return [
        "flower-superexec",
        *("--runtime-api-address", f"127.0.0.1:{port}"),
        *("--root-certificates", str(home.credentials.link_certificate)),
        *("--superexec-auth-secret-file", str(home.credentials.secret)),
    ]


def register_nodes(home: Home, control: Control) -> list[str]:
    """Register the public keys of the credentials that the SuperLink does not know; return their names.

    A file that holds no node's key is skipped, with a warning when it is first met.
    """
    known = {node["number"] for node in control.nodes()}
    new = []
    for path in home.credentials.public_keys():
        try:
            key = public_key_of(path)
        except PsofedError as error:
            if path not in _skipped:
                _skipped.add(path)
                _log.warning("skipped: %s", error)
            continue
        if number_of_key(key) not in known:
            control.register(key, path.stem)
            new.append(path.stem)
    return new


def revoke_node(home: Home, name: str) -> bool:
    """Revoke a node's access, and return whether a running server was told; the front door refuses it at once."""
    number = number_of_key(public_key_of(home.credentials.public_key(name)))  # or nothing is moved
    home.credentials.revoke(name)
    try:
        with open_control(home) as control:
            for node in control.nodes():
                if node["number"] == number:
                    control.unregister(node["id"])
    except PsofedError:
        return False
    return True


@contextmanager
def open_control(home: Home) -> Iterator[Control]:
    """Speak with the SuperLink of a running server; raise PsofedError if no server is running."""
    server, credentials = home.read_server(), home.credentials
    if not server:
        raise PsofedError(f"no server is running in {home.folder}; start it with {home.command('server')}")
    port, secret = int(server["superlink_port"]), credentials.read_secret()
    with Control(port, credentials.link_certificate, secret) as control:
        yield control


def check_closed(home: Home, port: int) -> None:
    """Raise a PsofedError if the SuperLink at `port` answers somebody who does not know its secret."""
    with Control(port, home.credentials.link_certificate) as stranger:
        try:
            stranger.nodes()
        except PsofedError:
            return
    raise PsofedError(
        "the SuperLink answers without its secret, so every user of this machine could run code here; "
        "this version of Flower is not supported"
    )
