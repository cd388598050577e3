"""Tables of several stations, and gateways that learn from them, for tests."""

import numpy as np

from psofed import Scenario
from psofed.common.files import read_json
from psofed.federation.deploy.app import client_app, run_server
from psofed.federation.deploy.settings import RunSettings
from psofed.federation.deploy.superlink import Home
from psofed.federation.testing import InProcessGrid

STATIONS = [f"s{k}" for k in range(6)]


def rows_of(stations, count, seed=0):
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(count):
        for station in stations:
            x = rng.standard_normal(2)
            lines.append(
                f"{station},{x[0]:.4f},{x[1]:.4f},{x @ [1.0, -2.0] + 0.1 * rng.standard_normal():.4f}\n"
            )
    return lines


def write_table(path, stations, count=60, seed=0):
    path.write_text("station,a,b,y\n" + "".join(rows_of(stations, count, seed)))
    return path


def settings_of(clients, rounds, **changes):
    scenario = Scenario(
        num_clients=max(clients, 2), dimension=2, num_participants=clients, num_shared=1, iterations=rounds,
        stepsize=0.05, aggregation="mean",
    )  # fmt: skip
    return RunSettings(scenario=scenario, **{"samples_per_round": 1, "min_nodes": 1, **changes})


def federate(folder, nodes, clients, rounds, **changes):
    """Run the ready-made app; `nodes` are node configurations by id."""
    settings = settings_of(clients, rounds, **changes)
    grid = InProcessGrid(dict.fromkeys(nodes, client_app), node_config=nodes)
    for context in grid.contexts.values():
        context.run_config = settings.to_config()
    run_server(grid, settings, Home(folder))
    return grid, read_json(folder / "result.json")


def gateway(path, **more):
    return {"data": str(path), "client-column": "station", "target-column": "y", "features": "a,b", **more}
