"""Status of a federation, as seen from the server's machine: as JSON, as text, and as metrics for Prometheus."""

import datetime
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psofed.common.disk import disk
from psofed.common.errors import PsofedError, missing_package
from psofed.federation.deploy.home import RUNNING, Home
from psofed.federation.protocol.layout import ColumnNames
from psofed.federation.server.checks import mean_without_overflow
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
        "nodes": status.get("nodes", []) if served else [],
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


# --- for Prometheus ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FederationCollector:
    """Turns a federation's status into Prometheus' metrics."""

    home: Home

    def collect(self) -> Iterator[Any]:
        """Yield the current metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status = federation_status(self.home)
        run, nodes = status["run"] or {}, status["nodes"]
        last, errors = run.get("last") or {}, run.get("errors", {})
        plain = {
            "psofed_round": ("Last completed round of the run", run.get("round", 0)),
            "psofed_rounds": ("Rounds of the run", run.get("rounds", 0)),
            "psofed_running": ("Whether a run is in progress", run.get("state") == RUNNING),
            "psofed_round_seconds": ("Duration of the last round", last.get("seconds", 0)),
            "psofed_participants": ("Clients asked in the last round", len(last.get("participants", ()))),
            "psofed_accepted_replies": ("Replies accepted in the last round", len(last.get("accepted", ()))),
        }
        if errors:
            mean = mean_without_overflow(list(errors.values()))
            plain["psofed_network_mse"] = ("Mean of the clients' last squared errors", mean)
        for name, (text, value) in plain.items():
            yield GaugeMetricFamily(name, text, value)

        admitted = [node for node in nodes if node["status"] != "revoked"]
        suspects = status["suspects"].items()
        by_name: dict[str, tuple[str, dict[str, Any]]] = {
            "online": ("Whether a node is online", {n["name"]: n["status"] == "online" for n in nodes}),
            "certificate_expiry_seconds": (
                "Unix time at which a certificate ends",
                {node["name"]: node["expiry"] for node in admitted},
            ),
            "last_round": ("Last round accepted from a client", run.get("seen", {})),
            "squared_error": ("Mean squared error in a client's last report", errors),
            "sample_lag_seconds": ("Time since a client last learned from a new sample", run.get("sample_lag", {})),
            "excluded": ("Whether the defence excludes a client", {name: s["out"] for name, s in suspects}),
        }
        for name, (text, values) in by_name.items():
            family = GaugeMetricFamily(f"psofed_node_{name}", text, labels=["node"])
            for node, value in values.items():
                family.add_metric([node], max(0, value))
            yield family
        bad = CounterMetricFamily("psofed_bad_replies", "Dropped replies", labels=["node", "kind"])
        for name, counts in status["bad_replies"].items():
            for kind, count in counts.items():
                bad.add_metric([name, kind], count)
        yield bad


@contextmanager
def serve_metrics(home: Home, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve the metrics at http://host:port/metrics while the block is open; port 0 picks a free one."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise missing_package("--metrics-port", "prometheus-client", "metrics") from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FederationCollector(home))
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise PsofedError(f"--metrics-port {port}: {error.strerror or error}; choose another") from None
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
