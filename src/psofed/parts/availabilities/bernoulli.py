"""Availability by independent chance."""

from psofed.common.per_client import PerClient, per_client
from psofed.parts import Availability, option
from psofed.parts.contexts import Presence


class Bernoulli(Availability):
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

    probability: PerClient = option(
        low=0.0,
        high=1.0,
        check=per_client(0.0, 1.0),
        text="probability that a client is available: one, one per client, or {uniform = [low, high]}",
    )

    @property
    def time_share(self) -> PerClient:
        """Return `probability`."""
        return self.probability

    def is_available(self, presence: Presence) -> bool:
        """Compare a fresh random number with the client's probability."""
        return presence.uniform < presence.share
