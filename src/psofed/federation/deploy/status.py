"""Status of a federation, as seen from the server's machine."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from psofed.common.errors import PsofedError
from psofed.common.files import is_locked
from psofed.federation.deploy.superlink import Home, open_control
from psofed.federation.deploy.traffic import read_traffic
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.server.clients import dominance
from psofed.render.numbers import listed


def server_address(home: Home) -> str | None:
    """Return where the server of `home` listens for nodes, or None if it does not run."""
    info = home.read_server()
    return f"{info['host']}:{info['port']}" if info and is_locked(home.server_lock) else None


def federation_status(home: Home) -> dict[str, Any]:
    """Return server, nodes, run, checkpoint and bad replies, as JSON holds them."""
    if not home.folder.is_dir():
        raise PsofedError(f"there is no federation in {home.folder}; name its folder with --home")
    address = server_address(home)
    run = home.read_status() or None
    if run and run.get("state") == "running" and not is_locked(home.run_lock):
        run = {**run, "state": "interrupted"}  # its process has died; the server continues it within seconds
    saved = None
    if home.checkpoint.exists():
        when = datetime.datetime.fromtimestamp(home.checkpoint.stat().st_mtime, datetime.UTC)
        saved = f"{home.checkpoint}, {when.isoformat(timespec='seconds')}"
    warning = home.credentials.warning(datetime.datetime.now(datetime.UTC))
    return {
        "server": address,
        "certificates": warning or None,
        "nodes": _nodes(home, run or {}) if address else [],
        "run": run,
        "checkpoint": saved,
        "bad_replies": (run or {}).get("conduct", {}).get("counts", {}),
        "suspects": (run or {}).get("suspects", {}),
        "traffic": None if (counted := read_traffic(home.traffic)) is None else dataclasses.asdict(counted),
    }


def status_lines(found: dict[str, Any], now: float) -> list[str]:
    """Return what :func:`federation_status` found as lines for a person; `now` is the Unix time."""
    run, traffic = found["run"], found["traffic"]
    lines = [f"server     {found['server'] or 'not running'}"]
    if found.get("certificates"):
        lines.append(f"WARNING    {found['certificates']}")
    if run:
        last = run.get("last") or {}
        took = f", {last['seconds']:.2f} s for the last" if last else ""
        of = f" of {run['rounds']}" if run["rounds"] else ", until stopped"
        lines.append(f"run        {run['state']}, round {run['round']}{of}{took}")
    else:
        lines.append("run        none")
    if run and run.get("columns"):
        lines.append(f"columns    {ColumnNames.from_mapping(run['columns'])}")
    lines.append(f"checkpoint {found['checkpoint'] or 'none'}")
    if traffic:
        lines.append(f"traffic    {traffic['up']:,} bytes up, {traffic['down']:,} down at the nodes' sockets")
    suspects = found.get("suspects", {})
    out = [f"{name} (since round {about['since_round']})" for name, about in suspects.items() if about["out"]]
    if out:
        lines.append(f"left out   {', '.join(out)}")
    if benched := (run or {}).get("benched"):
        lines.append(f"benched    {listed(benched)}: too many bad replies; readmit with resume --bench-after")
    if resting := (run or {}).get("resting"):
        rests = [f"{name} (until round {last})" for name, last in resting.items()]
        lines.append(f"resting    {listed(rests)}: did not answer, or failed to train")
    gateways, seen = (run or {}).get("gateways", {}), (run or {}).get("seen", {})
    if warning := dominance(gateways, [node["name"] for node in found["nodes"]]):
        lines.append(f"WARNING    {warning}")
    names = {node["name"] for node in found["nodes"]} | set(found["bad_replies"])
    names |= {f"  {client}" for clients in gateways.values() for client in clients}
    width = max([4, *map(len, names)])
    if found["nodes"]:
        lines.append(f"{'node':{width}}  {'status':10}  {'last seen':>9}  {'last round':>10}  dropped")
    for node in found["nodes"]:
        ago = f"{max(0.0, now - node['last_seen']):.0f} s" if node["last_seen"] else "never"
        clients = gateways.get(node["name"])
        last, dropped = max(0, node["last_round"]), _dropped(found, node["name"])
        if clients is not None:
            last, dropped = max((seen.get(client, 0) for client in clients), default=0), ""
        lines.append(f"{node['name']:{width}}  {node['status']:10}  {ago:>9}  {max(0, last):>10}  {dropped}")
        for client in clients or ():
            last, dropped = max(0, seen.get(client, 0)), _dropped(found, client)
            lines.append(f"{f'  {client}':{width}}  {'client':10}  {'':9}  {last:>10}  {dropped}")
    refused = (run or {}).get("refused", {})
    lines += [f"{node}: refused clients: {listed(names)}" for node, names in refused.items()]
    reasons = ((run or {}).get("last") or {}).get("reasons", {})
    remarks = ((run or {}).get("last") or {}).get("remarks", {})
    return lines + together({**remarks, **reasons})


def together(texts: Mapping[str, str], beginning: str = "") -> list[str]:
    """Return one line for each text, with the names that it is about.

    Examples
    --------
    >>> together({"north": "no new sample", "south": "no new sample", "west": ""})
    ['north and south: no new sample']
    """
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        names.setdefault(text, []).append(name)
    return [f"{listed(about)}: {beginning}{text}" for text, about in names.items() if text]


def _dropped(found: dict[str, Any], name: str) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in found["bad_replies"].get(name, {}).items())


def _nodes(home: Home, run: Mapping[str, Any]) -> list[dict[str, Any]]:
    with open_control(home) as control:
        nodes = sorted(control.nodes(), key=lambda node: str(node["name"]))
    # A name that a gateway's client has as well was seen there.
    elsewhere = {client for clients in run.get("gateways", {}).values() for client in clients}
    seen = {name: last for name, last in run.get("seen", {}).items() if name not in elsewhere}
    return [{**node, "last_round": seen.get(node["name"], 0)} for node in nodes]
