"""The files of a federation, the commands of Flower's processes, and the SuperLink's list of keys.

The SuperLink keeps everything in memory. What must outlive it is ours: the model and what is known of each node are
in the checkpoint, the keys are files, and masks follow from the keys. So a restart loses nothing but the messages of
the round that it cuts short, and each request is twice as fast as with Flower's database.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psofed.common.errors import PsofedError
from psofed.common.files import read_json
from psofed.federation.deploy.credentials import Credentials
from psofed.federation.flower import SECRET_VARIABLE, Control, number_of_key, public_key_of

_log = logging.getLogger("psofed.federation")
_skipped: set[Path] = set()  # files named already; the server looks for new keys every second


@dataclass(frozen=True)
class Home:
    """The files of one federation on one machine, all within `folder`."""

    folder: Path

    @property
    def credentials(self) -> Credentials:
        """Certificates and keys."""
        return Credentials(self.folder / "credentials")

    @property
    def logs(self) -> Path:
        """Folder of all processes' logs."""
        return self.folder / "logs"

    @property
    def flower(self) -> Path:
        """Flower's own folder (FLWR_HOME)."""
        return self.folder / "flower"

    @property
    def app(self) -> Path:
        """The Flower app that is submitted."""
        return self.folder / "app"

    @property
    def server_info(self) -> Path:
        """Where the running server listens."""
        return self.folder / "server.json"

    @property
    def server_lock(self) -> Path:
        """Lock held by the running server."""
        return self.folder / "server.lock"

    @property
    def traffic(self) -> Path:
        """The front door's counts of bytes."""
        return self.folder / "traffic.bin"

    @property
    def checkpoint(self) -> Path:
        """The strategy's checkpoint."""
        return self.folder / "checkpoint.npz"

    @property
    def run_lock(self) -> Path:
        """Lock held by the current run."""
        return self.folder / "run.lock"

    @property
    def stop_mark(self) -> Path:
        """Exists while a run is being stopped, so that the run does not report a failure."""
        return self.folder / "stopping"

    @property
    def settings(self) -> Path:
        """Settings of the latest run."""
        return self.folder / "run.json"

    @property
    def status(self) -> Path:
        """Progress of the latest run."""
        return self.folder / "status.json"

    @property
    def result(self) -> Path:
        """Result of the latest run, as JSON; the labelled arrays lie beside it as NetCDF."""
        return self.folder / "result.json"


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
    number = number_of_key(public_key_of(home.credentials.revoke(name)))
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
    if not home.server_info.exists():
        raise PsofedError(f"no server is running in {home.folder}; start it with: psofed federation server")
    port = int(read_json(home.server_info)["superlink_port"])
    with Control(port, home.credentials.link_certificate, home.credentials.read_secret()) as control:
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
