"""The two ends of a transport: a :class:`Hub` for the server, a :class:`Link` for a node.

A transport carries frames, which are bytes that it does not look into (:mod:`psofed.federation.protocol.frames`).
It has four duties.

1. **Identity.** A frame or presence is handed out under a node's name only if the transport has proved that name.
   Frames of unknown or revoked names are dropped, and so are frames larger than the limit that the transport was made
   with. Everything else (frames that answer nothing, twice or too late, and nonsense) is the core's affair.
2. **At least once, while both ends are connected.** Frames may be repeated, delayed, reordered or lost with a
   connection. The core sends an instruction again when the `connection` of a node's presence changes, and nodes answer
   a repeated instruction from their memory. A hub that reconnects must not lose frames that nodes sent meanwhile.
3. **Presence.** A node that is gone disappears from :meth:`Hub.present` by itself (MQTT: the last will).
4. **Retained values.** The newest run description reaches every node whenever it connects. The newest model stays
   where other programs can read it.

Methods never raise for a lost connection: the transport reconnects by itself, and :attr:`Hub.is_connected` says so.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from psofed.federation.protocol.messages import Announcement

MAX_FRAME = 96 << 20
"""Bytes of a frame that a transport carries unless told otherwise: the largest model of a node, 80 MB, and a header."""

RUN, INSTRUCTION = "run", "instruction"
"""Kinds of :class:`Arrival`."""


@dataclass(frozen=True)
class NodePresence:
    """A node that is online: `connection` differs for each connection it makes, `body` is what it announced."""

    connection: str
    body: bytes

    @cached_property
    def announcement(self) -> Announcement:
        """Announcement of the node; one that cannot be read is a problem."""
        try:
            return Announcement.from_bytes(self.body)
        except ValueError as error:
            return Announcement(problem=f"announces itself wrongly: {error}")


@dataclass(frozen=True)
class Arrival:
    """Something that a node receives: a run description (:data:`RUN`) or an instruction (:data:`INSTRUCTION`)."""

    kind: str
    body: bytes


class Hub(Protocol):
    """The server's end. Called by one thread."""

    @property
    def is_connected(self) -> bool:
        """Whether frames can travel now. If not, nobody is judged absent: the server waits."""

    def present(self) -> Mapping[str, NodePresence]:
        """Return the nodes that are online, by name."""

    def send(self, node: str, frame: bytes) -> None:
        """Send an instruction to `node`; if it is not online the frame may be lost."""

    def receive(self, seconds: float) -> Sequence[tuple[str, bytes]]:
        """Return the replies that have arrived, (node, frame), at once if there are any, else after `seconds`."""

    def publish(self, run: bytes | None = None, model: bytes | None = None) -> None:
        """Replace the retained run description or model; empty bytes remove it."""

    def revoke(self, names: Collection[str]) -> None:
        """Let in, from this moment on, nobody of these `names`: all that are revoked, not only new ones."""

    def close(self) -> None:
        """Disconnect; retained values stay."""


class Link(Protocol):
    """A node's end. `receive` is called by one thread, the others by any."""

    def announce(self, body: bytes) -> None:
        """Be present with this `body`, now and after every reconnection, until :meth:`close`."""

    def receive(self, seconds: float) -> Arrival | None:
        """Return what arrives next, None after `seconds`. A repeated run description need not be left out."""

    def send(self, frame: bytes) -> None:
        """Send a reply to the server."""

    def close(self) -> None:
        """Say goodbye (the presence disappears) and disconnect."""
