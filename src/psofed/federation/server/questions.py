"""Questions of a round: which entries of the server's model each participant receives, and in which form."""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
)
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
    clients : mapping
        Those asked, by their name at the node.
    kinds : mapping
        What each of them was asked, by the same name.
    num_values : int
        Values that were sent, each client's counted by itself.
    """

    node: str
    sequence: int
    frame: bytes
    clients: Mapping[str, Client]
    kinds: Mapping[str, str]
    num_values: int


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
    task = _tasks(state, sharing, plan, round_number)
    nodes: dict[str, list[Client]] = {}
    for client in clients:
        nodes.setdefault(client.node, []).append(client)
    questions = []
    for node, asked in nodes.items():
        tasks = tuple(task(client) for client in asked)
        kinds = {part.client: part.kind for part in tasks}
        instruction = Instruction(
            session=state.session,
            round_number=round_number,
            epoch=state.epoch,
            sequence=next(sequences),
            node=node,
            masks=sharing.derived(state.layout.dimension),
            digest=state.layout.digest,
            layout=state.layout if {START, FULL, SYNC} & {*kinds.values()} else None,
            refused=refused.get(node, ()),
            tasks=tasks,
            config=config,
        )
        count = sum(0 if part.values is None else len(part.values) for part in tasks)
        local = {client.local: client for client in asked}
        questions.append(
            NodeQuestion(node, instruction.sequence, encode_instruction(instruction), local, kinds, count)
        )
    return questions


def _tasks(
    state: ServerState, sharing: Sharing, plan: RoundPlan, round_number: int
) -> Callable[[Client], ClientTask]:
    masks = sharing.masks(state.layout.dimension)
    is_common = sharing.coordinated and sharing.supplied is None
    common: Vector | None = None

    def task(client: Client) -> ClientTask:
        nonlocal common
        last = state.seen.get(client.name)
        kind = _kind(plan, last, round_number)
        if kind in (FULL, SYNC):
            values = state.model
        elif not is_common or common is None:
            values = common = state.model[masks.indices(round_number, client.number)]
        else:
            values = common
        return ClientTask(client.local, kind, max(0, last or 0), values)

    return task


def _kind(plan: RoundPlan, last: int | None, round_number: int) -> str:
    """Return the kind of task for a client whose last accepted round is `last` (−1: it lost its state)."""
    if plan.sync_every and round_number % plan.sync_every == 0:
        return SYNC
    if last is None:
        return START if plan.newcomers == "zeros" else FULL
    return FULL if last < 0 else PART
