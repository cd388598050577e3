"""Nodes: a name for people, a number for the draws, and Flower's id for messages.

Masks and participants follow from the node's *number*, which belongs to its key. Flower's id is given by the
SuperLink and changes when a node registers again, as it does whenever a SuperLink that keeps all in memory restarts.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from flwr.serverapp import Grid

from psofed.common.scheduler import scheduler
from psofed.federation.flower import number_of_key

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """A node as the server sees it.

    Attributes
    ----------
    name : str
        By which it was registered; in the history, the result and every line that a person reads.
    number : int
        64 bits that belong to its key; see :func:`psofed.federation.flower.number_of_key`.
    node_id : int
        Flower's, to address messages.
    activated : str
        When its process connected, as the SuperLink writes it.
    """

    name: str
    number: int
    node_id: int
    activated: str = field(default="", compare=False)


def nodes_of(grid: Grid) -> list[Node]:
    """Return the nodes that are online, by name.

    Where Flower knows no key (a simulation, a Grid within this process) the number is Flower's id, and where it
    knows no name the name is the number.
    """
    found = []
    for info in grid.get_nodes():
        number = number_of_key(info.public_key) if info.public_key else int(info.node_id)
        found.append(Node(info.name or str(number), number, int(info.node_id), info.last_activated_at))
    names = Counter(node.name for node in found)
    # Two nodes of one name would share what is known of them: the number tells them apart.
    named = (
        replace(node, name=f"{node.name}-{node.number}") if names[node.name] > 1 else node for node in found
    )
    return sorted(named, key=lambda node: (node.name, node.number, node.node_id))


def wait_for_nodes(
    grid: Grid, wanted: int, seconds: float, clients_of: Callable[[Sequence[Node]], list[T]]
) -> tuple[list[Node], list[T]]:
    """Wait until `wanted` nodes are online and have clients, for at most `seconds`; return both.

    A node all of whose clients are benched counts as online: a resumed run need not wait for clients that may not take
    part.
    """
    deadline = scheduler().monotonic() + seconds
    while True:
        online = nodes_of(grid)
        clients = clients_of(online)
        if (clients and len(online) >= wanted) or scheduler().monotonic() >= deadline:
            return online, clients
        scheduler().sleep(0.1)
