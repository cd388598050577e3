"""Base classes of the families of parts, and what the engine expects of each.

Those of attacks and of the network are in :mod:`psofed.parts.attack` and :mod:`psofed.parts.network`.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from psofed.common.errors import InvalidValueError, NotCoveredError, PsofedError
from psofed.common.options import option
from psofed.parts.attack import Attack as Attack
from psofed.parts.part import Part, takes_memory
from psofed.parts.traffic import BITS_PER_NUMBER, spend_budget

if TYPE_CHECKING:
    from psofed.common.types import FloatArray, IntArray
    from psofed.parts import contexts
    from psofed.parts.affine import LinearLearner
    from psofed.parts.features import FeatureMap
    from psofed.parts.traffic import Exchange, Traffic
    from psofed.scenario import Scenario


class Drift(Part):
    """How the target moves while it is learned."""

    methods: ClassVar[tuple[str, ...]] = ("move",)

    def move(self, step: "contexts.Step") -> "FloatArray":
        """Return w*_n − w*_0, shape (D,)."""
        raise NotImplementedError

    def check(self, iterations: int) -> None:
        """Refuse runs that are too short."""

    def increment_variance(self) -> float | None:
        """Return the variance of each entry's step w*_{n+1} − w*_n, if steps are white; what theory needs."""
        return None

    def mean_square(self) -> float | None:
        """Return the mean of ‖w*_n − w*_0‖² over a period, for periodic drifts."""
        return None

    def jump_iteration(self) -> int | None:
        """Return the iteration of the jump, for jumps."""
        return None


class Learner(Part):
    """Local step of a client: from its model v after the download, with e = y − vᵀx on a sample (x, y).

    A learner has one of two methods. With :meth:`gain` it steps along the input, v ← a v + g x, where a is
    :meth:`keep`. With :meth:`learn` it writes any change of v, and may keep a memory.
    """

    methods: ClassVar[tuple[str, ...]] = ("gain", "learn")

    def gain(self, residual: "contexts.Residual") -> float:
        """Return g in v ← a v + g x."""
        raise NotImplementedError

    def keep(self, stepsize: float) -> float:
        """Return a in v ← a v + g x, the share of its model that a client with this stepsize keeps."""
        return 1.0

    def learn(self, observation: "contexts.Observation", memory: "FloatArray", out: "FloatArray") -> None:
        """Write the change of v into ``out`` (D,); `memory` is the client's and is to be changed in place."""
        raise NotImplementedError

    def linear(self) -> "LinearLearner | None":
        """State that the step is linear in the model given the sample, for exact theory; None if it is not."""
        return None

    def initial_memory(self, dimension: int) -> "FloatArray":
        """Return what a client's memory holds at first; its length is the memory's."""
        import numpy as np

        return np.zeros(0)

    def memory_size(self, dimension: int) -> int:
        """Return how many numbers a client keeps: the length of :meth:`initial_memory`."""
        return len(self.initial_memory(dimension))


class InputStream(Part):
    """Where the inputs of the clients come from.

    An input is made of the standard normal numbers of its client and iteration, and of what the stream remembers.
    """

    family: ClassVar[str] = "stream"
    table: ClassVar[str] = "data.stream"
    methods: ClassVar[tuple[str, ...]] = ("draw",)

    def draw(self, innovation: "contexts.Innovation", memory: "FloatArray", out: "FloatArray") -> None:
        """Write x_{k,n} into ``out`` (d,); `memory` is the client's, zeros at first, and is to be changed in place."""
        raise NotImplementedError

    def memory_size(self, dimension: int) -> int:
        """Return how many numbers it remembers of each client whose inputs have `dimension` entries."""
        return 0

    def input_correlation(self) -> float | None:
        """Return ρ if the inputs have the covariance R_k[i, j] = ς_k² ρ^|i−j|; None if it is another."""
        return None

    @property
    def is_independent(self) -> bool:
        """Whether inputs are drawn independently over time, as `input_correlation` and `covariances` say."""
        return self.kind == "independent"


class Model(Part):
    """Model that the clients fit: ŷ = wᵀz(x), linear in features of the inputs.

    Attributes
    ----------
    features : int or None
        How many there are, where the model says so; it is then the scenario's dimension.
    """

    methods: ClassVar[tuple[str, ...]] = ("make_features",)

    def make_features(self, input_dimension: int, dimension: int) -> "FeatureMap":
        """Return z for inputs of d entries and D weights."""
        raise NotImplementedError

    @property
    def num_features(self) -> int | None:
        """Number of features, where the model determines it."""
        return None


class Function(Part):
    """A function to be learned: a client observes y = f(x) + ν.

    Attributes
    ----------
    num_inputs : int or None
        How many entries x has; any number if None.
    """

    table: ClassVar[str] = "data.function"
    methods: ClassVar[tuple[str, ...]] = ("value",)
    num_inputs: ClassVar[int | None] = None

    def value(self, x: "FloatArray") -> float:
        """Return f(x) for x of shape (d,)."""
        raise NotImplementedError


class Pattern(Part):
    """Which M of the D entries a client shares in an iteration."""

    table: ClassVar[str] = "selection"
    methods: ClassVar[tuple[str, ...]] = ("select",)

    def select(self, mask: "contexts.Mask", out: "IntArray") -> None:
        """Write M different entries from 0 to D − 1 into ``out`` (M,)."""
        raise NotImplementedError

    def mask_moments(self, dimension: int, num_shared: int) -> "tuple[float, float | FloatArray] | None":
        """Return E[S(i)], alike in all entries, and E[S(i) S(j)], of masks independent over time; else None.

        The second is a number where it is the same for all i ≠ j, else a matrix (D, D).
        """
        return None


class Algorithm(Part):
    """How clients and server exchange, and at what cost.

    Where clients hold no model (all algorithms but PSO-Fed), a participant k receives the server's w_n and forms its
    LMS update u_k = μ x_k e_k, e_k = y_k − w_nᵀx_k. Then

        encode   u_k → the numbers that k sends
        attack   changes them, if k is Byzantine
        decode   what the server reads out of them, before or after they are combined
        join     the scenario's aggregation rule, by default the mean
        apply    the combined update → the change of w_n

    Attributes
    ----------
    holds_models : bool
        Whether clients hold models; only the engine can run such an algorithm.
    adds_mean_update : bool
        Whether, under the mean, an exchange adds the average update to w_n, which the exact theory covers.
    """

    table: ClassVar[str] = "algorithm_options"
    methods: ClassVar[tuple[str, ...]] = ("exchange",)
    holds_models: ClassVar[bool] = False
    adds_mean_update: ClassVar[bool] = False

    def check(self, scenario: "Scenario") -> None:
        """Refuse settings that have no meaning for the algorithm."""
        if self.holds_models:
            return
        why = f'with algorithm = "{self.kind}", whose clients hold no model'
        if scenario.uplink != "same":
            raise InvalidValueError("uplink", scenario.uplink, f'"same" {why}')
        if scenario.learner.kind != "lms":
            raise InvalidValueError("learner.kind", scenario.learner.kind, f'"lms" {why}')
        if scenario.delay is not None and not self.exchange(scenario).sends_model:
            late = "a late upload u moves the server by u − g, but what is sent here is not a model"
            raise InvalidValueError("delay", scenario.delay.kind, f"left out {why}: {late}")

    def traffic(self, scenario: "Scenario") -> "Traffic":
        """Return the cost and the frequency of exchanges; without this method N numbers go up and D down."""
        exchange = self.exchange(scenario)
        bits_up, bits_down = BITS_PER_NUMBER * exchange.numbers, BITS_PER_NUMBER * scenario.dimension
        return spend_budget(scenario, bits_up=bits_up, bits_down=bits_down, group=exchange.group or None)

    def exchange(self, scenario: "Scenario") -> "Exchange":
        """Return the values and random numbers that an exchange needs."""
        raise NotImplementedError

    def encode(self, message: "contexts.Message", out: "FloatArray") -> None:
        """Write the numbers that a participant sends into ``out`` (N,); without this method it sends its update."""
        for i in range(out.size):  # compiled in a tenth of the time that `out[:] = message.update` takes
            out[i] = message.update[i]

    def decode(self, received: "contexts.Received", out: "FloatArray") -> None:
        """Write the decoded update into ``out`` (D,); without this method values are combined as they are."""
        raise NotImplementedError

    def apply(self, received: "contexts.Received", memory: "FloatArray", out: "FloatArray") -> None:
        """Write the change of w_n into ``out`` (D,); without this method the combined value is the change."""
        for i in range(out.size):
            out[i] = received.numbers[i]

    def most_participants(self, scenario: "Scenario") -> int:
        """Return the largest number of participants in an iteration."""
        if self.holds_models:
            return scenario.num_participants
        most = self.traffic(scenario).most_in_iteration
        if most > scenario.num_clients:
            allowed = f"at most {scenario.num_clients} per iteration (num_clients; see spend_budget)"
            raise InvalidValueError(f'exchanges of algorithm "{self.kind}"', most, allowed)
        return max(scenario.num_participants, most)

    def sends_numbers(self, scenario: "Scenario") -> bool:
        """Tell whether an upload consists of whole numbers, and not of a few bits of each."""
        bits = self.traffic(scenario).bits_up
        return self.holds_models or bits == BITS_PER_NUMBER * self.exchange(scenario).numbers

    def num_joined(self, scenario: "Scenario") -> int:
        """Return the largest number of uploads or momenta that the aggregation rule combines."""
        most = self.most_participants(scenario)
        if self.holds_models or self.exchange(scenario).server_momentum is None:
            return most
        return scenario.num_clients


class Aggregation(Part):
    """Rule by which the server combines the uploads.

    The engine leaves out values that are not finite or beyond ±1e150, calls :meth:`combine`, and moves each entry by
    the share of participants who answered towards what it returned. So every rule is the paper's mean once its
    robustness is switched off.

    Attributes
    ----------
    over : str
        ``"entries"``: :meth:`combine` sees one entry's :class:`Numbers` and returns a value. ``"vectors"``: it sees all
        :class:`Updates` and returns a change, shape (E,), or writes it into a last argument ``out``, which is faster.
        With :meth:`memory_size` both take the rule's memory of this trial as a second argument.
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
        names, is_entries = code.co_varnames[1 : code.co_argcount], cls.over == "entries"
        remembers = cls.defines("memory_size")
        if takes_memory(cls.combine) != remembers or len(names) - remembers not in ((1,) if is_entries else (1, 2)):
            wanted = ["numbers" if is_entries else "updates", *["memory"] * remembers, *["[out]"] * (not is_entries)]
            raise PsofedError(
                f'aggregation "{cls.kind}" ({cls.__qualname__}) has combine(self, {", ".join(names)}); it must be '
                f"combine(self, {', '.join(wanted)}), and `memory` needs a method memory_size"
            )

    def fewest_numbers(self) -> int:
        """Return how many numbers of an entry the rule needs; the server's own value stands in for missing ones."""
        return 1

    def check_participants(self, participants: int) -> None:
        """Refuse more participants than the rule can work on."""


class PreAggregation(Part):
    """Mixing of the uploads before a rule combines them.

    The rule sees the mixed updates Σ_p weight(p) · u_p as if participants had sent them. u_p is 0 in entries that p did
    not share, and a mixed upload holds the entries that any of its uploads shared.
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

    The engine standardises each uploaded value by what is expected of an honest client, and calls :meth:`suspicion`.
    Above a threshold the client is left out until it has made `return_after` uploads without another alarm.

    Parameters
    ----------
    false_alarm_every : float
        Expected number of iterations until an honest client of the fleet is excluded by mistake; running the scenario
        without its attack turns it into the threshold.
    threshold : float, optional
        The threshold itself; replaces `false_alarm_every`.
    return_after : int
        Number of uploads without an alarm after which a client is readmitted; 0: never.
    excluded_download : bool
        Whether excluded clients still download, and so learn from the others.
    reference : str
        What an upload is compared with: ``"participants"``, the median of the other participants' values and the
        server's; or ``"server"``, the server's own value.
    variance : str
        Where the variance of honest residuals comes from: exact ``"theory"``; ``"estimated"`` on the way, over the
        fleet's level; each client's own ``"past"``, as in a federation, which excludes at most a third of the clients
        at a time; or ``"auto"``: theory where it covers the scenario, else estimated.

    Attributes
    ----------
    memory_size : int
        Number of values it keeps for each client.
    """

    methods: ClassVar[tuple[str, ...]] = ("suspicion",)
    memory_size: ClassVar[int] = 1

    false_alarm_every: float = option(
        default=10_000.0, low=1.0, text="iterations per wrongly excluded honest client, over the whole fleet"
    )
    threshold: float | None = option(default=None, low=0.0, text="alarm threshold; replaces false_alarm_every")
    return_after: int = option(default=100, low=0, text="uploads without an alarm until readmission; 0: never")
    excluded_download: bool = option(default=True, text="whether excluded clients still download")
    reference: str = option(
        default="participants", choices=("participants", "server"), text="what uploads are compared with"
    )
    variance: str = option(
        default="auto", choices=("auto", "theory", "estimated", "past"), text="source of the honest residuals' variance"
    )

    def suspicion(self, evidence: "contexts.Evidence", memory: "FloatArray") -> float:
        """Return the suspicion against a client after an upload, at least 0.

        `memory` (memory_size,) holds what is kept of this client, zeros at first, and is to be changed in place.
        """
        raise NotImplementedError


class Metric(Part):
    """Base of your own metrics. Lower must be better.

    Results, files, tables, charts and sweeps call it by :attr:`name`.

    Attributes
    ----------
    title : str
        What tables and charts call it; the name in words by default.
    unit : str
        "1" for a number without unit.
    in_decibels : bool
        Whether tables and charts show 10 log₁₀ of it; it must not be negative then.

    Examples
    --------
    >>> import numpy as np
    >>> class WorstHonest(Metric):
    ...     def measure(self, state):
    ...         return np.max(state.errors[~state.is_byzantine] ** 2)
    >>> WorstHonest().name
    'worst_honest'
    """

    title: ClassVar[str] = ""
    unit: ClassVar[str] = "1"
    in_decibels: ClassVar[bool] = True
    methods: ClassVar[tuple[str, ...]] = ("measure",)

    @property
    def name(self) -> str:
        """Its name in results: the kind with underscores."""
        return self.kind.replace("-", "_")

    def measure(self, state: "contexts.TrialState") -> float:
        """Return the metric of one trial in one iteration; the steady state is its mean over the tail."""
        raise NotImplementedError
