"""Questions of a round: which entries of the server's model each participant receives, and in which form."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from psofed.federation.protocol.instructions import (
    FULL,
    PART,
    START,
    SYNC,
    ClientTask,
    Instruction,
    encode_instruction,
)  # fmt: skip
from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.clients import Client


@dataclass(frozen=True, eq=False)
class NodeQuestion:
    """One instruction to a node, and the clients that it asks.

    Attributes
    ----------
    node : str
        Whom it asks.
    sequence : int
        That the reply must repeat.
    frame : bytes
        As it is sent.
    clients, tasks : mapping
        Those asked, and what, by their name at the node.
    """

    node: str
    sequence: int
    frame: bytes
    clients: Mapping[str, Client]
    tasks: Mapping[str, ClientTask]


def ask(
    state: ServerState,
    clients: Sequence[Client],
    sharing: Sharing,
    plan: RoundPlan,
    round_number: int,
    sequences: Iterator[int],
    refused: Mapping[str, tuple[str, ...]],
    config: Mapping[str, Any],
) -> list[NodeQuestion]:
    """Return the questions that let `clients` learn, one to each node.

    A client is sent its entries S_{k,n} or the full model. `refused` are the names of clients that nodes cannot have.
    """
    masks = sharing.derived(state.layout.dimension)
    common: Vector | None = None
    nodes: dict[str, list[tuple[Client, ClientTask]]] = {}
    for client in clients:
        last = state.seen.get(client.name)
        kind = _kind(plan, last, round_number)
        values = state.model
        if kind in (PART, START):
            if common is None or not sharing.coordinated:
                common = state.model[masks.indices(round_number, client.number)]
            values = common
        task = ClientTask(client.local, kind, max(0, last or 0), values)
        nodes.setdefault(client.node, []).append((client, task))
    questions = []
    for node, asked in nodes.items():
        tasks = {task.client: task for _, task in asked}
        instruction = Instruction(
            session=state.session,
            round_number=round_number,
            epoch=state.epoch,
            sequence=next(sequences),
            node=node,
            masks=masks,
            digest=state.layout.digest,
            layout=None if all(task.kind == PART for task in tasks.values()) else state.layout,
            refused=refused.get(node, ()),
            tasks=tuple(tasks.values()),
            config=config,
        )
        names = {client.local: client for client, _ in asked}
        frame = encode_instruction(instruction)
        questions.append(NodeQuestion(node, instruction.sequence, frame, names, tasks))
    return questions


def _kind(plan: RoundPlan, last: int | None, round_number: int) -> str:
    """Return the kind of task for a client whose last accepted round is `last` (−1: it lost its state)."""
    if plan.sync_every and round_number % plan.sync_every == 0:
        return SYNC
    if last is None:
        return START if plan.newcomers == "zeros" else FULL
    return FULL if last < 0 else PART
