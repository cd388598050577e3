"""Environments for the peers: one each, made by venv and filled by pip, by name and version only."""

import json
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).parent / "scripts"


@dataclass(frozen=True)
class Peer:
    """A package, its script, and what pip is told, call by call; ``{torch}`` is PyTorch with its version."""

    name: str
    installs: tuple[tuple[str, ...], ...]

    @property
    def script(self) -> Path:
        return SCRIPTS / f"run_{self.name}.py"


PEERS = (
    Peer("psfed", (("{torch}",), ("psfed==0.1.2", "flwr==1.41.0"))),
    Peer("flower", (("flwr==1.41.0",),)),
    Peer("byzfl", (("{torch}",), ("byzfl==0.0.11",))),
    Peer("padasip", (("padasip==1.2.2",),)),
    # It asks for Python 3.10 and for all that its examples need; its exchange needs little, and runs on newer Pythons.
    Peer(
        "fl4health",
        (
            ("{torch}", "flwr==1.18.0", "opacus>=1.5", "scipy"),
            ("--ignore-requires-python", "--no-deps", "fl4health==0.4.2"),
        ),
    ),
)


class PeerError(RuntimeError):
    """A peer could not be installed, or its script failed; the message ends with what it said."""


def install(peer: Peer, folder: Path, torch_version: str) -> Path:
    """Make the peer's environment in the folder, unless it is there, and return its interpreter."""
    place = folder / peer.name
    python = place / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    calls = [[word.format(torch=f"torch=={torch_version}") for word in call] for call in peer.installs]
    stamp, wanted = place / "installed.json", json.dumps(calls)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    venv.create(place, clear=True, with_pip=True)
    for call in calls:
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *call])
    stamp.write_text(wanted, encoding="utf-8")
    return python


def run(peer: Peer, python: Path, job: Path) -> dict[str, Any]:
    """Run the peer's script on the job and return what it printed."""
    results: dict[str, Any] = json.loads(_run([str(python), str(peer.script), str(job)]).splitlines()[-1])
    return results


def _run(command: list[str]) -> str:
    with tempfile.TemporaryDirectory() as elsewhere:  # so that nothing of this folder is imported by chance
        done = subprocess.run(command, capture_output=True, text=True, cwd=elsewhere, check=False)
    if done.returncode:
        last = "\n".join(done.stderr.strip().splitlines()[-3:])
        raise PeerError(f"{' '.join(command[1:])}: {last}")
    return done.stdout
