"""How much is sent: bits, bytes and numbers up and down, per iteration and in total, against full sharing.

All algorithms have the same budget, PSO-Fed's: |S_n| participants × M numbers, each way, in every iteration.
One that sends more at a time sends less often (:class:`psofed.parts.traffic.Traffic`).
"""

from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from psofed.parts.traffic import BITS_PER_NUMBER, BYTES_PER_NUMBER
from psofed.scenario import Scenario

Amounts = dict[str, float]


@dataclass(frozen=True)
class Communication:
    """Traffic between server and clients: values, bytes and bits, down and up.

    Attributes
    ----------
    per_iteration : dict
        Of all participants of an iteration, on long average, such as ``"bits_up"``.
    total : dict
        Of this run; exact if all clients are available.
    full_sharing : dict of dict
        The same two if every iteration shared all parameters.
    ratio_to_full_sharing : float
        Bits sent, as a fraction of what full sharing would send.

    Examples
    --------
    >>> scenario = Scenario(num_clients=50, dimension=5, num_participants=5, num_shared=1, iterations=10)
    >>> sent = measure_communication(scenario)
    >>> sent.numbers_up, sent.bits_up, sent.ratio_to_full_sharing
    (5, 320, 0.2)
    """

    per_iteration: Amounts
    total: Amounts
    full_sharing: dict[str, Amounts]
    ratio_to_full_sharing: float

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

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts."""
        return {"bytes_per_number": BYTES_PER_NUMBER, **asdict(self)}


def measure_communication(scenario: Scenario) -> Communication:
    """Count the traffic of a scenario's algorithm."""
    algorithm, links = scenario.algorithm, scenario.channel
    traffic = algorithm.traffic(scenario)
    taking_part = Fraction(1)
    if scenario.availability is not None:
        most = algorithm.most_participants(scenario)
        expected = scenario.availability.expected_participants(scenario.num_clients, most, scenario.data.fleet_seed)
        taking_part = Fraction(expected / most)
    # Of an algorithm that sends no whole numbers, a channel saves no bits.
    bits_up = BITS_PER_NUMBER if links is None or not algorithm.sends_numbers(scenario) else links.bits_up
    bits_down = BITS_PER_NUMBER if links is None else links.bits_down
    down, up = (  # of the participants in an exchange, on average
        bits * per_value * taking_part / BITS_PER_NUMBER
        for bits, per_value in ((traffic.bits_down, bits_down), (traffic.bits_up, bits_up))
    )
    full = Fraction(scenario.num_participants * scenario.dimension * BITS_PER_NUMBER)
    each, every = traffic.exchanges_per_iteration, traffic.exchanges_before(scenario.iterations)
    counts = {"per_iteration": 1, "total": scenario.iterations}
    return Communication(
        _amounts(down * each, up * each),
        _amounts(down * every, up * every),
        {name: _amounts(full * count, full * count) for name, count in counts.items()},
        float((down + up) * each / (2 * full)),
    )


def _amounts(down: Fraction, up: Fraction) -> Amounts:
    """Return amounts in three units; whole ones are integers, so that they read as such."""
    units = {"numbers": BITS_PER_NUMBER, "bytes": 8, "bits": 1}
    amounts = {
        f"{unit}_{way}": bits / size for unit, size in units.items() for way, bits in (("down", down), ("up", up))
    }
    return {name: int(value) if value.denominator == 1 else float(value) for name, value in amounts.items()}
