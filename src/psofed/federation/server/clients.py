"""Clients: those that a gateway has named, and the one client of any other node.

A client's name is unique in the federation, because status, history, strikes and defence go by it. A gateway names its
clients itself, so a name belongs for good to the node that used it first, for a client or as its own. Another node that
names it too is told that it is refused, and continues with its other clients. Everything the server keeps about a
client goes by its name, so the names that one node may ever use are bounded. The registry is part of the checkpoint.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.logs import OncePerChange, log
from psofed.common.scheduler import scheduler
from psofed.federation.protocol.names import client_number, node_number
from psofed.federation.protocol.run_options import ReplyLimits, RoundPlan
from psofed.federation.transport.hub import Hub
from psofed.render.numbers import listed

NAMES_PER_CLIENT = 10
"""A node may use this many times more names during a run than it may have clients at a time."""

_REFUSALS_KEPT = 20  # names of each node that are stored and sent back to it


_LOOK_EVERY = 0.1  # seconds
_RETURN = 4.0  # seconds that a round waits if most clients have vanished, say because the broker was restarted
_GATEWAYS = " gateways"  # subject of a message about no node

KINDS = {
    "nan": "a value is not a number",
    "infinite": "a value is infinite",
    "wrong-length": "not the M values asked for",
    "wrong-dtype": "not the model's number type",
    "wrong-columns": "learned from different columns or with a different layout",
    "inflated-examples": "a claimed number of examples that is negative or beyond the limit",
    "stale-round": "an answer to another round or run",
    "malformed": "not readable as a reply at all",
    "error": "the client's training raised an exception, or its node is unavailable",
    "no-reply": "no answer in time: before the deadline, or while most other nodes had answered long before",
}
"""Kinds of bad replies, as they are counted in the result."""

_ACCIDENTS = ("no-reply", "error")  # the node rests but is not banned
_STRIKE_ROUNDS = 1000  # for which a bad reply counts: in months an honest node may send a few
_LONGEST_REST = 32  # rounds; a node that has recovered need not wait longer


@dataclass
class Strikes:
    """Bad replies by client name and kind: which clients are banned or rest.

    Examples
    --------
    >>> strikes = Strikes(ReplyLimits(ban_after=2))
    >>> strikes.note("pump-1", "nan", round_number=1); strikes.note("pump-1", "infinite", round_number=2)
    >>> strikes.banned, strikes.may_take_part("pump-1", 3), strikes.may_take_part("pump-2", 3)
    ({'pump-1'}, False, True)
    >>> strikes.forget_old(1001)
    >>> strikes.banned, strikes.count("pump-1")
    (set(), 1)
    """

    limits: ReplyLimits = field(default_factory=ReplyLimits)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    struck: dict[str, list[int]] = field(default_factory=dict)
    resting: dict[str, int] = field(default_factory=dict)
    missed: dict[str, int] = field(default_factory=dict)

    def note(self, client: str, kind: str, round_number: int) -> None:
        """Count one bad reply of `client`."""
        if kind not in KINDS:
            raise InvalidValueError("kind", kind, ", ".join(KINDS))
        counts = self.counts.setdefault(client, {})
        counts[kind] = counts.get(kind, 0) + 1
        if kind not in _ACCIDENTS:
            self.struck.setdefault(client, []).append(round_number)
            return
        times = 1
        if kind == "no-reply":
            self.missed[client] = self.missed.get(client, 0) + 1
            times = 2 ** min(self.missed[client] - 1, 5)
        longest = max(_LONGEST_REST, self.limits.rest_rounds)
        self.resting[client] = round_number + min(times * self.limits.rest_rounds, longest)

    def forgive(self, client: str) -> None:
        """End the rest of a client that has answered."""
        self.resting.pop(client, None)
        self.missed.pop(client, None)

    def forget_old(self, round_number: int) -> None:
        """Forget the strikes that are too old to count in a round."""
        oldest = round_number - _STRIKE_ROUNDS
        recent = {client: [n for n in rounds if n > oldest] for client, rounds in self.struck.items()}
        self.struck = {client: rounds for client, rounds in recent.items() if rounds}

    def count(self, client: str) -> int:
        """How many of the client's bad replies count towards a ban."""
        return len(self.struck.get(client, ()))

    @property
    def banned(self) -> set[str]:
        """The clients that are no longer asked."""
        return {client for client in self.struck if self._is_banned(client)}

    def may_take_part(self, client: str, round_number: int) -> bool:
        """Whether `client` may be drawn in `round_number`."""
        return not self._is_banned(client) and self.resting.get(client, 0) < round_number

    def _is_banned(self, client: str) -> bool:
        return 0 < self.limits.ban_after <= self.count(client)

    def to_mapping(self) -> dict[str, Any]:
        """Return the records as JSON holds them."""
        return {name: record for name, record in vars(self).items() if name != "limits"}


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
    ['gate-a', 'south']
    """

    allowed: Callable[[str], int]
    rosters: dict[str, list[str]] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    refused: dict[str, list[str]] = field(default_factory=dict)
    _said: dict[str, tuple[int, tuple[str, ...]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.nodes = set(self.nodes)

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
        refusals = sorted(refused)[:_REFUSALS_KEPT]
        if (sorted(accepted), refusals) == (self.rosters.get(node), self.refused.get(node, [])):
            return False
        if refused:
            reasons = listed([f"{name} ({reason})" for name, reason in refused.items()])
            log.warning("%s names clients that are refused: %s", node, reasons)
        self.owners |= dict.fromkeys(accepted, node)
        self.refused[node] = refusals
        self.rosters[node] = sorted(accepted)
        joined, left = set(accepted) - set(before), set(before) - set(accepted)
        log.info("%s has %d clients (%d new, %d gone)", node, len(accepted), len(joined), len(left))
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
        """Return plain values, as JSON holds them."""
        return {
            "rosters": self.rosters,
            "owners": self.owners,
            "nodes": sorted(self.nodes),
            "refused": {node: names for node, names in self.refused.items() if names},
        }


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
                log.warning("round %d: waiting for a node (%d banned)", round_number, len(strikes.banned))
            hub.receive(_LOOK_EVERY)  # nothing now answers a question, but the hub may have to end the run
        self._is_news("", "")
        if len(everybody) < wanted:
            log.warning("round %d: only %d of %d clients; continuing", round_number, len(everybody), wanted)
        self._begun, self._before = True, len(everybody)
        return [client for client in clients if strikes.may_take_part(client.name, round_number)] or clients

    def _look(self, hub: Hub, session: str, registry: ClientRegistry) -> list[Client]:
        """Return the clients of the nodes that are ready for the run, after registering what gateways announce."""
        announced = {}
        for node, presence in hub.present().items():
            announcement = presence.announcement
            if announcement.session not in ("", session):
                continue
            if self._is_news(node, announcement.problem) and announcement.problem:
                log.warning("%s cannot take part: %s", node, announcement.problem)
            if announcement.session == session and not announcement.problem:
                announced[node] = announcement.clients
        if registry.meet(announced):
            warning = dominance(registry.rosters, registry.nodes)
            if self._is_news(_GATEWAYS, warning) and warning:
                log.warning("%s", warning)
        return registry.clients_of(sorted(announced))
