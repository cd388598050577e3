"""Availability by the clock."""

import math

from psofed.common.per_client import PerClient
from psofed.parts import Availability, option
from psofed.parts.contexts import Presence


class Schedule(Availability):
    """Schedule: each client is available for a fixed part of every period, such as at night.

    Client k of K is available where (n / T + k / K) mod 1 < s, with the period T and the share s: phases are spread
    evenly over the clients.

    Examples
    --------
    With a period of 4 and half of it available, client 0 is there in iterations 0, 1, 4, 5, ….

    >>> schedule = Schedule(period=4, share=0.5)
    >>> [schedule.is_available(Presence(n, 0, 2, 0.5, 0.0, 0.0, False)) for n in range(5)]
    [True, True, False, False, True]
    >>> [schedule.is_available(Presence(n, 1, 2, 0.5, 0.0, 0.0, False)) for n in range(5)]
    [False, False, True, True, False]
    """

    not_memoryless_because = "who is available depends on the iteration"

    period: int = option(low=1, text="iterations until the schedule repeats")
    share: float = option(low=0.0, high=1.0, text="share of the period that a client is available")

    @property
    def time_share(self) -> PerClient:
        """Return `share`."""
        return self.share

    def is_available(self, presence: Presence) -> bool:
        """Compare the time of the client's day with its end."""
        # In whole numbers, units of 1/(T K) of a period. Exact below 2⁵³, and faster than the remainder of a division.
        day = presence.num_clients * self.period
        time = presence.iteration * presence.num_clients + presence.client * self.period
        return time - day * math.floor(time / day) < presence.share * day

    def expected_participants(self, num_clients: int, wanted: int, fleet_seed: int) -> float:
        """Return the mean number of participants over a period; clients follow the same clock."""
        if not self.server_knows:
            return super().expected_participants(num_clients, wanted, fleet_seed)
        total, period = 0, min(self.period, 10_000)
        for n in range(period):
            there = sum(
                self.is_available(Presence(n, k, num_clients, self.share, 0.0, 0.0, False))
                for k in range(num_clients)
            )
            total += min(wanted, there)
        return total / period
