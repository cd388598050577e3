"""One run of a federation: psofed's strategy and mod, Flower's strategies, or psfed's classes, with or without liars.

psofed's and Flower's strategies run on psofed's in-process grid: the same ClientApps, every message made into bytes and
back. psfed's are of Flower's older kind and run in :mod:`peer`. All attacks are carried out by the same object,
:class:`rehearsal.Rehearsal`, on what has arrived.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedMedian, MultiKrum
from flwr.supercore.task_identity import TaskIdentity
from network import Digits, Learn, Vector, accuracy, initial_weights, split_digits
from rehearsal import Rehearsal, attack_step

import psofed
from psofed.federation_new import PSOFed, partial_sharing
from psofed.federation_new.flower.in_process import InProcessGrid
from psofed.parts.base import Attack

WEIGHTS = "weights"
LIARS = 4


@dataclass(frozen=True)
class Method:
    """How clients and server exchange models.

    Attributes
    ----------
    kind : str
        ``psofed``, ``fedavg``, ``fedmedian``, ``multi-krum`` or ``psfed``.
    shared : float
        M/D, for psofed and psfed.
    rule : str
        psofed's aggregation rule.
    threshold : float
        Of psofed's defence ``cusum``; 0 for none.
    stepsize, steps
        Of the clients' gradient descent, and how many steps they take in a round.
    """

    kind: str
    shared: float = 1.0
    rule: str = "mean"
    threshold: float = 0.0
    stepsize: float = 0.3
    steps: int = 5

    @property
    def name(self) -> str:
        """What the method is called in tables."""
        share = f" {100 * self.shared:g} %" if self.kind in ("psofed", "psfed") else ""
        rule = f" + {self.rule}" if self.rule != "mean" else ""
        return self.kind + share + rule + (" + cusum" if self.threshold else "")


@dataclass
class Run:
    """What came of a run: lists have an entry for each look at the server's model.

    Attributes
    ----------
    rounds, accuracy, bytes : list
        When, how accurate the server's model was on the test set, and how many bytes had gone both ways by then.
    own_accuracy : float
        Mean accuracy of the honest clients' own models on the whole test set, after the last round.
    dropped, left_out : int
        Replies that psofed's checks dropped, and clients that its defence had left out at the end.
    """

    rounds: list[int] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    bytes: list[int] = field(default_factory=list)
    own_accuracy: float = 0.0
    dropped: int = 0
    left_out: list[str] = field(default_factory=list)


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

    Data, split and first weights follow from `seed`, whatever the method.
    """
    digits = split_digits(seed, clients, each)
    if method.kind == "psfed":
        from peer import run_psfed

        return run_psfed(method, attack, seed, digits, rounds, look_every)
    own: dict[int, Vector] = {}
    apps = {1 + k: make_app(digits, k, method, learn, own) for k in range(clients)}
    grid = CountingGrid(apps)
    strategy = make_strategy(method, attack, seed)
    run = Run()

    def look(number: int, arrays: ArrayRecord) -> None:
        if number % look_every == 0:
            note(run, number, arrays[WEIGHTS].numpy(), grid.carried, digits)

    for name in ("flwr", "psofed.federation"):
        logging.getLogger(name).setLevel(logging.ERROR)
    start = ArrayRecord({WEIGHTS: Array(initial_weights(seed))})
    result = strategy.start(grid, start, num_rounds=rounds, evaluate_fn=look)
    note_own(run, own, attack, digits)
    if isinstance(strategy, PSOFed) and strategy.state is not None:
        run.dropped = sum(len(entry["dropped"]) for entry in strategy.state.history)
        run.left_out = [] if strategy.step.suspects is None else strategy.step.suspects.names
    return run, result.arrays[WEIGHTS].numpy()


def make_app(digits: Digits, k: int, method: Method, learn: Learn, own: dict[int, Vector]) -> ClientApp:
    """Return client k's app: an ordinary training function, with psofed's mod or without."""
    app = ClientApp()
    images, labels = digits.images[k], digits.labels[k]

    @app.train(mods=[partial_sharing()] if method.kind == "psofed" else [])
    def train(message: Message, context: Context) -> Message:
        weights = message.content["arrays"][WEIGHTS].numpy()
        own[1 + k] = learned = learn(weights, images, labels, method.stepsize, method.steps)
        records = {
            "arrays": ArrayRecord({WEIGHTS: Array(learned)}),
            "metrics": MetricRecord({"num-examples": len(labels)}),
        }
        return Message(RecordDict(records), reply_to=message)

    return app


def make_strategy(method: Method, attack: Attack | None, seed: int) -> Any:
    """Return the strategy, with the attack built in."""
    if method.kind == "psofed":
        defence = psofed.defences.Cusum(threshold=method.threshold) if method.threshold else None
        strategy = PSOFed(method.shared, seed=seed, aggregation=method.rule, defence=defence)
        attack_step(strategy.step, attack, seed)
        return strategy
    rehearsal = None if attack is None else Rehearsal(attack, seed)
    if method.kind == "fedavg":
        return AttackedFedAvg(fraction_evaluate=0.0).under(rehearsal)
    if method.kind == "fedmedian":
        return AttackedFedMedian(fraction_evaluate=0.0).under(rehearsal)
    if method.kind == "multi-krum":
        # It is told the true number of liars, and averages all the others.
        told = {"num_malicious_nodes": LIARS, "num_nodes_to_select": 20 - LIARS}
        return AttackedMultiKrum(fraction_evaluate=0.0, **told).under(rehearsal)
    raise ValueError(f"method {method.kind!r} is not one of psofed, fedavg, fedmedian, multi-krum, psfed")


class UnderAttack:
    """Before one of Flower's strategies joins the replies, those of the liars are corrupted."""

    rehearsal: Rehearsal | None = None

    def under(self, rehearsal: Rehearsal | None) -> "UnderAttack":
        """Set the attack."""
        self.rehearsal = rehearsal
        return self

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Remember the model that the round begins with: some liars know it."""
        self._model = arrays[WEIGHTS].numpy()
        return super().configure_train(server_round, arrays, config, grid)  # type: ignore[misc]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """Corrupt, then join."""
        answers = list(replies)
        if self.rehearsal is not None:
            by_name = {str(answer.metadata.src_node_id): answer for answer in answers}
            sent = {name: answer.content["arrays"][WEIGHTS].numpy() for name, answer in by_name.items()}
            for name, values in corrupt_whole(self.rehearsal, server_round, self._model, sent).items():
                by_name[name].content["arrays"] = ArrayRecord({WEIGHTS: Array(values)})
        return super().aggregate_train(server_round, answers)  # type: ignore[misc]


class AttackedFedAvg(UnderAttack, FedAvg):
    """Flower's FedAvg."""


class AttackedFedMedian(UnderAttack, FedMedian):
    """Flower's FedMedian."""


class AttackedMultiKrum(UnderAttack, MultiKrum):
    """Flower's MultiKrum."""


def corrupt_whole(
    rehearsal: Rehearsal,
    number: int,
    model: Vector,
    sent: dict[str, Vector],
    entries: Sequence[int] | None = None,
) -> dict[str, Vector]:
    """Return all uploads, those of liars corrupted, where each holds the same `entries` of the model (or all)."""
    places = np.arange(len(model)) if entries is None else np.asarray(entries)
    uploads = {name: (places, values) for name, values in sent.items()}
    received = rehearsal.corrupt(number, model, uploads)
    return {name: np.asarray(values, dtype=np.float32) for name, (_, values) in received.items()}


class CountingGrid(InProcessGrid):
    """Counts bytes: every object of a message as Flower serialises it, both ways; HTTP and TLS are not in it.

    All messages of a round are alike, so one each way is weighed and counted for all. It keeps none.
    """

    def __init__(self, apps: dict[int, ClientApp]) -> None:
        super().__init__(apps, tamper=self._weigh_reply)
        # Flower's own strategies make messages only in a process that Flower has started.
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self.carried = 0
        self._to_weigh = 0

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Count the messages, and let the nodes answer."""
        pushed = list(messages)
        if pushed:
            self.carried += len(pushed) * weight(pushed[0])
            self._to_weigh = len(pushed)
        ids = super().push_messages(pushed)
        self.sent.clear()
        return ids

    def _weigh_reply(self, reply: Message) -> list[Message]:
        if self._to_weigh:
            self.carried += self._to_weigh * weight(reply)
            self._to_weigh = 0
        return [reply]


def weight(item: Any) -> int:
    """Return how many bytes an object of Flower's and all within it are on the wire."""
    return len(item.deflate()) + sum(weight(child) for child in (item.children or {}).values())


def note(run: Run, number: int, weights: Vector, carried: int, digits: Digits) -> None:
    """Write down how good the server's model is by now."""
    run.rounds.append(number)
    run.accuracy.append(round(accuracy(weights, digits.test_images, digits.test_labels), 4))
    run.bytes.append(carried)


def note_own(run: Run, own: dict[int, Vector], attack: Attack | None, digits: Digits) -> None:
    """Write down how good the honest clients' own models are."""
    liars = set() if attack is None else {int(client) for client in attack.clients}
    found = [
        accuracy(weights, digits.test_images, digits.test_labels)
        for k, weights in own.items()
        if k not in liars
    ]
    run.own_accuracy = round(float(np.mean(found)), 4)


def describe(method: Method) -> dict[str, Any]:
    """Return a method as JSON holds it."""
    return asdict(method)
