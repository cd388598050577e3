"""The same federations with the real strategies: psofed's strategy and mod on a Grid, Flower's own aggregation."""

import logging
from collections.abc import Mapping

import numpy as np
from direct import BYZANTINE, Join, Method, Run, make_step, run_directly
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedMedian, MultiKrum
from network import Digits, Learn, Vector, initial_weights, split_digits

from psofed.federation import PSOFed, partial_sharing
from psofed.federation.flower.in_process import InProcessGrid
from psofed.federation.server.step import Upload
from psofed.parts.base import Attack

WEIGHTS = "weights"


def run_federation(
    method: Method,
    attack: Attack | None,
    seed: int,
    learn: Learn,
    *,
    rounds: int,
    look_every: int,
    clients: int = 20,
    each: int = 40,
) -> tuple[Run, Vector]:
    """Run one federation from scratch, and return the server's last model as well.

    Data, split and first weights follow from `seed`, whatever the method. Bytes are counted for psofed.
    """
    digits = split_digits(seed, clients, each)
    for name in ("flwr", "psofed.federation"):
        logging.getLogger(name).setLevel(logging.ERROR)
    if method.kind != "psofed":
        join = flowers_join(method)
        return run_directly(method, attack, seed, digits, rounds=rounds, look_every=look_every, join=join)
    own: dict[int, Vector] = {}
    grid = CountingGrid({1 + k: make_app(digits, k, method, learn, own) for k in range(clients)})
    strategy = PSOFed(method.shared, seed=seed)
    strategy.step = make_step(method, attack, seed)
    run = Run()

    def look(number: int, arrays: ArrayRecord) -> None:
        if number % look_every == 0:
            run.note(number, arrays[WEIGHTS].numpy(), grid.carried, digits)

    result = strategy.start(grid, {WEIGHTS: initial_weights(seed)}, num_rounds=rounds, evaluate_fn=look)
    run.note_own(own, attack, digits)
    return run, result.arrays[WEIGHTS].numpy()


def make_app(digits: Digits, k: int, method: Method, learn: Learn, own: dict[int, Vector]) -> ClientApp:
    """Return client k's app: an ordinary training function with psofed's mod."""
    app = ClientApp()
    images, labels = digits.images[k], digits.labels[k]

    @app.train(mods=[partial_sharing()])
    def train(message: Message, context: Context) -> Message:
        weights = message.content["arrays"][WEIGHTS].numpy()
        own[1 + k] = learned = learn(weights, images, labels, method.stepsize, method.steps)
        return reply_with(message, learned, len(labels))

    return app


def flowers_join(method: Method) -> Join:
    """Return how one of Flower's strategies joins uploads of whole models."""
    strategies = {
        "fedavg": FedAvg,
        "fedmedian": FedMedian,
        # It is told the true number of Byzantine clients, and averages all the others.
        "multi-krum": lambda: MultiKrum(num_malicious_nodes=BYZANTINE, num_nodes_to_select=20 - BYZANTINE),
    }
    strategy, grid = strategies[method.kind](), InProcessGrid({})

    def join(number: int, model: Vector, uploads: Mapping[str, Upload]) -> Vector:
        replies = []
        for name, (_, values) in uploads.items():
            question = grid.create_message(RecordDict(), "train", int(name), "")
            replies.append(reply_with(question, np.asarray(values, np.float32), 1))
        joined, _ = strategy.aggregate_train(number, replies)
        weights: Vector = joined[WEIGHTS].numpy()
        return weights

    return join


def reply_with(message: Message, weights: Vector, examples: int) -> Message:
    """Return a client's reply."""
    arrays = ArrayRecord({WEIGHTS: Array(weights)})
    records = {"arrays": arrays, "metrics": MetricRecord({"num-examples": examples})}
    return Message(RecordDict(records), reply_to=message)


class CountingGrid(InProcessGrid):
    """Counts the bytes of all frames, both ways, and keeps none; HTTP, TLS and Flower's envelope are not in it."""

    def __init__(self, apps: dict[int, ClientApp]) -> None:
        super().__init__(apps)
        self.carried = 0

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        self.carried += sum(len(each.content["psofed"]["frame"]) for each in (message, reply))
        return reply
