"""Base classes of the network between clients and server: availability, channels and delays."""

from typing import TYPE_CHECKING, Any, ClassVar

from psofed.common.errors import InvalidValueError
from psofed.common.options import option
from psofed.common.per_client import PerClient, Uniform, draw_per_client
from psofed.parts.part import Part

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from psofed.common.types import FloatArray
    from psofed.parts.contexts import Departure, Presence, Transmission

# Which of the fleet's seeds draws shares of time; it differs from those of the fleet's variances.
_SHARES = 10


class Availability(Part):
    """Which clients are available in an iteration, q_{k,n}.

    With ``memory_size`` its method is ``is_available(self, presence, memory)``.

    Parameters
    ----------
    server_knows : bool
        Whether the server draws participants from the available clients. Otherwise it draws from all, and a participant
        that is not available neither downloads nor uploads.
    learns : str
        ``"always"``, as in the paper, or ``"available"``: a client that is not available makes no step.
    """

    methods: ClassVar[tuple[str, ...]] = ("is_available",)
    is_memoryless: ClassVar[bool] = False  # whether clients and iterations are independent, as theory needs
    not_memoryless_because: ClassVar[str] = (
        "it does not state that clients and iterations are independent of each other (is_memoryless = True)"
    )

    server_knows: bool = option(default=True, text="whether participants are drawn from the available clients only")
    learns: str = option(default="always", choices=("always", "available"), text="whether unavailable clients learn")

    def is_available(self, presence: "Presence", *args: Any) -> bool:
        """Return whether a client is available in an iteration."""
        raise NotImplementedError

    def memory_size(self, dimension: int) -> int:
        """Return how many numbers are kept for each client, zeros at first."""
        return 0

    @property
    def time_share(self) -> PerClient:
        """Share of the time that clients are available, shown to :meth:`is_available` as ``presence.share``."""
        return 1.0

    def shares(self, num_clients: int, fleet_seed: int) -> "FloatArray":
        """Return the share of the time that each client is available, shape (K,)."""
        import numpy as np

        seed = np.random.SeedSequence(fleet_seed, spawn_key=(_SHARES,))
        return draw_per_client(self.time_share, num_clients, seed)

    def of_clients(self, clients: "Sequence[int]", num_clients: int, fleet_seed: int) -> "Self":
        """Return the availability of some of `num_clients` clients: those that differ keep their own values."""
        shares = self.shares(num_clients, fleet_seed)
        changes = {}
        for name in self.options():
            value = getattr(self, name)
            if isinstance(value, Uniform):
                value = tuple(shares.tolist())
            if isinstance(value, tuple):
                changes[name] = tuple(value[k] for k in clients)
        return self.replace(**changes)

    def expected_participants(self, num_clients: int, wanted: int, fleet_seed: int) -> float:
        """Return how many of `wanted` participants take part on average, clients being independent of each other."""
        import numpy as np

        shares = self.shares(num_clients, fleet_seed)
        if not self.server_knows:
            return wanted * float(shares.mean())
        # Probabilities of 0, 1, … available clients; the last also of more.
        chances = np.zeros(wanted + 1)
        chances[0] = 1.0
        for share in shares:
            moved = share * chances
            chances[:-1] -= moved[:-1]
            chances[1:] += moved[:-1]
        return float(chances @ np.arange(wanted + 1))


class Channel(Part):
    """Effect of a link on the values of a message, up or down.

    A channel with a memory has :meth:`memory_size` and another argument, ``transmit(self, transmission, memory, out)``.

    Attributes
    ----------
    draws : str
        Random numbers that :meth:`transmit` is shown for each value: ``"normals"``, ``"uniforms"`` or ``"none"``.
    """

    methods: ClassVar[tuple[str, ...]] = ("transmit",)
    draws: ClassVar[str] = "none"

    def transmit(self, transmission: "Transmission", *args: Any, **kwargs: Any) -> None:
        """Write the values that arrive into ``out`` (M,), the last argument; NaN for a value that is lost."""
        raise NotImplementedError

    def memory_size(self, dimension: int) -> int:
        """Return how many numbers are kept for each client of the link, zeros at first."""
        return 0

    def bits_after(self, bits: int) -> int:
        """Return the bits that a value takes on this link, given that it took `bits` before."""
        return bits

    def check(self, direction: str) -> None:
        """Refuse a direction, ``"up"`` or ``"down"``, that has no meaning for this channel."""

    def added_variance(self) -> float | None:
        """Return the variance of independent noise of mean zero, if that is all the channel adds; what theory needs."""
        return None

    def loss_probability(self) -> float | None:
        """Return the probability that a whole message is lost, if that is all that happens; what theory needs."""
        return None


class Delay(Part):
    """How many iterations an upload takes to arrive.

    With A_n the uploads that arrive in iteration n, l the delay of each, and g the server's model on their arrival,
    the mean is g ← g + (1/|A_n|) Σ α^l S (u − g). Other rules see the updates α^l (u − g). With ``memory_size``,
    ``duration(self, departure, memory)`` is called for every client that is asked to upload.

    Parameters
    ----------
    weight : float
        α: weight per iteration of delay.
    grouping : str
        ``"together"``, as above, or ``"by-delay"`` (the mean only): uploads of equal delay are averaged, and the
        averages are added, g ← g + Σ_l α^l (1/|A_{n,l}|) Σ S (u − g).
    """

    methods: ClassVar[tuple[str, ...]] = ("duration",)
    also_needs: ClassVar[tuple[str, ...]] = ("longest_delay",)

    weight: float = option(default=1.0, low=0.0, high=1.0, text="weight per iteration of delay (α)")
    grouping: str = option(
        default="together", choices=("together", "by-delay"), text="average all arrivals, or by delay"
    )

    def duration(self, departure: "Departure", *args: Any) -> int:
        """Return the delay of an upload in iterations, at most :meth:`longest_delay`; negative if it is lost."""
        raise NotImplementedError

    def memory_size(self, dimension: int) -> int:
        """Return how many numbers are kept for each client, zeros at first."""
        return 0

    def longest_delay(self) -> int:
        """Return the longest delay of an upload that arrives."""
        raise NotImplementedError

    def chances(self) -> tuple[float, ...] | None:
        """Return the probabilities of delays 0, 1, …, if all uploads are independent and alike; what theory needs."""
        return None

    def most_at_once(self) -> int:
        """Return how many uploads of one client may arrive in the same iteration."""
        return self.longest_delay() + 1

    def check(self, iterations: int) -> None:
        """Refuse delays as long as the run, after which nothing would arrive."""
        longest = self.longest_delay()
        if longest >= iterations:
            field = next((name for name in self.own_options() if getattr(self, name) == longest), "longest")
            allowed = f"at most {iterations - 1} (one less than the iterations)"
            raise InvalidValueError(f"delay.{field}", longest, allowed)
