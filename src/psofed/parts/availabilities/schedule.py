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
        return time - day * math.floor(time / day) < _end(presence.share, day)

    def expected_participants(self, num_clients: int, wanted: int, fleet_seed: int) -> float:
        """Return the mean number of participants over a period; clients follow the same clock."""
        import numpy as np

        steps = min(self.period, 1_000_000)
        n = np.arange(steps) * self.period // steps
        # In an iteration the clients' times are n K mod T, then every T units.
        first = n * num_clients % self.period
        there = np.ceil((_end(self.share, num_clients * self.period) - first) / self.period)
        if not self.server_knows:
            return wanted * float(there.mean()) / num_clients
        return float(np.minimum(there, wanted).mean())


def _end(share: float, day: int) -> float:
    """Return the first time that is not available, in units of 1/(T K): 7 for a share of 0.07 and a day of 100."""
    return (share - 1e-12) * day
