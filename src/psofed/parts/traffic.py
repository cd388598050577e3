"""Communication cost of an algorithm: bits per exchange, exchanges per iteration, values and memories needed."""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from psofed.common.errors import InvalidValueError
from psofed.common.validation import check_integer

if TYPE_CHECKING:
    from psofed.scenario import Scenario

# Numbers travel as float64. What both sides derive from a shared seed (masks, Φ_n, hashes) costs nothing.
BYTES_PER_NUMBER = 8
BITS_PER_NUMBER = 8 * BYTES_PER_NUMBER


@dataclass(frozen=True)
class Traffic:
    """Cost of one participant's exchange, and how often the budget allows one.

    Attributes
    ----------
    bits_up, bits_down : int
        Bits that one participant sends and receives in one exchange.
    budget : int
        Bits per iteration, each way, for all participants together: |S_n| · M · 64.
    group : int
        Number of exchanges that are made together; above |S_n| (up to K) where an algorithm needs more clients at a
        time.

    Examples
    --------
    Five participants exchange D = 5 numbers each, where the budget is M = 1: once in five iterations.

    >>> traffic = Traffic(bits_up=5 * 64, bits_down=5 * 64, budget=5 * 1 * 64, group=5)
    >>> [traffic.exchanges_in(n) for n in range(10)]
    [0, 0, 0, 0, 5, 0, 0, 0, 0, 5]
    """

    bits_up: int
    bits_down: int
    budget: int
    group: int

    def __post_init__(self) -> None:
        check_integer("traffic.group", self.group, 1)
        check_integer("traffic.bits_up or bits_down", max(self.bits_up, self.bits_down), 1)

    @property
    def exchanges_per_iteration(self) -> Fraction:
        """Exchanges per iteration, averaged over a long run."""
        return Fraction(self.budget, max(self.bits_up, self.bits_down))

    @property
    def most_in_iteration(self) -> int:
        """Largest number of exchanges in an iteration."""
        return self.group * -(-self.budget // (self.group * max(self.bits_up, self.bits_down)))

    def exchanges_before(self, n: int) -> int:
        """Return the number of exchanges in iterations 0 … n − 1: all groups that the budget has paid for."""
        return self.group * (n * self.budget // (self.group * max(self.bits_up, self.bits_down)))

    def exchanges_in(self, n: int) -> int:
        """Return the number of exchanges in iteration n; the first clients in the order drawn make them."""
        return self.exchanges_before(n + 1) - self.exchanges_before(n)


def spend_budget(scenario: "Scenario", *, bits_up: int, bits_down: int, group: int | None = None) -> Traffic:
    """Return the traffic of exchanges of the given size within the scenario's budget.

    Parameters
    ----------
    scenario : Scenario
        Its M and |S_n| set the budget.
    bits_up, bits_down : int
        Size of one participant's exchange, at least M numbers in one of the directions.
    group : int, optional
        Exchanges made together; all |S_n| participants' by default.
    """
    participants = scenario.num_participants
    budget = participants * scenario.num_shared * BITS_PER_NUMBER
    return Traffic(bits_up, bits_down, budget, participants if group is None else group)


@dataclass(frozen=True, kw_only=True)
class Momentum:
    """How an exchange changes the memories: D values for each of the K clients, zero at first.

    Attributes
    ----------
    keep, take : float
        For participants: m ← keep · m + take · u, entry by entry, where u arrived.
    absent : float
        For all others, and where nothing arrived: m ← absent · m.

    Examples
    --------
    The last update of each client, as it was:

    >>> Momentum(keep=0.0, take=1.0, absent=1.0)
    Momentum(keep=0.0, take=1.0, absent=1.0)
    """

    keep: float
    take: float
    absent: float


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Values and random numbers of an exchange, for algorithms whose clients hold no model.

    Attributes
    ----------
    numbers : int
        N, how many each participant sends.
    sends_model : bool
        What travels is w_n plus the encoded numbers, so that attacks and aggregation rules see models.
        Otherwise they see the numbers as changes of a model that is zero.
    decode_joined : bool
        Decode once, after joining, and not each client's numbers.
    normals, uniforms : int
        Random numbers that server and clients draw from a shared seed.
    client_uniforms : int
        Random numbers that each client draws for itself.
    fresh : bool
        Whether shared random numbers are redrawn in each iteration, or drawn once.
    memory : int
        Numbers the server keeps from one exchange to the next.
    group : int
        Number of exchanges that are made together; 0: those of all participants.
    client_momentum : Momentum, optional
        What each client makes of its updates: it encodes its momentum in the place of u_k.
    server_momentum : Momentum, optional
        What the server makes of what it read from each client: the rule joins the momenta of *all* K clients. Not
        where models are sent.

    Examples
    --------
    >>> Exchange(numbers=5, sends_model=True, server_momentum=Momentum(keep=0.9, take=0.1, absent=0.9))
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: exchange.sends_model must be false where the \
server has a momentum of each client
    """

    numbers: int
    sends_model: bool = False
    decode_joined: bool = False
    normals: int = 0
    uniforms: int = 0
    client_uniforms: int = 0
    fresh: bool = True
    memory: int = 0
    group: int = 0
    client_momentum: Momentum | None = None
    server_momentum: Momentum | None = None

    def __post_init__(self) -> None:
        if self.sends_model and self.server_momentum is not None:
            allowed = "false where the server has a momentum of each client"
            raise InvalidValueError("exchange.sends_model", self.sends_model, allowed)

    def words_per_iteration(self, num_clients: int) -> int:
        """Words of the algorithm's random stream that one iteration is given."""
        return (self.normals + 1) // 2 + self.uniforms + num_clients * self.client_uniforms
