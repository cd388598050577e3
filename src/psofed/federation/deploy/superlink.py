"""The commands that start Flower's processes, and Flower's own settings file."""

import json
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError
from psofed.federation.deploy.credentials import Credentials
from psofed.federation.deploy.processes import flower_environment

CONNECTION = "psofed"


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
    def database(self) -> Path:
        """The SuperLink's memory: nodes and keys."""
        return self.folder / "superlink.db"

    @property
    def registered(self) -> Path:
        """Public keys that the SuperLink has been told."""
        return self.folder / "registered.json"

    @property
    def server_info(self) -> Path:
        """Where the running server listens."""
        return self.folder / "server.json"

    @property
    def traffic(self) -> Path:
        """The relay's counts."""
        return self.folder / "traffic.bin"

    @property
    def checkpoint(self) -> Path:
        """The strategy's checkpoint."""
        return self.folder / "checkpoint.npz"

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
    """Return the command of a SuperLink on loopback, with TLS and node keys."""
    credentials = home.credentials
    credentials.check_server()
    return [
        "flower-superlink",
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--ssl-ca-certfile", str(credentials.authority)),
        *("--ssl-certfile", str(credentials.certificate)),
        *("--ssl-keyfile", str(credentials.key)),
        *("--database", str(home.database)),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]


def supernode_command(
    server: str, authority: Path, key: Path, port: int, settings: Mapping[str, Any]
) -> list[str]:
    """Return the command of a SuperNode; `port` is for its own processes and on loopback."""
    for path in (authority, key):
        if not path.is_file():
            raise PsofedError(f"there is no {path}; make it with: psofed federation certs")
    return [
        "flower-supernode",
        *("--superlink", server),
        *("--root-certificates", str(authority)),
        *("--auth-supernode-private-key", str(key)),
        *("--host", "127.0.0.1"),
        *("--port", str(port)),
        *("--node-config", " ".join(f"{name}={to_toml_value(value)}" for name, value in settings.items())),
    ]


def write_connection(home: Home, port: int) -> None:
    """Write Flower's settings so that its command line finds the SuperLink on this machine."""
    home.flower.mkdir(parents=True, exist_ok=True)
    authority = home.credentials.authority.resolve()
    (home.flower / "config.toml").write_text(
        f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
        f'address = "127.0.0.1:{port}"\nroot-certificates = {to_toml_value(str(authority))}\n'
    )


def flower_command(home: Home, *arguments: str, timeout: float = 60.0) -> dict[str, Any]:
    """Run ``flwr …  --format json`` against the SuperLink on this machine and return what it prints."""
    try:
        done = subprocess.run(
            ["flwr", *arguments, "--format", "json"],
            env=flower_environment(home.flower.resolve()),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise PsofedError(f"flwr {arguments[0]} took longer than {timeout:g} s") from None
    start = done.stdout.find("{")
    try:
        answer = json.loads(done.stdout[start:]) if start >= 0 else {}
    except ValueError:
        answer = {}
    if done.returncode or not isinstance(answer, dict) or answer.get("success") is False or not answer:
        text = answer.get("error-message") if answer else (done.stderr or done.stdout).strip()[-800:]
        raise PsofedError(f"flwr {' '.join(arguments[:2])} failed: {text}")
    return dict(answer)


def register_nodes(home: Home) -> int:
    """Register the public keys of the credentials that the SuperLink does not know; return how many."""
    known = (
        set(json.loads(home.registered.read_text()))
        if home.registered.exists() and home.database.exists()
        else set()
    )
    new = [path for path in home.credentials.public_keys() if path.read_text().strip() not in known]

    def register(path: Path) -> None:
        try:
            flower_command(
                home, "supernode", "register", str(path.resolve()), CONNECTION, "--name", path.stem
            )
        except PsofedError as error:
            if "already" not in str(error):
                raise

    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(register, new))
    home.registered.write_text(json.dumps(sorted(known | {path.read_text().strip() for path in new})))
    return len(new)


def to_toml_value(value: Any) -> str:
    """Return `value` as TOML writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, str) else repr(value)
