"""Metrics for Prometheus, read when they are asked for."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psofed.common.errors import PsofedError, missing_package
from psofed.federation.deploy.home import RUNNING, Home
from psofed.federation.deploy.status import federation_status
from psofed.federation.server.checks import mean_without_overflow


class FederationCollector:
    """Turns a federation's status into Prometheus' metrics."""

    def __init__(self, home: Home) -> None:
        self.home = home

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
