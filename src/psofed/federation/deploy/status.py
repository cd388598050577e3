"""How a federation is doing, as seen from the server's machine."""

import datetime
from typing import Any

from psofed.common.errors import PsofedError
from psofed.federation.deploy.processes import is_listening
from psofed.federation.deploy.superlink import Home, open_control
from psofed.federation.files import read_json


def server_address(home: Home) -> str | None:
    """Return where the server of `home` listens for nodes, or None if it does not run."""
    if not home.server_info.exists():
        return None
    info = read_json(home.server_info)
    return (
        f"{info['host']}:{info['port']}" if is_listening("127.0.0.1", int(info["superlink_port"])) else None
    )


def federation_status(home: Home) -> dict[str, Any]:
    """Return server, nodes, run, checkpoint and bad replies, as JSON holds them."""
    if not home.folder.is_dir():
        raise PsofedError(f"there is no federation in {home.folder}")
    address = server_address(home)
    run = read_json(home.status) if home.status.exists() else None
    saved = None
    if home.checkpoint.exists():
        when = datetime.datetime.fromtimestamp(home.checkpoint.stat().st_mtime, datetime.UTC)
        saved = f"{home.checkpoint}, {when.isoformat(timespec='seconds')}"
    return {
        "server": address,
        "nodes": _nodes(home) if address else [],
        "run": run,
        "checkpoint": saved,
        "bad_replies": (run or {}).get("conduct", {}).get("counts", {}),
    }


def _nodes(home: Home) -> list[dict[str, Any]]:
    with open_control(home) as control:
        return sorted(control.nodes(), key=lambda node: str(node["name"]))
