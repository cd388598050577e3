"""What will happen in a simulation, drawn from its seed before it begins.

A plan is a value: a federation, and a list of incidents. Taking incidents out of a plan that breaks a promise, as long as
it still does, leaves those that matter.
"""

from dataclasses import dataclass, replace
from random import Random

ROUGH = {
    "kill app": 3, "kill server": 2, "power loss": 3, "kill at file operation": 6, "power loss at file operation": 4,
    "full disk": 3, "rollback": 1, "server clock": 2, "kill node": 4, "node power loss": 2, "node leaves": 2,
    "node disk full": 2, "node clock": 1, "slow": 3, "silent": 2, "training fails": 2, "requests lost": 3,
    "answers lost": 3, "requests doubled": 3, "long delays": 3, "replay": 2, "flood": 1, "revoke": 1,
    "empty reply_to": 3, "empty reply_to, never sent": 3, "instruction to another": 3, "instruction without children": 3,
    "foreign source": 2, "repeated ids": 1, "own reply never sent": 2, "own reply twice": 1, "own reply garbage": 2,
}  # fmt: skip
"""Kinds of incidents and how often they are drawn, in proportion."""

EXACT = (
    "kill app", "kill server", "power loss", "kill at file operation", "power loss at file operation", "full disk",
    "requests doubled", "long delays", "replay", "flood", "empty reply_to", "empty reply_to, never sent",
    "instruction to another", "instruction without children", "foreign source", "repeated ids",
)  # fmt: skip
"""Kinds after which the model must be, bit for bit, the one of a run in which nothing happens."""

HOSTILE = (
    "replay", "flood", "empty reply_to", "empty reply_to, never sent", "instruction to another",
    "instruction without children", "foreign source", "repeated ids", "own reply never sent", "own reply twice",
    "own reply garbage",
)  # fmt: skip
LIES = ("nan", "infinite", "huge", "short", "stale", "foreign session", "boasting")


@dataclass(frozen=True)
class Incident:
    """Something that happens once: `after` seconds into round `round_number`, to or by node `who`."""

    kind: str
    round_number: int
    after: float
    who: str
    amount: float

    def __str__(self) -> str:
        return f"round {self.round_number} + {self.after:.2f} s: {self.kind} ({self.who}, {self.amount:.2f})"


@dataclass(frozen=True)
class Plan:
    """A federation and what happens to it.

    Attributes
    ----------
    honest, liars, forgers : tuple of str
        The nodes. A liar sends a bad reply now and then; a forger answers as an honest node does and has other hands
        beside.
    exact : bool
        Whether the model must be that of a run without incidents.
    """

    seed: int
    rounds: int
    honest: tuple[str, ...]
    liars: tuple[str, ...]
    forgers: tuple[str, ...]
    participants: int
    num_shared: int
    deadline: float
    bell: bool
    weighted: bool
    exact: bool
    incidents: tuple[Incident, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """All nodes."""
        return (*self.honest, *self.liars, *self.forgers)

    @property
    def undisturbed(self) -> "Plan":
        """The same federation, to which nothing happens."""
        return replace(self, incidents=())

    def without(self, incident: Incident) -> "Plan":
        """Return the plan without one incident."""
        return replace(self, incidents=tuple(other for other in self.incidents if other is not incident))


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
    liars = () if exact else tuple(f"liar-{k}" for k in range(random.choice((0, 0, 1))))
    nodes = (*honest, *liars, *forgers)
    kinds = {kind: weight for kind, weight in ROUGH.items() if not exact or kind in EXACT}
    if not forgers:
        kinds = {kind: weight for kind, weight in kinds.items() if kind not in HOSTILE}
    count = random.randint(2, 4) * max(1, rounds // 10)
    drawn = random.choices(list(kinds), list(kinds.values()), k=count)
    incidents = []
    for kind in drawn:
        who = random.choice(forgers) if kind in HOSTILE else random.choice(nodes)
        if kind == "revoke" and (who in honest or any(other.kind == "revoke" for other in incidents)):
            continue
        incidents.append(
            Incident(kind, random.randint(1, rounds), random.expovariate(8.0), who, random.random())
        )
    incidents.sort(key=lambda incident: (incident.round_number, incident.after))
    return Plan(
        seed=seed,
        rounds=rounds,
        honest=honest,
        liars=liars,
        forgers=forgers,
        participants=random.randint(max(1, len(nodes) - 2), len(nodes)),
        num_shared=random.randint(1, 4),
        deadline=random.choice((5.0, 10.0, 20.0)),
        bell=random.random() < 0.7,
        weighted=random.random() < 0.3,
        exact=exact,
        incidents=tuple(incidents),
    )
