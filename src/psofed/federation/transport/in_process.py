"""Nodes that live in the server's process and answer at once: for tests, demonstrations and experiments."""

from collections.abc import Collection, Mapping
from typing import Protocol

from psofed.common.scheduler import scheduler
from psofed.federation.transport.hub import NodePresence


class LocalNode(Protocol):
    """A node without a transport; see :class:`psofed.federation.client.node.Node`."""

    def begin(self, run: bytes) -> None:
        """Take note of a run description."""

    def announcement(self) -> bytes:
        """Return what the node announces."""

    def answer(self, frame: bytes) -> bytes | None:
        """Return the reply to an instruction; None for an instruction that is not to be answered."""


class InProcessHub:
    """A hub whose nodes are objects.

    Parameters
    ----------
    nodes : mapping of str to LocalNode
        By name; may be changed at any time.

    Attributes
    ----------
    run, model : bytes
        The retained values.
    """

    is_connected = True

    def __init__(self, nodes: Mapping[str, LocalNode]) -> None:
        self.nodes: dict[str, LocalNode] = dict(nodes)
        self.run: bytes = b""
        self.model: bytes = b""
        self._revoked: frozenset[str] = frozenset()
        self._told: dict[str, tuple[LocalNode, bytes]] = {}
        self._arrived: list[tuple[str, bytes]] = []

    def present(self) -> dict[str, NodePresence]:
        """Return the nodes that are not revoked."""
        return {
            name: NodePresence(str(id(self.nodes[name])), self._admitted(name).announcement())
            for name in self.nodes
            if name not in self._revoked
        }

    def _admitted(self, name: str) -> LocalNode:
        """Return a node, after telling it of the run if it does not know."""
        node = self.nodes[name]
        if self.run and self._told.get(name) != (node, self.run):
            self._told[name] = node, self.run
            node.begin(self.run)
        return node

    def send(self, node: str, frame: bytes) -> None:
        """Let a node answer."""
        if node in self.nodes and node not in self._revoked:
            reply = self._admitted(node).answer(frame)
            if reply is not None:
                self._arrived.append((node, reply))

    def receive(self, seconds: float) -> list[tuple[str, bytes]]:
        """Return the replies; without any, none will arrive in `seconds` either."""
        arrived, self._arrived = self._arrived, []
        if not arrived:
            scheduler().sleep(seconds)
        return [(node, frame) for node, frame in arrived if node not in self._revoked]

    def publish(self, run: bytes | None = None, model: bytes | None = None) -> None:
        """Keep the newest values."""
        self.run = self.run if run is None else run
        self.model = self.model if model is None else model

    def revoke(self, names: Collection[str]) -> None:
        """Drop these nodes."""
        self._revoked = frozenset(names)

    def close(self) -> None:
        """Do nothing."""
