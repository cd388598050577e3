"""Base classes of what the server does with uploads: rules, pre-aggregations and defences."""

from typing import TYPE_CHECKING, Any, ClassVar

from psofed.common.errors import NotCoveredError, PsofedError
from psofed.common.options import option
from psofed.parts.part import Part, takes_memory

if TYPE_CHECKING:
    from psofed.common.types import FloatArray
    from psofed.parts import contexts


class Aggregation(Part):
    """Rule by which the server combines the uploads.

    The engine leaves out numbers that are not finite or beyond ±1e150, calls :meth:`combine`, and moves each entry by
    the share of participants who answered towards what it returned; nothing moves where nobody did. So every rule is
    the paper's mean once its robustness is switched off.

    Attributes
    ----------
    over : str
        ``"entries"``: :meth:`combine` is shown one entry's :class:`~psofed.parts.contexts.Numbers` and returns a
        number. ``"vectors"``: it is shown all :class:`~psofed.parts.contexts.Updates` and returns a change, shape
        (E,); or, faster, takes a last argument `out` and writes the change into it. With :meth:`memory_size` either
        takes another argument `memory` after the first: the rule's own array of this trial.
    has_root_data : bool
        Whether the server holds `root_size` samples.
    """

    table: ClassVar[str] = "aggregation_options"
    methods: ClassVar[tuple[str, ...]] = ("combine",)
    over: ClassVar[str] = "entries"
    has_root_data: ClassVar[bool] = False

    def combine(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the participants agree on: a number, or a change of the server's model."""
        raise NotImplementedError

    @classmethod
    def writes_change(cls) -> bool:
        """Whether :meth:`combine` writes its change into a last argument `out`, instead of returning it."""
        return cls.over == "vectors" and cls.combine.__code__.co_argcount > 2 + takes_memory(cls.combine)

    def memory_size(self, num_clients: int, dimension: int) -> int:
        """Return how many numbers the rule keeps from iteration to iteration, zeros at first."""
        return 0

    def remembers_clients(self) -> bool:
        """Whether the memory grows with the number of clients."""
        return self.memory_size(2, 1) != self.memory_size(1, 1)

    def check_mixing(self, pre: "PreAggregation | None") -> None:
        """Refuse a rule that remembers each client after a pre-aggregation, whose uploads are of no one client."""
        if pre is not None and self.remembers_clients():
            raise NotCoveredError(
                f'aggregation = "{self.kind}" remembers each client, and pre_aggregation = "{pre.kind}" mixes the '
                "uploads of several; remove one of the two"
            )

    @classmethod
    def check_methods(cls) -> None:
        """Refuse a rule whose :meth:`combine` takes other arguments than the engine has for it."""
        super().check_methods()
        code = getattr(cls.combine, "__code__", None)
        if code is None:
            return
        names = code.co_varnames[1 : code.co_argcount]
        shown = "numbers" if cls.over == "entries" else "updates"
        allowed = [(shown,), (shown, "memory")]
        if cls.over == "vectors":
            allowed += [(shown, "out"), (shown, "memory", "out")]
        remembers = cls.memory_size is not Aggregation.memory_size
        if len(names) not in {len(some) for some in allowed} or takes_memory(cls.combine) != remembers:
            listed = " or ".join(f"combine(self, {', '.join(some)})" for some in allowed)
            raise PsofedError(
                f'aggregation "{cls.kind}" ({cls.__qualname__}) has combine(self, {", ".join(names)}); it must be '
                f"{listed}, with `memory` if and only if there is a method memory_size"
            )

    def fewest_numbers(self) -> int:
        """Return how many numbers of an entry the rule needs; the server's own value stands in for missing ones."""
        return 1

    def check_participants(self, participants: int) -> None:
        """Refuse more participants than the rule can work on."""


class PreAggregation(Part):
    """Mixing of the uploads before a rule combines them.

    The engine forms the mixed updates Σ_p weight(p) · u_p, where u_p is 0, the server's own value, in entries that
    participant p did not share. A mixed upload holds the entries that one of those mixed into it shared. The rule then
    sees the mixed uploads as if participants had sent them.
    """

    methods: ClassVar[tuple[str, ...]] = ("weigh",)

    def weigh(self, updates: "contexts.AllUpdates", out: "FloatArray") -> None:
        """Write the weight of each participant in each mixed upload into ``out`` (uploads, P), which holds zeros."""
        raise NotImplementedError

    def memory_size(self, num_clients: int, dimension: int) -> int:
        """Return how many numbers it keeps from iteration to iteration, zeros at first."""
        return 0

    def uploads_after(self, participants: int) -> int:
        """Return the number of mixed uploads, at most `participants`."""
        return participants


class Defence(Part):
    """Detection and exclusion of suspicious clients.

    The engine subtracts from each uploaded number what it could be expected to be, divides by the deviation of an
    honest client, and calls :meth:`suspicion`. Above a threshold that is an alarm: the client is left out of the
    aggregation until it has made `return_after` uploads without another one. Its memory is then set to 0.

    Parameters
    ----------
    false_alarm_every : float
        Expected number of iterations until an honest client of the fleet is excluded by mistake. The threshold is
        derived from it by running the scenario without its attack.
    threshold : float, optional
        The threshold itself; replaces `false_alarm_every`.
    return_after : int
        Number of uploads without an alarm after which a client is readmitted; 0: never.
    excluded_download : bool
        Whether excluded clients still download, and so learn from the others.
    reference : str
        What an upload is compared with: ``"participants"``, the median of what the other participants sent for the
        entry and of the server's own number; or ``"server"``, the server's own number alone.
    variance : str
        Where the variance of honest residuals comes from: exact ``"theory"``, iteration by iteration; ``"estimated"``
        on the way, over the fleet's level; each client's own ``"past"``, which Byzantine clients that send hardly any
        change cannot shift, and then at most a third of the clients are excluded at a time; or ``"auto"``, theory where
        it covers the scenario, else estimated. A federation uses the past.

    Attributes
    ----------
    memory_size : int
        Number of values it keeps for each client.
    """

    methods: ClassVar[tuple[str, ...]] = ("suspicion",)
    memory_size: ClassVar[int] = 1

    false_alarm_every: float = option(
        default=10_000.0,
        low=1.0,
        text="iterations per wrongly excluded honest client, over the whole fleet",
    )
    threshold: float | None = option(
        default=None, low=0.0, text="alarm threshold of the suspicion; replaces false_alarm_every"
    )
    return_after: int = option(
        default=100, low=0, text="uploads without an alarm until a client is readmitted; 0: never"
    )
    excluded_download: bool = option(default=True, text="whether excluded clients still download")
    reference: str = option(
        default="participants",
        choices=("participants", "server"),
        text="what uploads are compared with",
    )
    variance: str = option(
        default="auto",
        choices=("auto", "theory", "estimated", "past"),
        text="source of the honest residuals' variance",
    )

    def suspicion(self, evidence: "contexts.Evidence", memory: "FloatArray") -> float:
        """Return the suspicion against a client after an upload, at least 0.

        `memory` (memory_size,) holds what is kept of this client, zeros at first, and is to be changed in place.
        """
        raise NotImplementedError
