"""How much is sent: bits, bytes and numbers up and down, per iteration and in total, against full sharing.

All algorithms have the same budget, PSO-Fed's: |S_n| participants × M numbers, each way, in every iteration.
One that sends more at a time sends less often (:class:`Traffic`).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from psofed.parts.registry import load_part
from psofed.scenario import Scenario

# Numbers travel as float64. What both sides derive from a shared seed (masks, Φ_n, hashes) costs nothing.
BYTES_PER_NUMBER = 8
BITS_PER_NUMBER = 8 * BYTES_PER_NUMBER


@dataclass(frozen=True)
class Traffic:
    """What one participant's exchange costs, and how often the budget allows one.

    Attributes
    ----------
    bits_up, bits_down : int
        What one participant sends and receives in one exchange.
    budget : int
        Bits per iteration, each way, for all participants together: |S_n| · M · 64.
    group : int
        How many participants' exchanges are saved up for and made together.

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

    @property
    def exchanges_per_iteration(self) -> Fraction:
        """Participants' exchanges per iteration, on long average."""
        return Fraction(self.budget, max(self.bits_up, self.bits_down))

    def exchanges_before(self, n: int) -> int:
        """Exchanges made in iterations 0 … n − 1: as many groups as the budget has paid for."""
        return self.group * (n * self.budget // (self.group * max(self.bits_up, self.bits_down)))

    def exchanges_in(self, n: int) -> int:
        """Exchanges made in iteration n: the first so many of its participants S_n take part."""
        return self.exchanges_before(n + 1) - self.exchanges_before(n)


def spend_budget(scenario: Scenario, *, bits_up: int, bits_down: int, group: int | None = None) -> Traffic:
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


@dataclass(frozen=True)
class Communication:
    """Traffic between server and clients.

    Attributes
    ----------
    traffic : Traffic
        The algorithm's exchanges.
    full_numbers : int
        Numbers per iteration and direction with full sharing in every iteration, |S_n| · D.
    iterations : int
        Length of the run.

    Examples
    --------
    >>> scenario = Scenario(num_clients=50, dimension=5, num_participants=5, num_shared=1, iterations=10)
    >>> sent = measure_communication(scenario)
    >>> sent.numbers_up, sent.bits_up, sent.ratio_to_full_sharing
    (5, 320, 0.2)
    """

    traffic: Traffic
    full_numbers: int
    iterations: int

    @property
    def bits_down(self) -> float:
        """Bits all participants of an iteration receive, on long average."""
        return _whole(self.traffic.bits_down * self.traffic.exchanges_per_iteration)

    @property
    def bits_up(self) -> float:
        """Bits all participants of an iteration send, on long average."""
        return _whole(self.traffic.bits_up * self.traffic.exchanges_per_iteration)

    @property
    def numbers_down(self) -> float:
        """The same in numbers of 64 bits."""
        return _whole(Fraction(self.bits_down) / BITS_PER_NUMBER)

    @property
    def numbers_up(self) -> float:
        """The same in numbers of 64 bits."""
        return _whole(Fraction(self.bits_up) / BITS_PER_NUMBER)

    @property
    def ratio_to_full_sharing(self) -> float:
        """Bits sent, as a fraction of what full sharing in every iteration would send."""
        return (self.bits_down + self.bits_up) / (2 * self.full_numbers * BITS_PER_NUMBER)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts. Per iteration: on long average; in total: of this run, to the bit."""
        rate, made = self.traffic.exchanges_per_iteration, self.traffic.exchanges_before(self.iterations)
        down, up, full = self.traffic.bits_down, self.traffic.bits_up, self.full_numbers * BITS_PER_NUMBER
        return {
            "bytes_per_number": BYTES_PER_NUMBER,
            "per_iteration": _row(down * rate, up * rate),
            "total": _row(Fraction(down * made), Fraction(up * made)),
            "full_sharing": {
                "per_iteration": _row(Fraction(full), Fraction(full)),
                "total": _row(Fraction(full * self.iterations), Fraction(full * self.iterations)),
            },
            "ratio_to_full_sharing": self.ratio_to_full_sharing,
        }


def measure_communication(scenario: Scenario) -> Communication:
    """Count the traffic of a scenario's algorithm."""
    traffic: Traffic = load_part("algorithms", scenario.algorithm).traffic(scenario)
    return Communication(traffic, scenario.num_participants * scenario.dimension, scenario.iterations)


def _row(down: Fraction, up: Fraction) -> dict[str, float]:
    units = {"numbers": BITS_PER_NUMBER, "bytes": 8, "bits": 1}
    return {
        f"{unit}_{way}": _whole(bits / size)
        for unit, size in units.items()
        for way, bits in (("down", down), ("up", up))
    }


def _whole(value: Fraction) -> float:
    # Whole amounts stay integers, so that they read as such.
    return int(value) if value.denominator == 1 else float(value)
