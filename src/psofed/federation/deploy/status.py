"""Status of a federation, as seen from the server's machine, and whether a server or node works."""

import datetime
from collections.abc import Mapping
from typing import Any

from psofed.common.disk import disk
from psofed.federation.deploy.home import Home
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.server.clients import dominance
from psofed.render.numbers import listed


def federation_status(home: Home) -> dict[str, Any]:
    """Return server, nodes, run, checkpoint and bad replies, as JSON holds them."""
    status, request, served = home.read_status(), home.read_request(), home.is_served
    run = None
    if request is not None:
        about = {key: value for key, value in status.items() if key not in ("nodes", "certificates")}
        run = {"round": 0, "rounds": 0, **about, "state": home.state_of(request)}
        if status.get("run") != request.number:
            run |= {"rounds": request.run_settings().num_rounds, "reason": ""}
    saved = None
    if disk().exists(home.checkpoint):
        when = datetime.datetime.fromtimestamp(home.checkpoint.stat().st_mtime, datetime.UTC)
        saved = f"{home.checkpoint}, {when.isoformat(timespec='seconds')}"
    return {
        "server": home.read_server().get("broker") if served else None,
        "certificates": status.get("certificates", []),
        "nodes": _nodes(status) if served else [],
        "run": run,
        "checkpoint": saved,
        "bad_replies": (run or {}).get("strikes", {}).get("counts", {}),
        "suspects": (run or {}).get("suspects", {}),
    }


def status_lines(status: dict[str, Any]) -> list[str]:
    """Return the status as lines for a person."""
    run = status["run"] or {}
    lines = [f"server     {status['server'] or 'not running'}"]
    lines += [f"WARNING    {warning}" for warning in status["certificates"]]
    lines.append(f"run        {_progress(run) if run else 'none'}")
    if run.get("columns"):
        lines.append(f"columns    {ColumnNames.from_mapping(run['columns'])}")
    lines.append(f"checkpoint {status['checkpoint'] or 'none'}")
    suspects = status["suspects"].items()
    if out := [f"{name} (since round {about['since_round']})" for name, about in suspects if about["out"]]:
        lines.append(f"left out   {', '.join(out)}")
    if banned := run.get("banned"):
        lines.append(f"banned     {listed(banned)}: too many bad replies; readmit with resume --ban-after")
    if resting := run.get("resting"):
        rests = [f"{name} (until round {last})" for name, last in resting.items()]
        lines.append(f"resting    {listed(rests)}: did not answer, or failed to train")
    gateways, seen = run.get("gateways", {}), run.get("seen", {})
    if warning := dominance(gateways, [node["name"] for node in status["nodes"]]):
        lines.append(f"WARNING    {warning}")
    rows = []
    for node in status["nodes"]:
        clients, last = gateways.get(node["name"]), node["last_round"]
        if clients is not None:
            last = max((seen.get(client, 0) for client in clients), default=0)
        dropped = "" if clients is not None else _dropped(status, node["name"])
        rows.append((node["name"], node["status"], node["expires"], str(max(0, last)), dropped))
        for client in clients or ():
            rows.append((f"  {client}", "client", "", str(max(0, seen.get(client, 0))), _dropped(status, client)))
    lines += _aligned([("node", "status", "certificate until", "last round", "dropped"), *rows] if rows else [])
    lines += [f"{node}: refused clients: {listed(names)}" for node, names in run.get("refused", {}).items()]
    lines += together({node["name"]: node["problem"] for node in status["nodes"]}, "cannot take part: ")
    last = run.get("last") or {}
    return lines + together({**last.get("remarks", {}), **last.get("reasons", {})})


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


def _progress(run: Mapping[str, Any]) -> str:
    last = run.get("last") or {}
    took = f", {last['seconds']:.2f} s for the last" if last else ""
    of = f" of {run['rounds']}" if run["rounds"] else ", until stopped"
    reason = f" ({run['reason']})" if run.get("reason") else ""
    return f"{run['state']}, round {run['round']}{of}{took}{reason}"


def _dropped(status: Mapping[str, Any], name: str) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in status["bad_replies"].get(name, {}).items())


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _nodes(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    # A name that a gateway's client has as well was seen there.
    elsewhere = {client for clients in status.get("gateways", {}).values() for client in clients}
    seen = {name: last for name, last in status.get("seen", {}).items() if name not in elsewhere}
    return [{**node, "last_round": seen.get(node["name"], 0)} for node in status.get("nodes", [])]
