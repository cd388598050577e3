"""Availability in spells."""

from psofed.common.errors import InvalidValueError
from psofed.common.per_client import PerClient, Uniform, per_client
from psofed.parts import Availability, option
from psofed.parts.contexts import Presence


class Markov(Availability):
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

    probability: PerClient = option(
        low=0.0,
        high=1.0,
        check=per_client(0.0, 1.0),
        text="share of the time that a client is available: one, one per client, or {uniform = [low, high]}",
    )
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

    @property
    def time_share(self) -> PerClient:
        """Return `probability`."""
        return self.probability

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
