"""Tables of several stations, and ready-made nodes that learn from them, for tests."""

import numpy as np
from nodes import FaultyHub, fast_time

from psofed import Scenario
from psofed.federation.client.node_options import NodeOptions
from psofed.federation.client.ready_made import ready_made_node
from psofed.federation.protocol.run_settings import RunSettings
from psofed.federation.server.ready_made import run_ready_made

STATIONS = [f"s{k}" for k in range(6)]
NAMED = {"features": ("a", "b"), "target_column": "y"}


def rows_of(stations, count, seed=0):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        for station in stations:
            x = rng.standard_normal(2)
            lines.append(f"{station},{x[0]:.4f},{x[1]:.4f},{x @ [1.0, -2.0] + 0.1 * rng.standard_normal():.4f}\n")
    return lines


def write_table(path, stations, count=60, seed=0):
    path.write_text("station,a,b,y\n" + "".join(rows_of(stations, count, seed)))
    return path


def settings_of(clients, rounds, **changes):
    scenario = Scenario(
        num_clients=max(clients, 2), dimension=2, num_participants=clients, num_shared=1, iterations=rounds,
        stepsize=0.05, aggregation="mean",
    )  # fmt: skip
    named = {} if changes.get("synthetic") else NAMED
    return RunSettings(scenario=scenario, **{"samples_per_round": 1, "min_nodes": 1, **named, **changes})


def federate(settings, nodes, folder=None, **options):
    """Run ready-made nodes, given their options by name; return the hub and the server."""
    hub = FaultyHub({name: ready_made_node(name, given, folder) for name, given in nodes.items()})
    with fast_time():
        server = run_ready_made(settings, hub, **options)
    return hub, server


def gateway(path, **more):
    return NodeOptions(data=str(path), client_column="station", **NAMED, **more)
