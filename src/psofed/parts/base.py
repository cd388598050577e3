"""Base classes of the families of parts, and what the engine expects of each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from psofed.common.errors import InvalidValueError, MissingValueError
from psofed.common.options import option, option_of
from psofed.common.validation import check_integer
from psofed.parts.part import Part, takes_memory
from psofed.parts.traffic import BITS_PER_NUMBER

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from psofed.common.types import FloatArray
    from psofed.parts import contexts
    from psofed.parts.affine import LinearLearner, LinearUpdate, Statement
    from psofed.parts.features import FeatureMap
    from psofed.parts.traffic import Exchange, Traffic
    from psofed.scenario import Scenario


class Attack(Part):
    """Poisoning by Byzantine clients, each time with some probability.

    An attack changes what is uploaded, number by number with :meth:`corrupt` or as vectors with :meth:`craft`, or what
    is learned from, with :meth:`poison`: it has one of the three. With :meth:`memory_size` it keeps numbers for each
    client, which ``corrupt(self, upload, memory)`` and ``poison(self, sample, memory)`` take as another argument, and
    which :meth:`remember` may change after every local step.

    Parameters
    ----------
    num_byzantine : int
        |S_B|: the number of Byzantine clients. They are clients 0 … num_byzantine − 1, as in the paper, unless
        `clients` names them.
    clients : sequence of int or str
        The Byzantine clients: numbers, or names in your own data. Then `num_byzantine` may be omitted.
    probability : float
        p_a: probability that a participating Byzantine client attacks in an iteration.
    byzantine_set : str
        ``"fixed"``, or ``"redrawn"``: `num_byzantine` clients are drawn in each iteration.

    Attributes
    ----------
    knows : str
        What an attacker sees besides its own upload, and so what :meth:`corrupt` is shown: ``"upload"``,
        ``"server"``, ``"accomplices"`` or ``"everyone"`` (see :mod:`psofed.parts.contexts`).
    not_affine_because : str
        Why :meth:`affine` states nothing, for whoever asks for a prediction.
    """

    methods: ClassVar[tuple[str, ...]] = ("corrupt", "craft", "poison")
    knows: ClassVar[str] = "upload"
    not_affine_because: ClassVar[str] = "it does not state its moments"

    num_byzantine: int = option(  # type: ignore[assignment]  # default: the length of `clients`
        default=None, low=0, text="|S_B|: number of Byzantine clients", label="Byzantine clients"
    )
    clients: Sequence[int | str] = option(
        default=(),
        text="which clients are Byzantine: numbers, or names in your own data",
        label="or which clients",
    )
    probability: float = option(
        default=0.2,
        low=0.0,
        high=1.0,
        text="p_a: probability that a participating Byzantine client attacks",
        label="attack probability",
    )
    byzantine_set: str = option(
        default="fixed",
        choices=("fixed", "redrawn"),
        text="same Byzantine clients throughout, or redrawn",
        label="Byzantine clients are",
        words=("always the same", "redrawn"),
    )

    def __post_init__(self) -> None:
        names = _check_clients(self.clients)
        object.__setattr__(self, "clients", names)
        given: int | None = self.num_byzantine
        if given is None:
            if not names:
                raise MissingValueError(
                    "attack.num_byzantine", "how many clients attack; or name them in attack.clients"
                )
            object.__setattr__(self, "num_byzantine", len(names))
        super().__post_init__()
        if names and self.num_byzantine != len(names):
            raise InvalidValueError(
                "attack.num_byzantine", self.num_byzantine, f"{len(names)}, the number of attack.clients"
            )
        if names and self.byzantine_set == "redrawn":
            raise InvalidValueError(
                "attack.clients", list(names), 'empty with attack.byzantine_set = "redrawn"'
            )

    def corrupt(self, upload: Any, *args: Any, **kwargs: Any) -> float:
        """Return the number that arrives instead of ``upload.value``; NaN for one that is not sent.

        What `upload` is follows from :attr:`knows`.
        """
        raise NotImplementedError

    def remember(self, moment: "contexts.Moment", memory: "FloatArray") -> None:
        """Change the memory of a Byzantine client after its local step, in every iteration."""
        raise NotImplementedError

    def memory_size(self, dimension: int) -> int:
        """Return how many numbers are kept for each client, zeros at first."""
        return 0

    def craft(self, conspiracy: "contexts.Conspiracy", out: "FloatArray") -> None:
        """Write the updates that arrive instead of the attackers' into ``out`` (A, E), which holds the honest ones.

        Of each row, the entries that the attacker shares are sent. It is called where somebody attacks and, if
        :meth:`group_memory_size` is not 0, in every other iteration too, with A = 0.
        """
        raise NotImplementedError

    def group_memory_size(self, num_clients: int, dimension: int) -> int:
        """Return how many numbers :meth:`craft` keeps for the whole group from iteration to iteration."""
        return 0

    def strengths(self) -> tuple[float, ...]:
        """Return the strengths that attackers try against the server's rule in every iteration; empty: no search.

        They use the one that takes the server's next model farthest from what the mean of the honest uploads would make
        it.
        """
        return ()

    def poison(self, sample: "contexts.Sample", *args: Any, **kwargs: Any) -> "tuple[FloatArray, float]":
        """Return the inputs and the label that an attacker learns from instead of the sample's."""
        raise NotImplementedError

    def affine(self) -> "Statement | None":
        """State that what arrives, or is learned from, is affine in the models, for exact theory; None if it is not."""
        return None

    @property
    def strength(self) -> float:
        """Value of the option that sets the attack's strength."""
        value: float = getattr(self, self.strength_field())
        return value

    @classmethod
    def strength_field(cls) -> str:
        """Return the name of the field that ``attack.strength`` addresses: `probability` if none is marked."""
        marked = [name for name, field in cls.options().items() if option_of(field).strength]
        return marked[-1] if marked else "probability"

    @classmethod
    def poisons_samples(cls) -> bool:
        """Tell whether it changes the samples that clients learn from, instead of their uploads."""
        return cls.poison is not Attack.poison

    @classmethod
    def remembers_models(cls) -> bool:
        """Tell whether it sees its clients' models after every local step."""
        return cls.remember is not Attack.remember

    @classmethod
    def crafts_vectors(cls) -> bool:
        """Tell whether it changes uploads as vectors, instead of entry by entry."""
        return cls.craft is not Attack.craft

    @property
    def is_idle(self) -> bool:
        """Whether it has no effect: no Byzantine clients, or probability 0."""
        return self.num_byzantine == 0 or self.probability == 0.0

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some options changed; `clients` and `num_byzantine` replace each other."""
        if "clients" in changes and "num_byzantine" not in changes:
            changes["num_byzantine"] = None
        elif "num_byzantine" in changes and "clients" not in changes and self.clients:
            changes["clients"] = ()
        return super().replace(**changes)

    def to_mapping(self) -> dict[str, Any]:
        """Return the kind and the options as in TOML."""
        plain = super().to_mapping()
        plain.pop("num_byzantine" if self.clients else "clients")
        return plain

    def byzantine_mask(self, num_clients: int, names: Sequence[str] = ()) -> "NDArray[np.bool_]":
        """Return who is Byzantine where the set is fixed, shape (K,).

        Parameters
        ----------
        num_clients : int
            K.
        names : sequence of str
            The clients' names, where they have some.
        """
        import numpy as np

        if not self.clients:
            return np.arange(num_clients) < self.num_byzantine
        mask = np.zeros(num_clients, np.bool_)
        for client in self.clients:
            number = _number_of(client, num_clients, names)
            if mask[number]:
                raise InvalidValueError(
                    "attack.clients", client, f"a list of different clients (client {number} is named twice)"
                )
            mask[number] = True
        return mask

    def byzantine_moments(self, num_clients: int, names: Sequence[str] = ()) -> "tuple[FloatArray, float]":
        """Return the probability of each client to be Byzantine, shape (K,), and a factor for pairs.

        Two different clients k, l are both Byzantine with probability factor · β_k β_l, where β are the first (and for
        a fixed set β is 0 or 1, and the factor 1).
        """
        import numpy as np

        if self.byzantine_set == "fixed":
            return self.byzantine_mask(num_clients, names).astype(np.float64), 1.0
        chance = self.num_byzantine / num_clients
        pair = chance * (self.num_byzantine - 1) / max(num_clients - 1, 1)
        return np.full(num_clients, chance), pair / chance**2 if chance else 1.0


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
        (E,); or, faster, takes a second argument `out` and writes the change into it.
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
        """Whether :meth:`combine` writes its change into a second argument, instead of returning it."""
        return cls.over == "vectors" and cls.combine.__code__.co_argcount > 2

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
        on the way; or ``"auto"``, theory where it covers the scenario.

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
        choices=("auto", "theory", "estimated"),
        text="source of the honest residuals' variance",
    )

    def suspicion(self, evidence: "contexts.Evidence", memory: "FloatArray") -> float:
        """Return the suspicion against a client after an upload, at least 0.

        `memory` (memory_size,) holds what is kept of this client, zeros at first, and is to be changed in place.
        """
        raise NotImplementedError


class Pattern(Part):
    """Which M of the D entries a client shares in an iteration.

    A pattern with a memory, ``select(self, mask, memory, out)`` and :meth:`memory_size`, chooses for every client after
    its local step and sees its model. :meth:`remember` may change the memory whenever the client has shared entries.
    """

    table: ClassVar[str] = "selection"
    methods: ClassVar[tuple[str, ...]] = ("select",)

    def select(self, mask: "contexts.Mask", *args: Any, **kwargs: Any) -> None:
        """Write M different entries from 0 to D − 1 into ``out`` (M,), the last argument."""
        raise NotImplementedError

    def memory_size(self, dimension: int) -> int:
        """Return how many numbers are kept for each client, zeros at first."""
        return 0

    def remember(self, shared: "contexts.Shared", memory: "FloatArray") -> None:
        """Change the memory of a client that has just downloaded or uploaded entries."""

    @classmethod
    def has_memory(cls) -> bool:
        """Tell whether masks depend on the clients' models and on what is remembered of them."""
        return takes_memory(cls.select)

    def mask_moments(self, dimension: int, num_shared: int) -> "tuple[float, float | FloatArray] | None":
        """Return E[S(i)], alike in all entries, and E[S(i) S(j)], of masks independent over time; else None.

        The second is a number where it is the same for all i ≠ j, else a matrix (D, D).
        """
        return None

    def mask_period(self, dimension: int, num_shared: int) -> int | None:
        """Return the period of a moving window of M neighbouring entries, in iterations; None for other patterns."""
        return None


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
    """The local step of a client: from its model v after the download, with e = y − vᵀx on a sample (x, y).

    A learner has one of two methods. With :meth:`gain` it steps along the input, v ← a v + g x, where a is
    :meth:`keep` and the engine does the rest for many trials at once. With :meth:`learn` it writes any change of v, and
    may keep a memory.
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

    @classmethod
    def steps_along_input(cls) -> bool:
        """Whether it has :meth:`gain` instead of :meth:`learn`."""
        return cls.gain is not Learner.gain


class InputStream(Part):
    """Where the inputs of the clients come from.

    The engine draws standard normal numbers for every client and iteration, and :meth:`draw` makes an input of them and
    of what it remembers.
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


class Algorithm(Part):
    """An algorithm: what clients and server exchange, and what it costs.

    Where clients hold no model (all algorithms but PSO-Fed), only the server has a model w_n. In an iteration with
    an exchange each participant k receives w_n and forms its LMS update u_k = μ x_k e_k, e_k = y_k − w_nᵀx_k. Then

        encode   u_k → the numbers that k sends
        attack   changes them, if k is Byzantine
        decode   what the server reads out of them: from each client's numbers, or once from all clients' joined
        join     the scenario's aggregation rule, the mean unless said otherwise
        apply    what is joined → the change of w_n

    An :class:`Exchange` may ask for momenta: clients then encode theirs in the place of u_k, and the rule joins those
    that the server has of all K clients.

    Attributes
    ----------
    holds_models : bool
        Whether clients hold models; only the engine can run such an algorithm.
    """

    table: ClassVar[str] = "algorithm_options"
    methods: ClassVar[tuple[str, ...]] = ("traffic",)
    also_needs: ClassVar[tuple[str, ...]] = ("exchange", "encode")
    holds_models: ClassVar[bool] = False

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
        """Return the cost and the frequency of exchanges."""
        raise NotImplementedError

    def exchange(self, scenario: "Scenario") -> "Exchange":
        """Return the values and random numbers that an exchange needs."""
        raise NotImplementedError

    def encode(self, message: "contexts.Message", out: "FloatArray") -> None:
        """Write the numbers that a participant sends into ``out`` (N,)."""
        raise NotImplementedError

    def decode(self, received: "contexts.Received", out: "FloatArray") -> None:
        """Write the decoded update into ``out`` (D,); without this method values are combined as they are."""
        raise NotImplementedError

    def apply(self, received: "contexts.Received", memory: "FloatArray", out: "FloatArray") -> None:
        """Write the change of w_n into ``out`` (D,); without this method the combined value is the change."""
        for i in range(out.size):
            out[i] = received.numbers[i]

    def linear_update(self, scenario: "Scenario") -> "LinearUpdate | None":
        """State the exchange's effect under the mean, for exact theory; None if it is not linear."""
        return None

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

    @classmethod
    def decodes(cls) -> bool:
        """Tell whether it decodes updates, before or after they are combined."""
        return cls.decode is not Algorithm.decode


def _check_clients(clients: Any) -> tuple[int | str, ...]:
    allowed = "distinct client numbers or names, for example [3, 7]"
    if isinstance(clients, str | bytes) or not hasattr(clients, "__iter__"):
        raise InvalidValueError("attack.clients", clients, allowed)
    checked: list[int | str] = []
    for place, client in enumerate(clients):
        if not isinstance(client, str):
            client = check_integer(f"attack.clients[{place}]", client, 0)
        checked.append(client)
    if len(set(checked)) < len(checked):
        raise InvalidValueError("attack.clients", list(clients), allowed)
    return tuple(checked)


def _number_of(client: int | str, num_clients: int, names: Sequence[str]) -> int:
    if isinstance(client, str):
        if client not in names:
            allowed = (
                f"one of {', '.join(names[:20])}"
                if names
                else "a number, because these clients have no names"
            )
            raise InvalidValueError("attack.clients", client, allowed)
        return list(names).index(client)
    return check_integer("attack.clients", client, 0, num_clients - 1, "num_clients - 1")
