"""How much is sent: bits, bytes and numbers up and down, per iteration and in total, against full sharing.

All algorithms have the same budget, PSO-Fed's: |S_n| participants × M numbers, each way, in every iteration.
One that sends more at a time sends less often (:class:`psofed.parts.traffic.Traffic`).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from psofed.parts.traffic import BITS_PER_NUMBER, BYTES_PER_NUMBER, Traffic
from psofed.scenario import Scenario


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
    bits_per_value_up, bits_per_value_down : int
        Bits that a value takes on the links.
    taking_part : float
        Fraction of the participants that are available, on average.

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
    bits_per_value_up: int = BITS_PER_NUMBER
    bits_per_value_down: int = BITS_PER_NUMBER
    taking_part: float = 1.0

    @property
    def _in_exchange(self) -> tuple[Fraction, Fraction]:
        """Bits that a participant receives and sends in an exchange, on average."""
        share = Fraction(self.taking_part) / BITS_PER_NUMBER
        traffic = self.traffic
        return (traffic.bits_down * self.bits_per_value_down * share, traffic.bits_up * self.bits_per_value_up * share)

    @property
    def per_iteration(self) -> dict[str, float]:
        """Numbers, bytes and bits that all participants receive and send in an iteration, on long average."""
        return self._sum(self.traffic.exchanges_per_iteration)

    @property
    def bits_down(self) -> float:
        """Bits all participants of an iteration receive, on long average."""
        return self.per_iteration["bits_down"]

    @property
    def bits_up(self) -> float:
        """Bits all participants of an iteration send, on long average."""
        return self.per_iteration["bits_up"]

    @property
    def numbers_down(self) -> float:
        """The same in numbers of 64 bits."""
        return self.per_iteration["numbers_down"]

    @property
    def numbers_up(self) -> float:
        """The same in numbers of 64 bits."""
        return self.per_iteration["numbers_up"]

    @property
    def ratio_to_full_sharing(self) -> float:
        """Bits sent, as a fraction of what full sharing in every iteration would send."""
        return (self.bits_down + self.bits_up) / (2 * self.full_numbers * BITS_PER_NUMBER)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts. Per iteration: on long average; in total: of this run (exact if all are available)."""
        full = Fraction(self.full_numbers * BITS_PER_NUMBER)
        return {
            "bytes_per_number": BYTES_PER_NUMBER,
            "per_iteration": self.per_iteration,
            "total": self._sum(self.traffic.exchanges_before(self.iterations)),
            "full_sharing": {
                "per_iteration": _row(full, full),
                "total": _row(full * self.iterations, full * self.iterations),
            },
            "ratio_to_full_sharing": self.ratio_to_full_sharing,
        }

    def _sum(self, exchanges: Fraction | int) -> dict[str, float]:
        down, up = self._in_exchange
        return _row(down * exchanges, up * exchanges)


def measure_communication(scenario: Scenario) -> Communication:
    """Count the traffic of a scenario's algorithm."""
    algorithm, traffic = scenario.algorithm, scenario.algorithm.traffic(scenario)
    participants, availability, links = scenario.num_participants, scenario.availability, scenario.channel
    taking_part = 1.0
    if availability is not None:
        seed = scenario.data.fleet_seed
        most = algorithm.most_participants(scenario)
        taking_part = availability.expected_participants(scenario.num_clients, most, seed) / most
    bits_up = BITS_PER_NUMBER if links is None else links.bits_up
    return Communication(
        traffic,
        participants * scenario.dimension,
        scenario.iterations,
        # Of an algorithm that sends no whole numbers, a channel saves no bits.
        bits_up if algorithm.sends_numbers(scenario) else BITS_PER_NUMBER,
        BITS_PER_NUMBER if links is None else links.bits_down,
        taking_part,
    )


def _row(down: Fraction, up: Fraction) -> dict[str, float]:
    """Return amounts in three units; whole ones are integers, so that they read as such."""
    units = {"numbers": BITS_PER_NUMBER, "bytes": 8, "bits": 1}
    amounts = {
        f"{unit}_{way}": bits / size for unit, size in units.items() for way, bits in (("down", down), ("up", up))
    }
    return {name: int(value) if value.denominator == 1 else float(value) for name, value in amounts.items()}
