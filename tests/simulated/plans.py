"""Plans of simulations, drawn from a seed before the simulation begins.

A plan is a value: a federation, and a list of incidents. Taking incidents out of a plan that breaks a promise, as long
as it still does, leaves those that matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

ROUGH = {
    "kill app": (3, "the ServerApp is killed"),
    "kill server": (2, "the server's SuperLink, front door and ServerApp are killed"),
    "power loss": (3, "the server's machine loses power"),
    "kill at file operation": (6, "the ServerApp will be killed between two of its next file operations"),
    "power loss at file operation": (4, "the server will lose power between two of its next file operations"),
    "full disk": (3, "the server's disk is full for a while"),
    "rollback": (4, "the operator stops the run to roll it back"),
    "server clock": (2, "the server's clock jumps"),
    "kill node": (4, "{who} is killed, and started again later"),
    "node power loss": (2, "the machine of {who} loses power, and starts again later"),
    "node leaves": (2, "{who} leaves, and returns later"),
    "node disk full": (2, "the disk of {who} is full for a while"),
    "node clock": (1, "the clock of {who} jumps"),
    "slow": (3, "{who} is slow for a while"),
    "silent": (2, "{who} is silent for a while"),
    "training fails": (2, "training fails at {who} for a while"),
    "requests lost": (3, "some requests of {who} get lost for a while"),
    "answers lost": (3, "some answers to {who} get lost for a while"),
    "requests doubled": (3, "some requests of {who} arrive twice for a while"),
    "long delays": (3, "the line to {who} is slow for a while"),
    "revoke": (2, "the key of {who} is revoked"),
    "replay": (2, "{who} sends its last replies once more"),
    "flood": (1, "{who} floods the server with small requests"),
    "empty reply_to": (3, "{who} sends a message in the name of the SuperLink to the SuperLink"),
    "empty reply_to, never sent": (3, "{who} announces such a message and never sends its objects"),
    "instruction to another": (3, "{who} sends a forged instruction to an honest node"),
    "instruction without children": (
        3,
        "{who} sends an honest node an instruction whose object tree has no children",
    ),
    "foreign source": (2, "{who} sends a reply in the name of an honest node"),
    "repeated ids": (1, "{who} sends an object tree that repeats ids"),
    "replies to nothing": (2, "{who} sends replies to messages that nobody has sent"),
    "own reply never sent": (2, "{who} announces its own reply and never sends its objects"),
    "own reply twice": (1, "{who} replies twice"),
    "own reply garbage": (2, "{who} replies with objects that fit no message"),
    "past the door: empty reply_to": (
        2,
        "a message of {who} in the name of the SuperLink to the SuperLink gets past the front door",
    ),
    "past the door: empty reply_to, never sent": (
        2,
        "the announcement of such a message, whose objects never come, gets past the front door",
    ),
    "past the door: foreign source": (
        2,
        "a reply of {who} in the name of an honest node gets past the front door",
    ),
    "past the door: instruction without children": (
        2,
        "an instruction of {who} to an honest node, whose object tree has no children, gets past the front door",
    ),
    "misdelivery": (4, "the SuperLink hands the next message for {who} to another node first"),
}
"""Kinds of incidents: how often they are drawn, in proportion, and what happens."""

AT_GATEWAYS = {
    "client leaves": "a client leaves {who}, and returns later",
    "client claimed": "{who} names a client of another gateway for a while",
    "one client fails": "training fails for one client of {who} for a while",
}
"""Kinds of incidents at gateways."""

CHURN = "client names change"
AT_FORGERS = {CHURN: "{who} gives its clients new names in every round, for a while"}
"""Kinds of incidents at gateways of forgers."""

PAST_THE_DOOR = tuple(kind for kind in ROUGH if kind.startswith("past the door: "))
"""Messages that a front door with a hole lets pass: server and nodes must withstand them by themselves."""

EXACT = (
    "kill app", "kill server", "power loss", "kill at file operation", "power loss at file operation", "full disk",
    "requests doubled", "long delays", "replay", "flood", "empty reply_to", "empty reply_to, never sent",
    "instruction to another", "instruction without children", "foreign source", "repeated ids", "replies to nothing",
    "server clock", "node clock", "misdelivery", *PAST_THE_DOOR,
)  # fmt: skip
"""Kinds after which the model must be, bit for bit, the one of a run in which nothing happens."""

HOSTILE = (
    "replay", "flood", "empty reply_to", "empty reply_to, never sent", "instruction to another",
    "instruction without children", "foreign source", "repeated ids", "own reply never sent", "own reply twice",
    "own reply garbage", "replies to nothing", *PAST_THE_DOOR,
)  # fmt: skip
CALM_ROUNDS, QUIET = 5, 130.0
"""After the rounds of a plan and some quiet seconds, in which accidents end, come rounds that nothing disturbs."""

MOST_EVENTFUL = 500
"""A run of more rounds than this has no more incidents."""
LYING = "-lies"
BAD_REPLIES = ("nan", "infinite", "huge", "short", "stale", "foreign session", "boasting")
BAD_CLIENTS = ("nan", "infinite", "huge", "boasting", "garbage")
"""Lies of one client of a gateway."""


@dataclass(frozen=True)
class Incident:
    """Something that happens once: `after` seconds into round `round_number`, to or by node `who`."""

    kind: str
    round_number: int
    after: float
    who: str
    amount: float

    @property
    def sentence(self) -> str:
        """The incident in words."""
        text = {**AT_GATEWAYS, **AT_FORGERS}.get(self.kind) or ROUGH[self.kind][1]
        return text.format(who=self.who)


@dataclass(frozen=True)
class Plan:
    """A federation and what happens to it.

    Attributes
    ----------
    honest, byzantine, forgers : tuple of str
        The nodes. A Byzantine one sends a bad reply now and then. A forger answers as an honest node does, and has
        other hands beside.
    exact : bool
        Whether the model must be that of a run without incidents.
    clients : tuple
        Pairs of a gateway and its clients. A client whose name ends in :data:`LYING` sends bad replies now and then,
        through a gateway that is honest.
    """

    seed: int
    rounds: int
    honest: tuple[str, ...]
    byzantine: tuple[str, ...]
    forgers: tuple[str, ...]
    participants: int
    num_shared: int
    deadline: float
    bell: bool
    weighted: bool
    exact: bool
    incidents: tuple[Incident, ...]
    clients: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def clients_of(self, node: str) -> tuple[str, ...]:
        """Return the clients of a gateway; empty if the node is not a gateway."""
        return dict(self.clients).get(node, ())

    @property
    def honest_names(self) -> tuple[str, ...]:
        """Names that must never be blamed: of honest nodes, and of all clients of gateways but the lying ones."""
        gateways = [name for node in self.honest for name in self.clients_of(node)]
        return (*self.honest, *(name for name in gateways if not name.endswith(LYING)))

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes."""
        return (*self.honest, *self.byzantine, *self.forgers)

    @property
    def all_rounds(self) -> int:
        """The number of rounds, those after the quiet seconds included."""
        return self.rounds + CALM_ROUNDS

    @property
    def undisturbed(self) -> "Plan":
        """The same federation, to which nothing happens."""
        return replace(self, incidents=())

    def only(self, incidents: Sequence[Incident]) -> "Plan":
        """Return the plan with these incidents alone."""
        return replace(self, incidents=tuple(incidents))


def draw_plan(seed: int, rounds: int = 100) -> Plan:
    """Draw a plan.

    Examples
    --------
    >>> draw_plan(7) == draw_plan(7)
    True
    """
    random = Random(f"plan {seed}")
    exact = random.random() < 0.4
    honest = tuple(f"honest-{k}" for k in range(random.randint(2, 4)))
    forgers = tuple(f"forger-{k}" for k in range(random.choice((0, 1, 1, 2))))
    byzantine = () if exact else tuple(f"byzantine-{k}" for k in range(random.choice((0, 0, 1))))
    nodes = (*honest, *byzantine, *forgers)
    kinds = {kind: weight for kind, (weight, _) in ROUGH.items() if not exact or kind in EXACT}
    if not forgers:
        kinds = {kind: weight for kind, weight in kinds.items() if kind not in HOSTILE}
    tens = max(1, min(rounds, MOST_EVENTFUL) // 10)
    count = random.randint(2, 4) * tens
    drawn = random.choices(list(kinds), list(kinds.values()), k=count)
    incidents = []
    for kind in drawn:
        who = random.choice(forgers) if kind in HOSTILE else random.choice(nodes)
        if kind == "revoke" and (who in honest or any(other.kind == "revoke" for other in incidents)):
            continue
        incidents.append(
            Incident(kind, random.randint(1, rounds), random.expovariate(8.0), who, random.random())
        )
    clients = _draw_gateways(seed, honest, forgers, exact)
    if clients and not exact:
        drawn_at = Random(f"at gateways {seed}")
        for _ in range(max(1, 2 * tens)):
            kind, (who, _) = drawn_at.choice(list(AT_GATEWAYS)), drawn_at.choice(clients)
            after, amount = drawn_at.expovariate(8.0), drawn_at.random()
            incidents.append(Incident(kind, drawn_at.randint(1, rounds), after, who, amount))
        drawn_at = Random(f"at gateways of forgers {seed}")
        for who in [node for node, _ in clients if node in forgers and drawn_at.random() < 0.5]:
            incidents.append(Incident(CHURN, drawn_at.randint(1, max(1, rounds // 2)), 0.0, who, 1.0))
    incidents.sort(key=lambda incident: (incident.round_number, incident.after))
    plan = Plan(
        clients=clients,
        seed=seed,
        rounds=rounds,
        honest=honest,
        byzantine=byzantine,
        forgers=forgers,
        participants=random.randint(max(1, len(nodes) - 2), len(nodes))
        + sum(len(names) - 1 for _, names in clients),
        num_shared=random.randint(1, 4),
        deadline=random.choice((5.0, 10.0, 20.0)),
        bell=random.random() < 0.7,
        weighted=random.random() < 0.3,
        exact=exact,
        incidents=tuple(incidents),
    )
    return plan.only(_without_starving(plan)) if exact else plan


def _draw_gateways(
    seed: int, honest: Sequence[str], forgers: Sequence[str], exact: bool
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Make some nodes gateways, by separate draws."""
    random = Random(f"gateways {seed}")
    found = []
    for node in (*honest, *forgers):
        if random.random() < 0.35:
            names = [f"{node}.{k}" for k in range(random.randint(1, 4))]
            if node in honest and not exact and random.random() < 0.5:
                names.append(f"{node}.9{LYING}")
            found.append((node, tuple(names)))
    return tuple(found)


def _without_starving(plan: Plan) -> list[Incident]:
    """Return the incidents of a plan without those after which an honest node could not answer in time.

    A flood uses up the flooder's own quota. One leaves enough for its replies, if the bell lets the front door fill up
    the quota with every message.
    """
    floods = [incident for incident in plan.incidents if incident.kind == "flood"][plan.bell :]
    return [incident for incident in plan.incidents if incident not in floods]
