"""Who the clients are: those that a gateway has named, and the one client of any other node.

A client's name is unique in the federation, because status, history, strikes and defence go by it. A gateway names its
clients itself, so a name belongs to the node that named it first, for good: another node that names it too is told
that it is refused, and its other clients go on. What is known is part of the checkpoint.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psofed.federation.protocol.wire import client_number, roster_digest
from psofed.federation.server.nodes import Node

_log = logging.getLogger("psofed.federation")


@dataclass(frozen=True)
class Client:
    """A client as the server sees it.

    Attributes
    ----------
    name : str
        In the history, the result and every line that a person reads.
    number : int
        By which it is drawn; see :func:`psofed.federation.protocol.wire.client_number`.
    node : Node
        That works for it.
    local : str
        Its name at the node; empty for the one client of a node that is no gateway.
    """

    name: str
    number: int
    node: Node
    local: str = ""


@dataclass
class ClientRegistry:
    """The clients that gateways have named.

    Parameters
    ----------
    most : int
        Clients that one node may have.
    rosters : dict
        For every gateway, by name, its clients.
    owners : dict
        For every client that was ever named, the node it belongs to.

    Examples
    --------
    >>> registry, (a, b) = ClientRegistry(), (Node("gate-a", 1, 11), Node("gate-b", 2, 22))
    >>> registry.note(a, ["north", "south"], others=[]), registry.note(b, ["south", "west"], others=[])
    (True, True)
    >>> [(client.name, client.node.name) for client in registry.clients_of([a, b])]
    [('north', 'gate-a'), ('south', 'gate-a'), ('west', 'gate-b')]
    >>> registry.refused(b)
    ('south',)
    """

    most: int = 1000
    rosters: dict[str, list[str]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    _refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)

    def note(self, node: Node, names: Iterable[str], others: Collection[str]) -> bool:
        """Take down a node's clients, and return whether they are others than before.

        Parameters
        ----------
        names : iterable of str
            All of them; none if the node is no gateway, or no longer.
        others : collection of str
            Names of other nodes, which no gateway can claim for its clients.
        """
        named = sorted(names)
        digest = roster_digest(named)
        if digest == self._digests.get(node.name, ""):
            return False
        accepted: list[str] = []
        refused: list[str] = []
        for name in named:
            owner = self.owners.get(name, node.name)
            if owner != node.name or (name in others and name not in self.owners):
                reason = f"it belongs to {owner if owner != node.name else f'the node {name}'}"
            elif len(accepted) >= self.most:
                reason = f"a node may have {self.most}"
            else:
                accepted.append(name)
                continue
            refused.append(name)
            _log.warning("%s names the client %s, which is refused: %s", node.name, name, reason)
        self.owners |= dict.fromkeys(accepted, node.name)
        self._digests[node.name], self._refused[node.name] = digest, tuple(refused)
        before = self.rosters.pop(node.name, [])
        if named:
            self.rosters[node.name] = accepted
            joined, left = set(accepted) - set(before), set(before) - set(accepted)
            _log.info("%s has %d clients (%d new, %d gone)", node.name, len(accepted), len(joined), len(left))
        return True

    def clients_of(self, nodes: Sequence[Node]) -> list[Client]:
        """Return the clients of some nodes, by name."""
        found = []
        for node in nodes:
            if (roster := self.rosters.get(node.name)) is not None:
                found += [Client(name, client_number(node.number, name), node, name) for name in roster]
            else:
                # A gateway may have a client of this name: the number tells them apart.
                name = f"{node.name}-{node.number}" if node.name in self.owners else node.name
                found.append(Client(name, node.number, node))
        return sorted(found, key=lambda client: client.name)

    def digest(self, node: Node) -> str:
        """Return the digest of what a node last said; empty if it is not known as a gateway."""
        return self._digests.get(node.name, "")

    def refused(self, node: Node) -> tuple[str, ...]:
        """Return the clients that a node has named and that are not accepted."""
        return self._refused.get(node.name, ())

    def to_mapping(self) -> dict[str, Any]:
        """Return plain dicts, as JSON holds them."""
        return {
            "rosters": dict(sorted(self.rosters.items())),
            "owners": dict(sorted(self.owners.items())),
            "refused": {node: list(names) for node, names in sorted(self._refused.items()) if names},
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], most: int) -> "ClientRegistry":
        """Read what :meth:`to_mapping` gave."""
        rosters = {node: list(names) for node, names in mapping.get("rosters", {}).items()}
        refused = {node: tuple(names) for node, names in mapping.get("refused", {}).items()}
        digests = {node: roster_digest([*names, *refused.get(node, ())]) for node, names in rosters.items()}
        return cls(most, rosters, dict(mapping.get("owners", {})), refused, digests)
