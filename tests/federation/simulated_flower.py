"""A Flower app that is run in Flower's simulation, in a process of its own, and in process; prints nodes and model."""

import json
import sys

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from psofed.federation import PSOFed, Sharing, partial_sharing

client_app, server_app = ClientApp(), ServerApp()


@client_app.train(mods=[partial_sharing(catch_up=True)])
def train(message, context):
    number = message.content["config"]["server-round"]
    if number == 2 and context.node_id % 3 == 0:
        raise RuntimeError("no data today")
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    sample = np.random.default_rng([context.node_id, number]).standard_normal(weights.size)
    weights = weights + 0.1 * sample * (1.0 - sample @ weights)
    records = {"arrays": ArrayRecord([weights]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(records), reply_to=message)


def run(grid):
    """Return the nodes, what went wrong, and the bits of the model."""
    strategy = PSOFed(Sharing(3, coordinated=False), num_participants=3, seed=1)
    result = strategy.start(grid, np.zeros(8), num_rounds=8)
    (model,) = result.arrays.to_numpy_ndarrays()
    reasons = [entry["reasons"] for entry in strategy.state.history]
    return {"nodes": sorted(grid.get_node_ids()), "reasons": reasons, "model": model.tobytes().hex()}


@server_app.main()
def main(grid, context):
    print("RESULT " + json.dumps(run(grid)), file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    from flwr.simulation import run_simulation  # deprecated for `flwr run`, which needs a SuperLink of its own

    run_simulation(server_app, client_app, 4, backend_config={"client_resources": {"num_cpus": 1}})
