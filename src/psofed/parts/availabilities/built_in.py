"""The built-in availabilities."""

import math

from psofed.common.errors import InvalidValueError
from psofed.common.per_client import PerClient, Uniform, per_client
from psofed.parts import Availability, option
from psofed.parts.contexts import Presence


class _ByChance(Availability):
    """Availability that is drawn from a distribution of each client."""

    probability: PerClient = option(
        low=0.0,
        high=1.0,
        check=per_client(0.0, 1.0),
        text="share of the time that a client is available: one, one per client, or {uniform = [low, high]}",
    )

    @property
    def time_share(self) -> PerClient:
        """Return `probability`."""
        return self.probability


class Bernoulli(_ByChance):
    """Bernoulli: each client is available with a given probability, independently in every iteration.

    P(q_{k,n} = 1) = p_k, where p_k is `probability`.

    Examples
    --------
    >>> presence = Presence(iteration=0, client=3, num_clients=5, share=0.5, uniform=0.4, client_uniform=0.0,
    ...                     was_available=False)
    >>> Bernoulli(probability=0.5).is_available(presence)
    True
    """

    is_memoryless = True

    def is_available(self, presence: Presence) -> bool:
        """Compare a fresh random number with the client's probability."""
        return presence.uniform < presence.share


class Markov(_ByChance):
    """Markov: clients come and go in spells of random length.

    A client with share p of the time and spells of mean length L (`mean_time`) leaves with probability 1/L and returns
    with probability (p / (1 − p)) / L. The first iteration is drawn from the stationary distribution,
    P(q_{k,0} = 1) = p. With p = 1 a client never leaves, and with p = 0 it never appears.

    Examples
    --------
    A client that is available stays with probability 1 − 1/L = 0.9.

    >>> presence = Presence(iteration=7, client=0, num_clients=5, share=0.5, uniform=0.89, client_uniform=0.0,
    ...                     was_available=True)
    >>> Markov(probability=0.5, mean_time=10).is_available(presence)
    True
    >>> Markov(probability=0.9, mean_time=2)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: availability.mean_time must be at least 9 with availability.probability = \
0.9, since absences last at least one iteration; got 2.0.
    """

    not_memoryless_because = "whether a client is available depends on the iteration before"

    mean_time: float = option(low=1.0, text="mean length of an available spell, in iterations")

    def __post_init__(self) -> None:
        super().__post_init__()
        held = self.probability
        highest = held.high if isinstance(held, Uniform) else held
        shares = highest if isinstance(highest, tuple) else (highest,)
        share = max((share for share in shares if share < 1.0), default=0.0)
        if share / (1.0 - share) > self.mean_time * (1.0 + 1e-12):
            allowed = (
                f"at least {share / (1.0 - share):.6g} with availability.probability = {share:g}, since absences last "
                "at least one iteration"
            )
            raise InvalidValueError("availability.mean_time", self.mean_time, allowed)

    def is_available(self, presence: Presence) -> bool:
        """Stay or return with the probabilities of the chain; begin in its stationary distribution."""
        # Whether a client was available cannot be foreseen: both chances are computed, and no branch is taken.
        stays = 1.0 - 1.0 / self.mean_time
        returns = presence.share / (max(1.0 - presence.share, 1e-300) * self.mean_time)
        chance = stays if presence.was_available else returns
        if presence.iteration == 0:
            chance = presence.share
        elif presence.share >= 1.0:
            chance = 1.0
        return presence.uniform < chance


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
