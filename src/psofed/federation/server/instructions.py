"""Instructions for each participant of a round: which entries of the server's model it receives, and in which form."""

from dataclasses import dataclass, replace

from flwr.app import ConfigRecord, Message, MessageType

from psofed.federation.protocol.masks import Sharing
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.protocol.wire import (
    DESCRIBE,
    EVALUATE,
    FULL,
    PART,
    START,
    SYNC,
    Instruction,
    encode_instruction,
)
from psofed.federation.server.checkpoint import ServerState
from psofed.federation.server.nodes import Node


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

    def train(self, state: ServerState, node: Node, round_number: int, config: ConfigRecord) -> Message:
        """Return the message that lets `node` learn: its entries S_{k,n}, or the full model."""
        kind = self._kind(state.seen.get(node.name), round_number)
        if kind in (FULL, SYNC):
            values = state.model
        else:
            masks = self.sharing.masks(state.layout.dimension)
            values = state.model[masks.indices(round_number, node.number)]
        instruction = self._instruction(state, node, round_number, kind)
        layout = None if kind == PART else state.layout
        return _message(replace(instruction, layout=layout, values=values), node, config, MessageType.TRAIN)

    def evaluate(self, state: ServerState, node: Node, round_number: int, config: ConfigRecord) -> Message:
        """Return the message that lets `node` evaluate its own model: no entry is sent."""
        return _message(
            self._instruction(state, node, round_number, EVALUATE), node, config, MessageType.EVALUATE
        )

    def describe(self, state: ServerState, node: Node) -> Message:
        """Return the message that asks `node` for the names of its columns, before the first round."""
        return _message(self._instruction(state, node, 1, DESCRIBE), node, ConfigRecord(), MessageType.TRAIN)

    def _instruction(self, state: ServerState, node: Node, round_number: int, kind: str) -> Instruction:
        return Instruction(
            session=state.session,
            round_number=round_number,
            epoch=state.epoch,
            node=node.number,
            kind=kind,
            expected=max(0, state.seen.get(node.name, 0)),
            masks=self.sharing.derived(state.layout.dimension),
            digest=state.layout.digest,
        )

    def _kind(self, last: int | None, round_number: int) -> str:
        """Return the kind of instruction for a node whose last accepted round is `last` (−1: it lost its state)."""
        if self.plan.sync_every and round_number % self.plan.sync_every == 0:
            return SYNC
        if last is None:
            return START if self.plan.newcomers == "zeros" else FULL
        return FULL if last < 0 else PART


def _message(instruction: Instruction, node: Node, config: ConfigRecord, kind: str) -> Message:
    return Message(
        encode_instruction(instruction, config),
        dst_node_id=node.node_id,
        message_type=kind,
        group_id=str(instruction.round_number),
    )
