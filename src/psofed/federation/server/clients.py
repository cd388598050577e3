"""Clients: those that a gateway has named, and the one client of any other node.

A client's name is unique in the federation, because status, history, strikes and defence go by it. A gateway names its
clients itself, so a name belongs for good to the node that used it first, for a client or as its own. Another node that
names it too is told that it is refused, and continues with its other clients. Everything the server keeps about a
client goes by its name, so the names that one node may ever use are bounded. The registry is part of the checkpoint.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psofed.federation.protocol.wire import client_number, roster_digest
from psofed.federation.server.nodes import Node
from psofed.render.numbers import listed

_log = logging.getLogger("psofed.federation")

NAMES_PER_CLIENT = 10
"""A node may use this many times more names during a run than it may have clients at a time."""

_REFUSALS_KEPT = 20  # names of each node that are stored and sent back to it


def dominance(rosters: Mapping[str, Collection[str]], nodes: Collection[str]) -> str:
    """Return which gateway has most of all clients, though there are other `nodes`; empty if no gateway has.

    No rule protects a model from a majority.

    Examples
    --------
    >>> dominance({"gate": ["a", "b", "c"]}, ["gate", "pump"])
    'gate has 3 of all 4 clients: if it is Byzantine, it controls the model; --max-clients limits the clients of a node'
    >>> dominance({"gate": ["a", "b", "c"]}, ["gate"]), dominance({"gate": ["a"]}, ["gate", "pump"])
    ('', '')
    """
    alone = set(nodes) - set(rosters)
    total = sum(map(len, rosters.values())) + len(alone)
    for node, clients in rosters.items():
        if len(rosters) + len(alone) > 1 and 2 * len(clients) > total:
            return (
                f"{node} has {len(clients)} of all {total} clients: if it is Byzantine, it controls the model; "
                "--max-clients limits the clients of a node"
            )
    return ""


def anybody(node: str) -> bool:
    """Say of every node that it may have many clients."""
    return True


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
        Its name at the node; empty for the one client of a node that is not a gateway.
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
        Clients that one node may have at a time (`max_clients` of a run).
    rosters : dict
        For every gateway, by name, its clients.
    owners : dict
        For every client that was ever named, the node it belongs to.
    nodes : set of str
        Names of all nodes that were ever online, as clients, which no other node can claim.
    is_gateway : callable
        Whether a node, by name, may have more than one client.

    Examples
    --------
    >>> registry, (a, b) = ClientRegistry(most=100), (Node("gate-a", 1, 11), Node("gate-b", 2, 22))
    >>> registry.meet([a, b])
    >>> registry.note(a, ["north", "south"]), registry.note(b, ["south", "west", "gate-a"])
    (True, True)
    >>> [(client.name, client.node.name) for client in registry.clients_of([a, b])]
    [('north', 'gate-a'), ('south', 'gate-a'), ('west', 'gate-b')]
    >>> registry.refused(b)
    ('gate-a', 'south')
    """

    most: int
    rosters: dict[str, list[str]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    _refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _digests: dict[str, str] = field(default_factory=dict)
    is_gateway: Callable[[str], bool] = anybody
    _named: Counter[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._named = Counter(self.owners.values())

    def meet(self, nodes: Iterable[Node]) -> None:
        """Keep the names of nodes for themselves."""
        self.nodes |= {self._name_of(node) for node in nodes}

    def note(self, node: Node, names: Iterable[str]) -> bool:
        """Register a node's clients, and return whether they have changed.

        If there are too many, those that it has already stay.

        Parameters
        ----------
        names : iterable of str
            All of them; empty if the node is not a gateway, or no longer one.
        """
        named = sorted(names)
        digest = roster_digest(named)
        if digest == self._digests.get(node.name, ""):
            return False
        accepted: list[str] = []
        refused: list[str] = []
        reasons: dict[str, list[str]] = {}
        others = self.nodes - {node.name}
        most = self.most if self.is_gateway(node.name) else 1
        unused = most * NAMES_PER_CLIENT - self._named[node.name]
        before = self.rosters.get(node.name, [])
        for name in sorted(named, key=lambda name: name not in before):
            owner = self.owners.get(name)
            if owner not in (None, node.name) or (owner is None and name in others):
                reason = "a name belongs to the node that used it first"
            elif len(accepted) >= most < self.most:
                reason = f"its key is for one client; see psofed federation certs --gateway {node.name}"
            elif len(accepted) >= most:
                reason = f"a node may have {most} clients"
            elif owner is None and unused <= 0:
                reason = f"a node may use {most * NAMES_PER_CLIENT} names during a run"
            else:
                accepted.append(name)
                unused -= owner is None
                continue
            refused.append(name)
            reasons.setdefault(reason, []).append(
                name if owner in (None, node.name) else f"{name} of {owner}"
            )
        refusals = tuple(sorted(refused)[:_REFUSALS_KEPT])
        # A node that may become a gateway is to name its clients again.
        self._digests[node.name] = digest if len(named) <= most or most == self.most else ""
        if named and (sorted(accepted), refusals) == (before, self._refused.get(node.name)):
            return False
        if reasons:
            said = "; ".join(f"{listed(names)} ({reason})" for reason, names in reasons.items())
            _log.warning("%s names clients that are refused: %s", node.name, said)
        self._named[node.name] += sum(name not in self.owners for name in accepted)
        self.owners |= dict.fromkeys(accepted, node.name)
        self._refused[node.name] = refusals
        self.rosters.pop(node.name, None)
        if named:
            self.rosters[node.name] = sorted(accepted)
            joined, left = set(accepted) - set(before), set(before) - set(accepted)
            _log.info("%s has %d clients (%d new, %d gone)", node.name, len(accepted), len(joined), len(left))
        return True

    def clients_of(self, nodes: Sequence[Node]) -> list[Client]:
        """Return the clients of some nodes, by name."""
        found = []
        for node in nodes:
            if (roster := self.rosters.get(node.name)) is not None:
                most = self.most if self.is_gateway(node.name) else 1
                found += [
                    Client(name, client_number(node.number, name), node, name) for name in roster[:most]
                ]
            else:
                found.append(Client(self._name_of(node), node.number, node))
        return sorted(found, key=lambda client: client.name)

    def _name_of(self, node: Node) -> str:
        """Return the name of a node's one client: its own, and its number as often as gateways have used the name."""
        name = node.name
        while name in self.owners:
            name = f"{name}-{node.number}"
        return name

    def digest(self, node: Node) -> str:
        """Return the digest of what a node last said; empty if it is not known as a gateway."""
        return self._digests.get(node.name, "")

    def refused(self, node: Node) -> tuple[str, ...]:
        """Return clients that a node has named and that are not accepted, the first 20 of them."""
        return self._refused.get(node.name, ())

    def to_mapping(self) -> dict[str, Any]:
        """Return plain dicts, as JSON holds them."""
        return {
            "rosters": dict(sorted(self.rosters.items())),
            "owners": dict(sorted(self.owners.items())),
            "nodes": sorted(self.nodes),
            "refused": {node: list(names) for node, names in sorted(self._refused.items()) if names},
            "digests": {node: digest for node, digest in sorted(self._digests.items()) if digest},
        }

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[str, Any], most: int, is_gateway: Callable[[str], bool] = anybody
    ) -> "ClientRegistry":
        """Read what :meth:`to_mapping` gave."""
        rosters = {node: list(names) for node, names in mapping.get("rosters", {}).items()}
        refused = {node: tuple(names) for node, names in mapping.get("refused", {}).items()}
        owners, digests = dict(mapping.get("owners", {})), dict(mapping.get("digests", {}))
        return cls(most, rosters, owners, set(mapping.get("nodes", ())), refused, digests, is_gateway)
