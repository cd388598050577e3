"""The federation that is simulated: its server, its nodes' data, and its models if nothing happens."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from plans import Plan

from psofed.common.scheduler import Scheduler, use_scheduler
from psofed.federation.client.gateway import Gateway
from psofed.federation.client.node import Node
from psofed.federation.client.online import OnlineRegression
from psofed.federation.client.sources import Position, Samples, SyntheticSource
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.loop import Server
from psofed.federation.server.step import Combination
from psofed.federation.transport.in_process import InProcessHub
from psofed.scenario import Data, Scenario

DIMENSION = 6
MAX_CLIENTS = 6  # no honest gateway has more


def server_of(plan: Plan, on_round: Callable[[ServerState], None], **options: Any) -> Server:
    """Return the server of a plan's federation; in an exact plan every round waits for all replies."""
    patience = {"patience": 0.0} if plan.exact else {}
    everybody = sum(len(plan.clients_of(node)) or 1 for node in plan.nodes)
    return Server(
        Sharing(plan.num_shared, coordinated=False),
        seed=plan.seed,
        num_participants=plan.participants,
        rounds=RoundPlan(min_nodes=everybody if plan.exact else 1, wait_for_nodes=120.0),
        aggregation=Combination(plan.rule),
        limits=ReplyLimits(max_clients=MAX_CLIENTS, **patience),
        on_round=on_round,
        **options,
    )


def learner_of(plan: Plan, name: str) -> OnlineRegression:
    """Return the training of a node."""
    source = _Stream(len(plan.nodes), plan.nodes.index(name), plan.seed)
    return OnlineRegression(source, stepsize=0.1, samples_per_round=1, scaled=False)


def expected_models(plan: Plan) -> dict[int, bytes]:
    """Return the model after each round if nothing happens: without broker, clocks and disks, and so much faster."""
    models: dict[int, bytes] = {}

    def note(state: ServerState) -> None:
        models[state.round_number] = state.model.tobytes()

    with silence(), use_scheduler(Scheduler()):
        hub = InProcessHub({name: _calm_node(plan, name) for name in plan.nodes})
        server_of(plan, note).run(hub, {"0": np.zeros(DIMENSION)}, plan.all_rounds, plan.deadline)
    return models


def _calm_node(plan: Plan, name: str) -> Node:
    learner, clients = learner_of(plan, name), plan.clients_of(name)
    gateway = Gateway(learner.learn, catch_up=True, clients=(lambda: clients) if clients else None)
    return Node(name, lambda run: gateway)


@contextmanager
def silence() -> Iterator[None]:
    """Log nothing within the block."""
    logger = logging.getLogger("psofed.federation")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@dataclass(frozen=True)
class _Stream:
    """The samples of a node, which all clients of a gateway learn from; each is drawn once."""

    nodes: int
    place: int
    seed: int

    def read(self, start: Position, limit: int) -> Samples:
        return _draw(self, start.samples, limit)


@lru_cache(maxsize=4096)
def _draw(stream: _Stream, start: int, limit: int) -> Samples:
    source = SyntheticSource(_scenario(stream.nodes), stream.place, stream.seed)
    return source.read(Position(start), limit)


@cache
def _scenario(nodes: int) -> Scenario:
    return Scenario(
        num_clients=nodes, dimension=DIMENSION, num_participants=nodes, num_shared=1, data=Data(fleet_seed=1)
    )
