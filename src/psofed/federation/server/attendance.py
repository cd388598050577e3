"""Attendance: which nodes are online, and which of their clients may take part in a round."""

import logging
from collections.abc import Sequence

from flwr.serverapp import Grid

from psofed.common.errors import PsofedError
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.checks import Conduct
from psofed.federation.server.clients import Client, ClientRegistry
from psofed.federation.server.nodes import Node, wait_for_nodes

_log = logging.getLogger("psofed.federation")

_LOOK_FOR_NODES = 60.0  # seconds at a time, in a run without an end


class Attendance:
    """The nodes of a run.

    Parameters
    ----------
    plan : RoundPlan
        How many nodes the first round waits for, and for how long, and which clients are left out.

    Attributes
    ----------
    online : list of Node
        The nodes that were online when attendance was last taken.
    nodes : dict
        All nodes met so far, by Flower's id.
    is_endless : bool
        Whether to wait for a node as long as it takes.
    """

    def __init__(self, plan: RoundPlan) -> None:
        self.plan = plan
        self.online: list[Node] = []
        self.nodes: dict[int, Node] = {}
        self.is_endless: bool = False
        self._begun = False

    def take(self, grid: Grid, round_number: int, registry: ClientRegistry, conduct: Conduct) -> list[Client]:
        """Return the clients that may take part; resting clients only if there are no others."""
        wanted = 1 if self._begun else self.plan.min_nodes
        conduct.forget_old(round_number)
        benched = conduct.benched
        absent = {*benched, *self.plan.leave_out}

        def clients_of(nodes: Sequence[Node]) -> list[Client]:
            return [client for client in registry.clients_of(nodes) if client.name not in absent]

        nodes, clients = wait_for_nodes(grid, wanted, self.plan.wait_for_nodes, clients_of)
        if not clients and self.is_endless:
            _log.warning("round %d: waiting for a node (%d clients benched)", round_number, len(benched))
            while not clients:
                nodes, clients = wait_for_nodes(grid, 1, _LOOK_FOR_NODES, clients_of)
        self.online = nodes
        self.nodes |= {node.node_id: node for node in nodes}
        registry.meet(nodes)
        if not clients:
            raise PsofedError(
                f"no node is available after {self.plan.wait_for_nodes:g} s ({len(benched)} benched)"
            )
        if len(nodes) < wanted:
            _log.warning("round %d: only %d of %d nodes; continuing", round_number, len(nodes), wanted)
        self._begun = True
        return [client for client in clients if conduct.may_play(client.name, round_number)] or clients
