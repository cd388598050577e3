"""Instructions for each participant of a round: which entries of the server's model it receives, and in which form."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flwr.app import Array, ConfigRecord, Message, MessageType

from psofed.federation.protocol.layout import Vector
from psofed.federation.protocol.masks import DerivedMasks, Sharing
from psofed.federation.protocol.npy import array_of
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.protocol.wire import (
    DESCRIBE,
    EVALUATE,
    FULL,
    PART,
    START,
    SYNC,
    ClientTask,
    Instruction,
    encode_instruction,
)
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.clients import Client, ClientRegistry
from psofed.federation.server.nodes import Node


class NodeQuestion(NamedTuple):
    """One message to a node, and the clients that it asks.

    Attributes
    ----------
    message : Message
        As it is sent.
    clients : mapping
        Those asked, by their name at the node.
    kinds : mapping
        What each of them was asked, by the same name.
    num_values : int
        Values that were sent, each client's counted by itself.
    """

    message: Message
    clients: dict[str, Client]
    kinds: dict[str, str]
    num_values: int


@dataclass(frozen=True)
class Instructor:
    """Addresses a round's instructions.

    Parameters
    ----------
    sharing : Sharing
        Which entries.
    plan : RoundPlan
        What newcomers start from, and how often the full model is sent.
    """

    sharing: Sharing
    plan: RoundPlan

    def ask(
        self,
        state: ServerState,
        clients: Sequence[Client],
        registry: ClientRegistry,
        round_number: int,
        config: ConfigRecord,
        *,
        evaluate: bool = False,
    ) -> list[NodeQuestion]:
        """Return the messages that let `clients` learn, or `evaluate` their own models, one to each node.

        A client that learns is sent its entries S_{k,n} or the full model, one that evaluates is sent no values.
        """
        task = _evaluation(state) if evaluate else self._training(state, round_number)
        messages = _Messages(
            state, registry, self.sharing.derived(state.layout.dimension), round_number, config
        )
        return [
            messages.question(node, asked, [task(client) for client in asked])
            for node, asked in _by_node(clients).items()
        ]

    def _training(self, state: ServerState, round_number: int) -> Callable[[Client], ClientTask]:
        masks = self.sharing.masks(state.layout.dimension)
        is_common = self.sharing.coordinated and self.sharing.supplied is None
        common: Vector | None = None

        def task(client: Client) -> ClientTask:
            nonlocal common
            last = state.seen.get(client.name)
            kind = self._kind(last, round_number)
            if kind in (FULL, SYNC):
                values = state.model
            elif not is_common or common is None:
                values = common = state.model[masks.indices(round_number, client.number)]
            else:
                values = common
            return ClientTask(client.local, kind, max(0, last or 0), values)

        return task

    def describe(self, state: ServerState, node: Node, registry: ClientRegistry) -> NodeQuestion:
        """Return the message that asks `node` for the names of its columns and clients, before the first round."""
        whole = Client(node.name, node.number, node)
        messages = _Messages(state, registry, self.sharing.derived(state.layout.dimension), 1, ConfigRecord())
        return messages.question(node, [whole], [ClientTask("", DESCRIBE)])

    def _kind(self, last: int | None, round_number: int) -> str:
        """Return the kind of instruction for a client whose last accepted round is `last` (−1: it lost its state)."""
        if self.plan.sync_every and round_number % self.plan.sync_every == 0:
            return SYNC
        if last is None:
            return START if self.plan.newcomers == "zeros" else FULL
        return FULL if last < 0 else PART


@dataclass(eq=False)
class _Messages:
    """Makes the messages of one round."""

    state: ServerState
    registry: ClientRegistry
    masks: DerivedMasks
    round_number: int
    config: ConfigRecord
    _encoded: tuple[Vector, Array] | None = None

    def question(self, node: Node, clients: Sequence[Client], tasks: Sequence[ClientTask]) -> NodeQuestion:
        """Return the message that asks `node` to let each of its `clients` do its task."""
        state = self.state
        kinds = {task.client: task.kind for task in tasks}
        asked = kinds.values()
        instruction = Instruction(
            session=state.session,
            round_number=self.round_number,
            epoch=state.epoch,
            node=node.number,
            masks=self.masks,
            digest=state.layout.digest,
            layout=state.layout if START in asked or FULL in asked or SYNC in asked else None,
            roster=self.registry.digest(node),
            refused=self.registry.refused(node),
            tasks=tuple(tasks),
        )
        message = Message(
            encode_instruction(instruction, self.config, self._encode),
            dst_node_id=node.node_id,
            message_type=MessageType.EVALUATE if EVALUATE in asked else MessageType.TRAIN,
            group_id=str(self.round_number),
        )
        count = sum([0 if task.values is None else len(task.values) for task in tasks])
        return NodeQuestion(message, {client.local: client for client in clients}, kinds, count)

    def _encode(self, values: Vector) -> Array:
        """Return `values` as they travel; what node after node is sent is encoded and held once."""
        if self._encoded is None or self._encoded[0] is not values:
            self._encoded = values, array_of(values)
        return self._encoded[1]


def _evaluation(state: ServerState) -> Callable[[Client], ClientTask]:
    return lambda client: ClientTask(client.local, EVALUATE, max(0, state.seen.get(client.name, 0)))


def _by_node(clients: Sequence[Client]) -> dict[Node, list[Client]]:
    found: dict[Node, list[Client]] = {}
    for client in clients:
        found.setdefault(client.node, []).append(client)
    return found
