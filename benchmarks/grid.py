"""CPU time of a federated round on a Grid within one process, PSOFed beside Flower's FedAvg."""

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from benchmarks._timing import best_seconds, markdown_table
from psofed.federation import PSOFed, partial_sharing
from psofed.federation.flower.in_process import InProcessGrid

NODES, PARTICIPANTS, ROUNDS = 20, 10, 20
CASES = ((4, 2), (1_000, 100), (100_000, 10_000))


def train(message: Message, context: Context) -> Message:
    """Train by a step that costs nothing, so that what is timed is the exchange."""
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    records = {"arrays": ArrayRecord([weights + 0.1]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(records), reply_to=message)


def run() -> str:
    """Return milliseconds of CPU time per round, ten of twenty clients taking part."""
    logging.getLogger("flwr").setLevel(logging.ERROR)
    # Flower's own strategies make messages only in a process that Flower has started.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    rows = []
    for dimension, shared in CASES:
        best = best_seconds(
            {"FedAvg": rounds_of_fedavg(dimension), "PSOFed": rounds_of_psofed(dimension, shared)},
            clock=time.process_time,
        )
        fedavg, ours = (1e3 * best[name] / ROUNDS for name in ("FedAvg", "PSOFed"))
        rows.append([f"{dimension:,}", f"{shared:,}", f"{fedavg:.1f}", f"{ours:.1f}", f"{ours / fedavg:.2f}"])
    return markdown_table(["D", "M", "FedAvg, ms", "PSOFed, ms", "PSOFed / FedAvg"], rows)


def rounds_of_fedavg(dimension: int) -> Callable[[], Any]:
    """Return some rounds of FedAvg, which sends all D parameters both ways."""
    fraction = PARTICIPANTS / NODES

    def work() -> Any:
        app = ClientApp()
        app.train()(train)
        strategy = FedAvg(fraction_train=fraction, fraction_evaluate=0.0, min_available_nodes=NODES)
        grid = InProcessGrid(dict.fromkeys(range(2, NODES + 2), app))
        return strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(dimension)]), num_rounds=ROUNDS)

    return work


def rounds_of_psofed(dimension: int, shared: int) -> Callable[[], Any]:
    """Return the same rounds of PSOFed, which sends M of them."""

    def work() -> Any:
        app = ClientApp()
        app.train(mods=[partial_sharing()])(train)
        strategy = PSOFed(shared, num_participants=PARTICIPANTS, aggregation="mean")
        grid = InProcessGrid(dict.fromkeys(range(2, NODES + 2), app))
        return strategy.start(grid=grid, initial_arrays=ArrayRecord([np.zeros(dimension)]), num_rounds=ROUNDS)

    return work
