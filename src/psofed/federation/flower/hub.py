"""Flower's Grid as a federation's hub: a frame is one value of bytes in a message.

Flower delivers each message at most once and knows which nodes are online, so a node's connection never changes.
Flower has read a reply before the hub sees it, so its own limits on sizes apply.
"""

import math
from collections.abc import Collection, Sequence

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from psofed.common.scheduler import scheduler
from psofed.federation.flower.in_process import InProcessGrid
from psofed.federation.protocol.messages import (
    Announcement,
    NodeReply,
    RunDescription,
    decode_instruction,
    encode_reply,
)
from psofed.federation.transport.hub import NodePresence

RECORD, FRAME = "psofed", "frame"
_LOOK_EVERY = 0.5  # seconds, between two questions to Flower which nodes are online
_PULL_EVERY = 0.05  # seconds, and a tenth of it more for each node that is waited for


def wrap_frame(frame: bytes) -> RecordDict:
    """Return the content of a message that carries a frame."""
    return RecordDict({RECORD: ConfigRecord({FRAME: frame})})


def frame_of(content: RecordDict) -> bytes | None:
    """Return the frame in the content of a message; None if there is none."""
    record = content.get(RECORD)
    frame = record.get(FRAME) if isinstance(record, ConfigRecord) else None
    return frame if isinstance(frame, bytes) else None


class GridHub:
    """A hub whose nodes run ClientApps with :func:`psofed.federation.flower.sharing.partial_sharing`.

    A node is called by its number, ``str(node_id)``. A failure that Flower reports is turned into the node's reply.

    Parameters
    ----------
    grid : Grid
        As a ServerApp gets it.
    """

    is_connected = True

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._session = ""
        self._nodes: tuple[str, ...] = ()
        self._looked = -math.inf
        self._revoked: frozenset[str] = frozenset()
        # By node: the id of the message that is open, and its frame.
        self._open: dict[str, tuple[str, bytes]] = {}
        self._failed: list[tuple[str, bytes]] = []

    def present(self) -> dict[str, NodePresence]:
        """Return the nodes that Flower takes for online, all of them ready for the run."""
        now = scheduler().monotonic()
        if now - self._looked >= _LOOK_EVERY:
            self._nodes, self._looked = tuple(str(node) for node in self.grid.get_node_ids()), now
        body = Announcement(self._session).to_bytes()
        return {name: NodePresence("", body) for name in self._nodes if name not in self._revoked}

    def send(self, node: str, frame: bytes) -> None:
        """Send an instruction; an earlier one of the same node is forgotten."""
        make = self.grid.create_message if isinstance(self.grid, InProcessGrid) else Message
        message = make(wrap_frame(frame), dst_node_id=int(node), message_type=MessageType.TRAIN)
        ids = list(self.grid.push_messages([message]))
        if ids and ids[0]:
            self._open[node] = ids[0], frame
        else:
            self._failed.append((node, _failure(frame, "Flower did not accept the message")))

    def receive(self, seconds: float) -> Sequence[tuple[str, bytes]]:
        """Return the replies that have arrived; without any, after a short pause."""
        arrived, self._failed = self._failed, []
        # One at a time: a reply that Flower cannot read must not take others with it.
        arrived += [(node, reply) for node in list(self._open) if (reply := self._pull(node)) is not None]
        if not arrived:
            scheduler().sleep(min(seconds, _PULL_EVERY * (1.0 + 0.1 * len(self._open))))
        return [(node, frame) for node, frame in arrived if node not in self._revoked]

    def _pull(self, node: str) -> bytes | None:
        message_id, instruction = self._open[node]
        try:
            replies = list(self.grid.pull_messages([message_id]))
            reply = _reply_frame(replies[0], instruction) if replies else None
        except Exception as error:
            self.grid.get_node_ids()  # raises, too, if it is the connection that is lost
            reply = _failure(instruction, f"its reply cannot be read: {type(error).__name__}: {error}")
        if reply is not None:
            del self._open[node]
        return reply

    def publish(self, run: bytes | None = None, model: bytes | None = None) -> None:
        """Take note of the run; Flower retains neither run nor model."""
        if run is not None:
            self._session = RunDescription.from_bytes(run).session if run else ""

    def revoke(self, names: Collection[str]) -> None:
        """Ignore these nodes; Flower itself still lets them in."""
        self._revoked = frozenset(names)

    def close(self) -> None:
        """Do nothing: the grid is Flower's."""


def _reply_frame(reply: Message, instruction: bytes) -> bytes:
    if reply.has_error():
        return _failure(instruction, reply.error.reason or f"Flower's error {reply.error.code}")
    frame = frame_of(reply.content)
    if frame is None:
        return _failure(instruction, "its ClientApp does not use the mod partial_sharing()")
    return frame


def _failure(instruction: bytes, reason: str) -> bytes:
    """Return the reply of a node that could not work on an instruction."""
    return encode_reply(NodeReply.failure(decode_instruction(instruction), reason))
