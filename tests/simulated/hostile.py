"""Hostile requests of a node whose key is valid: what its other hands send beside its honest replies."""

import contextlib
from hashlib import sha256
from typing import Any

import httpx
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.superlink.grid.http_grid import Metadata, make_message
from simulated_link import FleetClient
from simulated_time import World

from psofed.federation.flower.inline import write_inline
from psofed.federation.protocol.packing import pack
from psofed.federation.protocol.wire import decode_instruction, encode_instruction

SUPERLINK = 1


class Hands:
    """Sends what no honest node would send.

    Parameters
    ----------
    world : World
        Time.
    client : FleetClient
        Signs with the forger's key.
    node_id : int
        Flower's id of the forger.
    victim : int
        Flower's id of an honest node, which the forger is assumed to know.
    victim_number : int
        The number that its masks follow from.
    question : str
        Id of the last instruction that the forger has got.
    instruction : RecordDict or None
        Its content.
    run_id : int
        The run.
    """

    def __init__(
        self,
        world: World,
        client: FleetClient,
        *,
        node_id: int,
        victim: int,
        victim_number: int,
        question: str,
        instruction: RecordDict | None,
        run_id: int,
    ) -> None:
        self.world, self.client, self.node_id, self.victim = world, client, node_id, victim
        self.victim_number, self.question = victim_number, question
        self.instruction, self.run_id = instruction, run_id

    def do(self, kind: str, amount: float) -> None:
        """Do something, whatever comes of it; half of the messages carry their content."""
        self._inline = amount > 0.5
        with contextlib.suppress(httpx.HTTPError):
            getattr(self, "_" + kind.replace(",", "").replace(" ", "_").lower())(amount)

    def _flood(self, amount: float) -> None:
        node = Node(node_id=self.node_id)
        for number in range(10 + int(40 * amount)):
            interval = 3600.0 if number % 5 == 0 else 10.0
            with contextlib.suppress(httpx.HTTPError):
                self.client.SendNodeHeartbeat(
                    SendNodeHeartbeatRequest(node=node, heartbeat_interval=interval)
                )

    def _replay(self, amount: float) -> None:
        """Send the last replies again."""
        for call, body in getattr(self.client, "sent", [])[-4:]:
            self.client.call(call, body)

    def _empty_reply_to(self, amount: float) -> None:
        self._push(self._message(SUPERLINK, SUPERLINK, ""), send=True)

    def _empty_reply_to_never_sent(self, amount: float) -> None:
        self._push(self._message(SUPERLINK, SUPERLINK, ""), send=False)

    def _instruction_to_another(self, amount: float) -> None:
        self._push(self._message(SUPERLINK, self.victim, ""), send=True)

    def _instruction_without_children(self, amount: float) -> None:
        message = self._message(SUPERLINK, self.victim, "")
        self._push(message, send=True, tree=ObjectTree(object_id=message.metadata.message_id))

    def _foreign_source(self, amount: float) -> None:
        self._push(self._message(self.victim, SUPERLINK, self.question), send=True)

    def _repeated_ids(self, amount: float) -> None:
        message = self._message(SUPERLINK, SUPERLINK, "")
        leaf = ObjectTree(object_id=sha256(b"leaf").hexdigest())
        for level in range(3):
            leaf = ObjectTree(object_id=sha256(f"level {level}".encode()).hexdigest(), children=[leaf] * 15)
        tree = ObjectTree(object_id=message.metadata.message_id, children=[leaf])
        self._push(message, send=False, tree=tree)

    def _own_reply_never_sent(self, amount: float) -> None:
        self._push(self._message(self.node_id, SUPERLINK, self.question), send=False)

    def _own_reply_twice(self, amount: float) -> None:
        for _ in range(2):
            self._push(self._message(self.node_id, SUPERLINK, self.question), send=True)

    def _own_reply_garbage(self, amount: float) -> None:
        message = self._message(self.node_id, SUPERLINK, self.question)
        self._push(message, send=True, tree=ObjectTree(object_id=message.metadata.message_id))

    def _replies_to_nothing(self, amount: float) -> None:
        for _ in range(5 + int(20 * amount)):
            unknown = f"{self.world.random.getrandbits(256):064x}"
            self._push(self._message(self.node_id, SUPERLINK, unknown), send=False)

    def _forged_content(self) -> RecordDict:
        """Return an instruction for the victim that makes its model 777, as far as the forger knows how to."""
        if self.instruction is None:
            number = self.world.random.getrandbits(60)
            return RecordDict(
                {"v": ArrayRecord({"v": Array(np.full(4, 777.0))}), "psofed": ConfigRecord({"n": number})}
            )
        heard = decode_instruction(self.instruction)
        (task, *_) = heard.tasks
        assert task.values is not None
        lie = task._replace(client="", values=np.full_like(task.values, 777.0))
        forged = heard._replace(node=self.victim_number, tasks=(lie,))
        return encode_instruction(forged, ConfigRecord({}))

    def _message(self, source: int, target: int, reply_to: str) -> Any:
        content = self._forged_content()
        metadata = Metadata(
            run_id=self.run_id,
            message_id="",
            src_node_id=source,
            dst_node_id=target,
            reply_to_message_id=reply_to,
            group_id="1",
            created_at=self.world.time(),
            ttl=60.0,
            message_type="train",
        )
        message = make_message(metadata=metadata, content=content)
        message.metadata.__dict__["_message_id"] = message.object_id
        return message

    def _push(self, message: Any, *, send: bool, tree: ObjectTree | None = None) -> None:
        node = Node(node_id=self.node_id)
        if self._inline:
            self._push_inline(message, node, send, tree)
            return
        objects = get_all_nested_objects(message)
        answer = self.client.PushMessages(
            PushMessagesRequest(
                node=node,
                messages_list=[message_to_proto(remove_content_from_message(message))],
                message_object_trees=[tree or get_object_tree(message)],
                clientapp_runtime_list=[0.1],
            )
        )
        for identity, item in objects.items() if send else ():
            if identity in answer.objects_to_push:
                self.client.PushObject(
                    PushObjectRequest(
                        node=node,
                        run_id=self.run_id,
                        object_id=identity,
                        object_content=item.deflate(),
                        session_id=answer.session_id,
                    )
                )

    def _push_inline(self, message: Any, node: Node, send: bool, tree: ObjectTree | None) -> None:
        """Push a message that carries its content; with another tree than its own, or another id if it is not sent."""
        message.content = pack(message.content)
        proto, own = write_inline(message)
        if not send:
            proto.metadata.message_id = own.object_id = sha256(b"another").hexdigest()
        self.client.PushMessages(
            PushMessagesRequest(
                node=node,
                messages_list=[proto],
                message_object_trees=[tree or own],
                clientapp_runtime_list=[0.1],
            )
        )
