"""Plans of simulations, drawn from a seed before the simulation begins.

A plan is a value: a federation, and a list of incidents. Taking incidents out of a plan that breaks a promise, as long
as it still does, leaves those that matter.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

ROUGH = {
    "kill server": (4, "the server is killed"),
    "power loss": (3, "the server's machine, with its broker, loses power"),
    "kill at file operation": (6, "the server will be killed between two of its next file operations"),
    "power loss at file operation": (4, "the server will lose power between two of its next file operations"),
    "full disk": (3, "the server's disk is full for a while"),
    "rollback": (4, "the operator stops the run to roll it back"),
    "stop": (2, "the operator stops the run, and resumes it"),
    "server clock": (2, "the server's clock jumps by up to an hour"),
    "server connection lost": (4, "the server loses its connection"),
    "broker restart": (3, "the broker is killed and started again"),
    "second server": (2, "somebody starts a second server for a while"),
    "kill node": (4, "{who} is killed, and started again later"),
    "node power loss": (2, "the machine of {who} loses power, and starts again later"),
    "node leaves": (2, "{who} leaves, and returns later"),
    "node disk full": (2, "the disk of {who} is full for a while"),
    "node clock": (2, "the clock of {who} jumps by up to an hour"),
    "node started twice": (1, "somebody starts {who} a second time, elsewhere"),
    "connection lost": (6, "{who} loses its connection"),
    "unreachable": (2, "{who} cannot reach the broker for a while"),
    "slow": (3, "{who} is slow for a while"),
    "silent": (2, "{who} is silent for a while"),
    "training fails": (2, "training fails at {who} for a while"),
    "messages lost": (3, "some messages of {who} get lost with their connection for a while"),
    "messages doubled": (4, "some messages of {who} arrive twice for a while"),
    "long delays": (4, "the line to {who} is slow for a while"),
    "old instruction": (4, "an instruction that {who} got some rounds ago arrives again"),
    "misdelivery": (3, "an instruction for another node arrives at {who}"),
    "nonsense": (2, "nonsense arrives at {who}"),
    "revoke": (8, "the certificate of {who} is revoked"),
    "replay": (2, "{who} sends its last replies again"),
    "flood": (1, "{who} sends many messages"),
    "replies to nothing": (2, "{who} answers questions that nobody has asked"),
    "answers for another": (4, "{who} answers the question of an honest node"),
    "own reply garbage": (1, "{who} sends garbage, and a frame that is too large"),
    "own reply twice": (1, "{who} sends two different replies"),
    "own presence garbage": (1, "{who} announces nonsense"),
    "forged reply": (4, "{who} tries to publish a reply as an honest node"),
    "forged presence": (3, "{who} tries to publish the presence of an honest node"),
    "forged instruction": (3, "{who} tries to publish an instruction to an honest node"),
    "forged run": (2, "{who} tries to publish another run"),
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

OWN_REPLY = ("own reply garbage", "own reply twice", "own presence garbage", "flood")
"""Hostile kinds that cost the forger its own reply."""

HARMLESS = (
    "replay", "replies to nothing", "answers for another", "forged reply", "forged presence", "forged instruction",
    "forged run",
)  # fmt: skip
HOSTILE = (*HARMLESS, *OWN_REPLY)

EXACT = (
    "kill server", "power loss", "kill at file operation", "power loss at file operation", "full disk", "stop",
    "server connection lost", "server clock", "node clock", "messages doubled", "long delays", "old instruction",
    "misdelivery", "nonsense", *HARMLESS,
)  # fmt: skip
"""Kinds after which the model must be, bit for bit, the one of a run in which nothing happens."""

CALM_ROUNDS, QUIET = 5, 130.0
"""After the rounds of a plan and some quiet seconds, in which accidents end, come rounds that nothing disturbs."""

MOST_EVENTFUL = 500
"""A run of more rounds than this has no more incidents."""
LYING = "-lies"
BAD_REPLIES = ("nan", "infinite", "short", "stale", "foreign session", "boasting", "garbage")
BAD_CLIENTS = ("nan", "infinite", "boasting")
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
    rule : str or None
        How uploads are combined; None for the default.
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
    rule: str | None
    exact: bool
    incidents: tuple[Incident, ...]
    clients: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def clients_of(self, node: str) -> tuple[str, ...]:
        """Return the clients of a gateway; empty if the node is not a gateway."""
        return dict(self.clients).get(node, ())

    def names_of(self, nodes: Sequence[str]) -> tuple[str, ...]:
        """Return the names under which the server knows the clients of some nodes, but for the lying ones."""
        names = [name for node in nodes for name in self.clients_of(node) or (node,)]
        return tuple(name for name in names if not name.endswith(LYING))

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes."""
        return (*self.honest, *self.byzantine, *self.forgers)

    @property
    def all_rounds(self) -> int:
        """The number of rounds, those after the quiet seconds included."""
        return self.rounds + CALM_ROUNDS

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
    clients = _draw_gateways(random, honest, forgers, exact)
    kinds = {kind: weight for kind, (weight, _) in ROUGH.items() if not exact or kind in EXACT}
    if not forgers:
        kinds = {kind: weight for kind, weight in kinds.items() if kind not in HOSTILE}
    tens = max(1, min(rounds, MOST_EVENTFUL) // 10)
    drawn = random.choices(list(kinds), list(kinds.values()), k=random.randint(2, 4) * tens)
    if clients and not exact:
        drawn += random.choices(list(AT_GATEWAYS), k=2 * tens)
    incidents = []
    for kind in drawn:
        among = forgers if kind in HOSTILE else nodes
        who = random.choice([node for node, _ in clients] if kind in AT_GATEWAYS else among)
        if kind == "revoke" and (who in honest or any(other.kind == "revoke" for other in incidents)):
            continue
        # A run that is killed before its first checkpoint begins again, with the samples that are left.
        number, after = random.randint(min(rounds, 1 + exact), rounds), random.expovariate(8.0)
        incidents.append(Incident(kind, number, after, who, random.random()))
    for who, _ in clients:
        if who in forgers and not exact and random.random() < 0.5:
            incidents.append(Incident(CHURN, random.randint(1, max(1, rounds // 2)), 0.0, who, 1.0))
    incidents.sort(key=lambda incident: (incident.round_number, incident.after))
    rule = None if random.random() < 0.3 else "mean"
    return Plan(
        seed=seed,
        rounds=rounds,
        honest=honest,
        byzantine=byzantine,
        forgers=forgers,
        participants=random.randint(max(1, len(nodes) - 2), len(nodes)) + sum(len(names) - 1 for _, names in clients),
        num_shared=random.randint(1, 4),
        deadline=random.choice((5.0, 10.0, 20.0)),
        rule=rule,
        exact=exact,
        incidents=tuple(incidents),
        clients=clients,
    )


def _draw_gateways(
    random: Random, honest: Sequence[str], forgers: Sequence[str], exact: bool
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Make some nodes gateways."""
    gateways = []
    for node in (*honest, *forgers):
        if random.random() < 0.35:
            names = [f"{node}.{k}" for k in range(random.randint(1, 4))]
            if node in honest and not exact and random.random() < 0.5:
                names.append(f"{node}.9{LYING}")
            gateways.append((node, tuple(names)))
    return tuple(gateways)
