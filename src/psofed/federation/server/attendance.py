"""Attendance: which nodes are online, and which of their clients may take part in a round."""

import logging
from collections.abc import Callable

from psofed.common.errors import PsofedError
from psofed.common.logs import OncePerChange
from psofed.common.scheduler import scheduler
from psofed.federation.protocol.announcements import Announcement
from psofed.federation.protocol.run_options import RoundPlan
from psofed.federation.server.checks import Strikes
from psofed.federation.server.clients import Client, ClientRegistry, dominance
from psofed.federation.transport.hub import Hub

_log = logging.getLogger("psofed.federation")

_LOOK_EVERY = 0.1  # seconds
_RETURN = 4.0  # seconds that a round waits if most clients have vanished, say because the broker was restarted
_GATEWAYS = " gateways"  # subject of a message about no node


class Attendance:
    """The nodes of a run.

    Parameters
    ----------
    plan : RoundPlan
        How many clients the first round waits for, and for how long, and which clients are left out.
    attend : callable
        Called again and again while waiting; may raise to end the run.

    Attributes
    ----------
    is_endless : bool
        Whether to wait for a node as long as it takes.
    """

    def __init__(self, plan: RoundPlan, attend: Callable[[], None]) -> None:
        self.plan = plan
        self.is_endless: bool = False
        self._attend = attend
        self._begun = False
        self._before = 0  # clients in the last round
        self._bodies: dict[str, tuple[bytes, Announcement | None]] = {}
        self._is_news = OncePerChange()

    def take(
        self, hub: Hub, session: str, round_number: int, registry: ClientRegistry, strikes: Strikes
    ) -> list[Client]:
        """Return the clients that may take part; resting clients only if there are no others.

        If fewer than half are left of those before, they get some seconds to return: otherwise whoever is the first to
        reconnect would determine the model alone.

        Clients that are banned count as present: a resumed run need not wait for clients that may not take part.
        """
        begun = scheduler().monotonic()
        wanted, deadline = 1 if self._begun else self.plan.min_nodes, begun + self.plan.wait_for_nodes
        returned = min(deadline, begun + _RETURN)
        strikes.forget_old(round_number)
        absent = {*strikes.banned, *self.plan.leave_out}
        while True:
            self._attend()
            everybody = self._look(hub, session, registry)
            clients = [client for client in everybody if client.name not in absent]
            is_late = hub.is_connected and scheduler().monotonic() >= deadline
            is_few = 2 * len(everybody) < self._before and scheduler().monotonic() < returned
            if clients and (len(everybody) >= wanted or is_late) and not is_few:
                break
            if is_late and not self.is_endless:
                seconds, banned = self.plan.wait_for_nodes, len(strikes.banned)
                raise PsofedError(f"no node is available after {seconds:g} s ({banned} banned)")
            if is_late and self._is_news("", "waiting"):
                _log.warning("round %d: waiting for a node (%d banned)", round_number, len(strikes.banned))
            hub.receive(_LOOK_EVERY)  # nothing now answers a question, but the hub may have to end the run
        self._is_news("", "")
        if len(everybody) < wanted:
            _log.warning("round %d: only %d of %d clients; continuing", round_number, len(everybody), wanted)
        self._begun, self._before = True, len(everybody)
        return [client for client in clients if strikes.may_take_part(client.name, round_number)] or clients

    def _look(self, hub: Hub, session: str, registry: ClientRegistry) -> list[Client]:
        """Return the clients of the nodes that are ready for the run, after registering what gateways announce."""
        announced = {}
        for node, presence in hub.present().items():
            announcement = self._read(node, presence.body)
            if announcement is None or announcement.session != session:
                continue
            if self._is_news(node, announcement.problem) and announcement.problem:
                _log.warning("%s cannot take part: %s", node, announcement.problem)
            if not announcement.problem:
                announced[node] = announcement.clients
        if registry.meet(announced):
            warning = dominance(registry.rosters, registry.nodes)
            if self._is_news(_GATEWAYS, warning) and warning:
                _log.warning("%s", warning)
        return registry.clients_of(sorted(announced))

    def _read(self, node: str, body: bytes) -> Announcement | None:
        """Return what a node announces; None if that cannot be read."""
        before, announcement = self._bodies.get(node, (None, None))
        if before != body:
            try:
                announcement = Announcement.from_bytes(body)
            except ValueError as error:
                _log.warning("%s announces itself wrongly: %s", node, error)
                announcement = None
            self._bodies[node] = body, announcement
        return announcement
