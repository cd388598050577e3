"""Metrics for Prometheus, read when they are asked for."""

import math
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from psofed.common.errors import missing_package
from psofed.federation.deploy.local_http import LocalHandler, serve_locally
from psofed.federation.deploy.status import federation_status
from psofed.federation.deploy.superlink import Home
from psofed.federation.server.rounds import mean_without_overflow


class FederationCollector:
    """Turns a federation's status into Prometheus' metrics."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def collect(self) -> Iterator[Any]:
        """Yield the current metrics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        found = federation_status(self.home)
        run = found["run"] or {}
        last, errors, nodes = run.get("last") or {}, run.get("errors", {}), found["nodes"]
        plain = {
            "psofed_round": ("Last completed round of the run", run.get("round", 0)),
            "psofed_rounds": ("Rounds of the run", run.get("rounds", 0)),
            "psofed_running": ("Whether a run is in progress", run.get("state") == "running"),
            "psofed_round_seconds": ("Duration of the last round", last.get("seconds", 0)),
            "psofed_participants": ("Nodes asked in the last round", len(last.get("participants", ()))),
            "psofed_accepted_replies": ("Replies accepted in the last round", len(last.get("accepted", ()))),
        }
        if errors:
            mean = mean_without_overflow(list(errors.values()))
            plain["psofed_network_mse"] = ("Mean of the nodes' last squared errors", mean)
        for name, (text, value) in plain.items():
            yield GaugeMetricFamily(name, text, value)

        def by_node(kind: Any, name: str, text: str, values: Mapping[str, Any]) -> Any:
            family = kind(name, text, labels=["node"])
            for node, value in values.items():
                family.add_metric([node], value)
            return family

        online = {node["name"]: node["status"] == "online" for node in nodes}
        seen = {node["name"]: max(0, node["last_round"]) for node in nodes}
        out = {name: bool(about["out"]) for name, about in found["suspects"].items()}
        late = run.get("conduct", {}).get("late", {})
        yield by_node(GaugeMetricFamily, "psofed_node_online", "Whether a node is online", online)
        yield by_node(GaugeMetricFamily, "psofed_node_last_round", "Last round accepted from a node", seen)
        yield by_node(
            GaugeMetricFamily,
            "psofed_node_squared_error",
            "Mean squared error in a node's last report",
            errors,
        )
        yield by_node(GaugeMetricFamily, "psofed_node_excluded", "Whether the defence excludes a node", out)
        yield by_node(
            CounterMetricFamily, "psofed_late_replies", "Replies that counted in a later round", late
        )
        bad = CounterMetricFamily("psofed_bad_replies", "Dropped replies", labels=["node", "kind"])
        for name, counts in found["bad_replies"].items():
            for kind, count in counts.items():
                bad.add_metric([name, kind], count)
        traffic = CounterMetricFamily("psofed_bytes", "Bytes at the nodes' sockets", labels=["direction"])
        for direction in ("up", "down"):
            traffic.add_metric([direction], (found["traffic"] or {}).get(direction, 0))
        yield from (bad, traffic)


@contextmanager
def serve_metrics(home: Home, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve the metrics at http://host:port/metrics while the block is open; port 0 picks a free one."""
    try:
        from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
    except ImportError:
        raise missing_package("--metrics-port", "prometheus-client", "metrics") from None
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FederationCollector(home))
    lock, latest = threading.Lock(), (-math.inf, "")

    class Handler(LocalHandler):
        kind = CONTENT_TYPE_LATEST

        def get(self) -> str:
            nonlocal latest
            with lock:  # whoever asks often gets the same answer for a second
                if time.monotonic() - latest[0] > 1.0:
                    latest = time.monotonic(), generate_latest(registry).decode()
                return latest[1]

    with serve_locally(Handler, host, port, "--metrics-host or --metrics-port") as taken:
        yield taken
