"""psofed on the same job: accuracy, speed of one core, and bytes of its exchange."""

import logging
import time
from importlib.metadata import version
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.task_identity import TaskIdentity

from benchmarks._timing import best_seconds
from benchmarks.peers._job import SCENARIO, SEED, TAIL, TOLERATED, TRIALS
from benchmarks.peers.scripts.common import LARGE, SHARES
from psofed import Scenario, __version__, simulate
from psofed.federation import PSOFed, partial_sharing
from psofed.federation.flower.in_process import InProcessGrid
from psofed.parts.aggregations import Krum, Median, TrimmedMean
from psofed.parts.pre_aggregations import NNM

FULL: dict[str, Any] = {"algorithm": "online-fed", "num_shared": 5}


def contenders() -> dict[str, Scenario]:
    """Return what is simulated, by name."""
    return {
        "psofed, M = 1": SCENARIO,
        "psofed, M = 1, median": SCENARIO.replace(aggregation=Median()),
        "psofed, M = 1, defence": SCENARIO.replace(defence="cusum"),
        "psofed, all entries, mean": SCENARIO.replace(**FULL),
        "psofed, all entries, median": SCENARIO.replace(**FULL, aggregation=Median()),
        "psofed, all entries, trimmed mean": SCENARIO.replace(**FULL, aggregation=TrimmedMean(trim=TOLERATED)),
        "psofed, all entries, Krum": SCENARIO.replace(**FULL, aggregation=Krum(tolerated=TOLERATED)),
        "psofed, all entries, NNM, then trimmed mean": SCENARIO.replace(
            **FULL, aggregation=TrimmedMean(trim=TOLERATED), pre_aggregation=NNM(tolerated=TOLERATED)
        ),
    }


def measure() -> dict[str, Any]:
    """Return errors, rates and bytes, in the form of the peers' scripts."""
    msd = {
        name: simulate(scenario, TRIALS, SEED, tail=TAIL).steady_state["server_msd"].tolist()
        for name, scenario in contenders().items()
    }
    rates = {"psofed, M = 1": _simulation_rate(SCENARIO), **_federation_rates()}
    exchanges = {str(share): _bytes(share) for share in (*SHARES, 1.0)}
    return {
        "versions": {"psofed": __version__, "flwr": version("flwr")},
        "msd": msd,
        "rates": rates,
        "bytes": {"psofed": exchanges},
    }


def _simulation_rate(scenario: Scenario) -> float:
    """Return client updates per processor second on one thread, drawing the data included."""
    longer = scenario.replace(iterations=4000)
    seconds = best_seconds({"": lambda: simulate(longer, 64, SEED, threads=1)}, rounds=3, clock=time.process_time)
    return longer.num_clients * longer.iterations * 64 / seconds[""]


def _federation_rates() -> dict[str, float]:
    """Return client updates per processor second of real strategies, on a Grid within this process."""
    for name in ("flwr", "psofed"):
        logging.getLogger(name).setLevel(logging.ERROR)
    # Flower's own strategies make messages only in a process that Flower has started.
    TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
    nodes, rounds, found = 10, 20, {}
    for name, strategy, mods in (
        ("PSOFed on an in-process Grid", PSOFed(num_shared=1, num_participants=nodes), [partial_sharing()]),
        ("Flower's FedAvg on the same Grid", FedAvg(fraction_evaluate=0.0), []),
    ):
        app = ClientApp()
        app.train(mods=mods)(_learn)
        grid = InProcessGrid(dict.fromkeys(range(1, nodes + 1), app))
        start = ArrayRecord([np.zeros(SCENARIO.dimension)])
        started = time.process_time()
        strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds)
        found[name] = nodes * rounds / (time.process_time() - started)
    return found


def _bytes(share: float) -> list[int]:
    """Return bytes down and up of one participant's exchange, of its frames."""
    up: list[int] = []

    def weigh(reply: Message) -> list[Message]:
        up.append(len(reply.content["psofed"]["frame"]))
        return [reply]

    app = ClientApp()
    app.train(mods=[partial_sharing()])(_keep)
    grid = InProcessGrid({1: app}, tamper=weigh)
    start = ArrayRecord([np.zeros((1000, LARGE // 1000), np.float32)])
    # The first round greets a newcomer with the whole model.
    PSOFed(num_shared=share, num_participants=1).start(grid=grid, initial_arrays=start, num_rounds=2)
    return [len(grid.sent[-1].content["psofed"]["frame"]), up[-1]]


def _learn(message: Message, context: Any) -> Message:
    (model,) = message.content["arrays"].to_numpy_ndarrays()
    x = np.random.default_rng(context.node_id).standard_normal(model.size)
    return _reply(message, model + SCENARIO.stepsize * (x.sum() - model @ x) * x)


def _keep(message: Message, context: Any) -> Message:
    return _reply(message, message.content["arrays"].to_numpy_ndarrays()[0])


def _reply(message: Message, model: Any) -> Message:
    records = {"arrays": ArrayRecord([model]), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(records), reply_to=message)
