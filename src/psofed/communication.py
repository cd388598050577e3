"""How much is sent: numbers and bytes up and down, per iteration and in total, against full sharing."""

from dataclasses import dataclass
from typing import Any

from psofed.scenario import Scenario

# Numbers travel as float64; the masks are derived from a shared seed and cost nothing.
BYTES_PER_NUMBER = 8


@dataclass(frozen=True)
class Communication:
    """Traffic between server and clients.

    Attributes
    ----------
    numbers_down, numbers_up : int
        Numbers all participants of an iteration receive and send.
    full_numbers : int
        Either of them with full sharing, M = D.
    iterations : int
        Length of the run.

    Examples
    --------
    >>> scenario = Scenario(num_clients=50, dimension=5, num_participants=5, num_shared=1, iterations=10)
    >>> traffic = measure_communication(scenario)
    >>> traffic.numbers_up, traffic.ratio_to_full_sharing
    (5, 0.2)
    """

    numbers_down: int
    numbers_up: int
    full_numbers: int
    iterations: int

    @property
    def ratio_to_full_sharing(self) -> float:
        """Numbers sent, as a fraction of what full sharing would send."""
        return (self.numbers_down + self.numbers_up) / (2 * self.full_numbers)

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts."""
        full = (self.full_numbers, self.full_numbers)
        return {
            "bytes_per_number": BYTES_PER_NUMBER,
            **self._table(self.numbers_down, self.numbers_up),
            "full_sharing": self._table(*full),
            "ratio_to_full_sharing": self.ratio_to_full_sharing,
        }

    def _table(self, down: int, up: int) -> dict[str, dict[str, int]]:
        def row(iterations: int) -> dict[str, int]:
            return {
                "numbers_down": down * iterations,
                "numbers_up": up * iterations,
                "bytes_down": down * iterations * BYTES_PER_NUMBER,
                "bytes_up": up * iterations * BYTES_PER_NUMBER,
            }

        return {"per_iteration": row(1), "total": row(self.iterations)}


def measure_communication(scenario: Scenario) -> Communication:
    """Count the traffic of a scenario: |S_n| participants exchange M numbers each way in every iteration."""
    shared = scenario.num_participants * scenario.num_shared
    full = scenario.num_participants * scenario.dimension
    return Communication(shared, shared, full, scenario.iterations)
