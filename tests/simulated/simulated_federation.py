"""The federation that is simulated: its nodes' keys and data, its strategy, and its models if nothing happens."""

import atexit
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Context, Message
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from plans import Plan
from promises import LIMITS

from psofed.federation.client.gateway import Gateway
from psofed.federation.client.online import OnlineRegression, online_regression
from psofed.federation.client.sources import Position, Samples
from psofed.federation.client.synthetic import SyntheticSource
from psofed.federation.protocol.column_names import ColumnNames
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.step import Combination
from psofed.federation.server.strategy import PSOFed
from psofed.federation.testing import InProcessGrid
from psofed.scenario import Data, Scenario

DIMENSION = 6
COLUMNS = ColumnNames(("wind", "pressure", "humidity", "rain", "sun", "hour"), "output")


def strategy_of(plan: Plan, on_round: Callable[[ServerState], None], **options: Any) -> PSOFed:
    """Return the strategy of a plan's federation."""
    return PSOFed(
        Sharing(plan.num_shared, coordinated=False),
        seed=plan.seed,
        num_participants=plan.participants,
        rounds=RoundPlan(min_nodes=len(plan.nodes) if plan.exact else 1, wait_for_nodes=120.0),
        aggregation=Combination(weighted=plan.weighted),
        limits=LIMITS,
        columns=COLUMNS,
        on_round=on_round,
        **options,
    )


def learner_of(plan: Plan, name: str) -> OnlineRegression:
    """Return the training of a node, which every second node does on columns in another order."""
    place = plan.nodes.index(name)
    source = ShuffledSource(
        partial(_draw, len(plan.nodes), place, plan.seed), COLUMNS.features[:: -1 if place % 2 else 1]
    )
    return online_regression(source, stepsize=0.1, samples_per_round=1, scaled=False)


def expected_models(plan: Plan) -> dict[int, bytes]:
    """Return the model after each round if nothing happens: without network, clocks and disks, and so much faster."""
    models: dict[int, bytes] = {}

    def note(state: ServerState) -> None:
        models[state.round_number] = state.model.tobytes()

    with silence():
        strategy_of(plan, note).start(
            _CalmGrid(plan), np.zeros(DIMENSION), num_rounds=plan.all_rounds, timeout=plan.deadline
        )
    return models


class _CalmGrid(InProcessGrid):
    """The nodes of a plan, which answer at once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        apps: Any = {number: _app(plan, name) for number, name in enumerate(plan.nodes, start=2)}
        super().__init__(apps)

    def get_nodes(self) -> Iterable[NodeInfo]:
        """Return the nodes with their names and keys, from which their draws follow."""
        return [
            NodeInfo(node_id=number, name=name, public_key=key_of(name)[1])
            for number, name in enumerate(self._plan.nodes, start=2)
        ]


def _app(plan: Plan, name: str) -> Callable[[Message, Context], Message]:
    learner, clients = learner_of(plan, name), plan.clients_of(name)
    gateway = Gateway(catch_up=True, columns=learner, clients=(lambda: clients) if clients else None)

    def answer(message: Message, context: Context) -> Message:
        content = gateway.answer(message.content, context, None, learner.learn, evaluates=False)
        return Message(content, reply_to=message)

    return answer


@contextmanager
def silence() -> Iterator[None]:
    """Log nothing within the block."""
    loggers = [logging.getLogger(name) for name in ("psofed.federation", "flwr")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@dataclass(frozen=True)
class ShuffledSource:
    """A node's data with its columns in another order than the run's, which is found by name."""

    source: Callable[[int, int], Samples]
    order: tuple[str, ...]
    chosen: tuple[str, ...] = ()

    def columns(self) -> ColumnNames:
        """Return the names in the node's own order."""
        return ColumnNames(self.order, COLUMNS.target)

    def choose(self, columns: ColumnNames) -> "ShuffledSource":
        """Take the run's order."""
        return replace(self, chosen=columns.features)

    def read(self, start: Position, limit: int) -> Samples:
        """Read the columns as they lie, and reorder them by name."""
        samples = self.source(start.samples, limit)
        stored = samples.inputs[:, [COLUMNS.features.index(name) for name in self.order]]
        return replace(samples, inputs=stored[:, [self.order.index(name) for name in self.chosen]])


@cache
def key_of(name: str) -> tuple[Path, bytes]:
    """Return a file with a node's private key, which follows from its name, and its public key."""
    private = ec.derive_private_key(int.from_bytes(name.encode(), "big"), ec.SECP384R1())
    path = _folder() / f"{name}.key"
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
    )
    return path, public_key_to_bytes(private.public_key())


@cache
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="psofed-simulated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@lru_cache(maxsize=4096)
def _draw(nodes: int, place: int, seed: int, start: int, limit: int) -> Samples:
    """Draw samples of a node, which all clients of a gateway learn from, and the expected run once more."""
    return _source(nodes, place, seed).read(Position(start), limit)


@lru_cache(maxsize=16)
def _source(nodes: int, place: int, seed: int) -> SyntheticSource:
    return SyntheticSource(_scenario(nodes), place, seed)


@cache
def _scenario(nodes: int) -> Scenario:
    return Scenario(
        num_clients=nodes, dimension=DIMENSION, num_participants=nodes, num_shared=1, data=Data(fleet_seed=1)
    )
