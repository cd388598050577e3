"""Clients: those that a gateway has named, and the one client of any other node.

A client's name is unique in the federation, because status, history, strikes and defence go by it. A gateway names its
clients itself, so a name belongs for good to the node that used it first, for a client or as its own. Another node that
names it too is told that it is refused, and continues with its other clients. Everything the server keeps about a
client goes by its name, so the names that one node may ever use are bounded. The registry is part of the checkpoint.
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psofed.federation.protocol.names import client_number, node_number
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
            limit = "if it is Byzantine, it controls the model; --max-clients limits the clients of a node"
            return f"{node} has {len(clients)} of all {total} clients: {limit}"
    return ""


@dataclass(frozen=True)
class Client:
    """A client as the server sees it.

    Attributes
    ----------
    name : str
        In the history, the result and every line that a person reads.
    number : int
        By which it is drawn; see :func:`psofed.federation.protocol.names.client_number`.
    node : str
        That works for it.
    local : str
        Its name at the node; empty for the one client of a node that is not a gateway.
    """

    name: str
    number: int
    node: str
    local: str = ""


@dataclass
class ClientRegistry:
    """The clients that gateways have named.

    Parameters
    ----------
    allowed : callable
        How many clients a node, by name, may have at a time.
    rosters : dict
        For every gateway, by name, its clients.
    owners : dict
        For every client that was ever named, the node it belongs to.
    nodes : set of str
        Names of all nodes that were ever online, as clients, which no other node can claim.

    Examples
    --------
    >>> registry = ClientRegistry(allowed=lambda node: 100)
    >>> registry.meet({"gate-a": ("north", "south"), "gate-b": ("south", "west", "gate-a")})
    True
    >>> [(client.name, client.node) for client in registry.clients_of(["gate-a", "gate-b"])]
    [('north', 'gate-a'), ('south', 'gate-a'), ('west', 'gate-b')]
    >>> registry.refused["gate-b"]
    ('gate-a', 'south')
    """

    allowed: Callable[[str], int]
    rosters: dict[str, list[str]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    refused: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _said: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict, repr=False)

    def meet(self, announced: Mapping[str, tuple[str, ...] | None]) -> bool:
        """Register the clients that nodes announce, None if a node is not a gateway; return whether any changed."""
        self.nodes |= {self._name_of(node) for node in announced}
        changed = [self._register(node, clients) for node, clients in sorted(announced.items())]
        return any(changed)

    def _register(self, node: str, names: tuple[str, ...] | None) -> bool:
        """Register a node's clients, and return whether they have changed; if there are too many, known ones stay."""
        if names is None:
            self.refused.pop(node, None)
            self._said.pop(node, None)
            return self.rosters.pop(node, None) is not None
        most = self.allowed(node)
        if self._said.get(node) == (most, names):
            return False
        self._said[node] = most, names
        accepted: list[str] = []
        refused: dict[str, str] = {}  # why, by name
        unused = most * NAMES_PER_CLIENT - Counter(self.owners.values())[node]
        before = self.rosters.get(node, [])
        for name in sorted(names, key=lambda name: (name not in before, name)):
            owner = self.owners.get(name)
            if owner not in (None, node) or (owner is None and name in self.nodes - {node}):
                refused[name] = f"belongs to {owner or name}, which used the name first"
            elif len(accepted) >= most:
                several = f"a node may have {most} clients"
                refused[name] = "its certificate is for one client" if most == 1 else several
            elif owner is None and unused <= 0:
                refused[name] = f"a node may use {most * NAMES_PER_CLIENT} names during a run"
            else:
                accepted.append(name)
                unused -= owner is None
        refusals = tuple(sorted(refused)[:_REFUSALS_KEPT])
        if (sorted(accepted), refusals) == (self.rosters.get(node), self.refused.get(node, ())):
            return False
        if refused:
            reasons = listed([f"{name} ({reason})" for name, reason in refused.items()])
            _log.warning("%s names clients that are refused: %s", node, reasons)
        self.owners |= dict.fromkeys(accepted, node)
        self.refused[node] = refusals
        self.rosters[node] = sorted(accepted)
        joined, left = set(accepted) - set(before), set(before) - set(accepted)
        _log.info("%s has %d clients (%d new, %d gone)", node, len(accepted), len(joined), len(left))
        return True

    def clients_of(self, nodes: Iterable[str]) -> list[Client]:
        """Return the clients of some nodes, by name."""
        clients = []
        for node in nodes:
            number = node_number(node)
            if (roster := self.rosters.get(node)) is not None:
                names = roster[: self.allowed(node)]
                clients += [Client(name, client_number(number, name), node, name) for name in names]
            else:
                clients.append(Client(self._name_of(node), number, node))
        return sorted(clients, key=lambda client: client.name)

    def _name_of(self, node: str) -> str:
        """Return the name of a node's one client: its own, and its number as often as gateways have used the name."""
        name = node
        while name in self.owners:
            name = f"{name}-{node_number(node)}"
        return name

    def to_mapping(self) -> dict[str, Any]:
        """Return plain dicts, as JSON holds them."""
        return {
            "rosters": dict(sorted(self.rosters.items())),
            "owners": dict(sorted(self.owners.items())),
            "nodes": sorted(self.nodes),
            "refused": {node: list(names) for node, names in sorted(self.refused.items()) if names},
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], allowed: Callable[[str], int]) -> "ClientRegistry":
        """Read what :meth:`to_mapping` gave."""
        rosters = {node: list(names) for node, names in mapping.get("rosters", {}).items()}
        refused = {node: tuple(names) for node, names in mapping.get("refused", {}).items()}
        return cls(allowed, rosters, dict(mapping.get("owners", {})), set(mapping.get("nodes", ())), refused)
