"""Base class of attacks (who attacks, how often, and what an attack may change), and groups of several attacks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from psofed.common.errors import InvalidValueError, MissingValueError
from psofed.common.options import option, option_of
from psofed.common.validation import check_integer
from psofed.parts.part import Part

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from psofed.common.types import FloatArray
    from psofed.parts import contexts
    from psofed.parts.affine import Statement


class Attack(Part):
    """Poisoning by Byzantine clients, each time with some probability.

    An attack has one of three methods: :meth:`corrupt` changes uploads value by value, :meth:`craft` as vectors, and
    :meth:`poison` the samples that are learned from. With :meth:`memory_size`, `corrupt` and `poison` take the client's
    memory as a further argument; :meth:`remember` may change it after every local step.

    Parameters
    ----------
    num_byzantine : int
        |S_B|: clients 0 … num_byzantine − 1 are Byzantine, as in the paper, unless `clients` names them.
    clients : sequence of int or str
        The Byzantine clients by number or, in your own data, by name; then `num_byzantine` may be omitted.
    probability : float
        p_a: probability that a participating Byzantine client attacks in an iteration.
    byzantine_set : str
        ``"fixed"``, or ``"redrawn"`` in each iteration.

    Attributes
    ----------
    knows : str
        What :meth:`corrupt` sees besides the own upload: ``"upload"`` (nothing), ``"server"``, ``"accomplices"`` or
        ``"everyone"``.
    not_affine_because : str
        Why :meth:`affine` states nothing, for whoever asks for a prediction.
    """

    methods: ClassVar[tuple[str, ...]] = ("corrupt", "craft", "poison")
    knows: ClassVar[str] = "upload"
    not_affine_because: ClassVar[str] = "it does not state its moments"

    num_byzantine: int = option(  # type: ignore[assignment]  # default: the length of `clients`
        default=None, low=0, text="number of Byzantine clients", label="Byzantine clients"
    )
    clients: Sequence[int | str] = option(
        default=(), text="which clients are Byzantine: numbers, or names in your own data", label="or which clients"
    )
    probability: float = option(
        default=0.2, low=0.0, high=1.0, text="chance that a Byzantine participant attacks", label="attack probability"
    )
    byzantine_set: str = option(
        default="fixed",
        choices=("fixed", "redrawn"),
        text="same Byzantine clients throughout, or redrawn",
        label="Byzantine clients are",
        words=("always the same", "redrawn"),
    )

    def __post_init__(self) -> None:
        field = "attack.num_byzantine"
        names = _check_clients(self.clients)
        object.__setattr__(self, "clients", names)
        given: int | None = self.num_byzantine
        if given is None:
            if not names:
                raise MissingValueError(field, "how many clients attack; or name them in attack.clients")
            object.__setattr__(self, "num_byzantine", len(names))
        super().__post_init__()
        if names and self.num_byzantine != len(names):
            raise InvalidValueError(field, self.num_byzantine, f"{len(names)}, the number of attack.clients")
        if names and self.byzantine_set == "redrawn":
            raise InvalidValueError("attack.clients", list(names), 'empty with attack.byzantine_set = "redrawn"')

    def corrupt(self, upload: Any, *args: Any, **kwargs: Any) -> float:
        """Return the value that arrives instead of ``upload.value``; NaN for one that is not sent."""
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


class AttackGroups(Attack):
    """Two or more groups of Byzantine clients that attack at the same time, ``[[attack]]`` in TOML.

    No client may belong to two groups. Each group draws its own random numbers. An attack that sees other uploads
    sees those that nobody has changed yet, and takes everybody outside of its group for honest.

    Parameters
    ----------
    groups : sequence of Attack
        The attacks.

    Examples
    --------
    >>> from psofed.parts.attacks import Gaussian, SignFlip
    >>> AttackGroups(groups=(Gaussian(clients=[0, 1]), SignFlip(clients=[2]))).num_byzantine
    3
    """

    family: ClassVar[str] = ""  # it is made of a list of attacks, and found under no name
    kind: ClassVar[str] = "groups"
    not_affine_because: ClassVar[str] = "several groups attack"

    groups: tuple[Attack, ...] = option(text="the attacks of the groups", check=lambda name, value: tuple(value))

    def __post_init__(self) -> None:
        for place, attack in enumerate(self.groups):
            if attack.byzantine_set == "redrawn":
                allowed = '"fixed" where several groups attack, since no client may belong to two'
                raise InvalidValueError(f"attack[{place}].byzantine_set", "redrawn", allowed)
        object.__setattr__(self, "num_byzantine", sum(attack.num_byzantine for attack in self.groups))
        super().__post_init__()

    @property
    def is_idle(self) -> bool:
        """Whether no group ever attacks."""
        return all(attack.is_idle for attack in self.groups)

    def byzantine_mask(self, num_clients: int, names: Sequence[str] = ()) -> "NDArray[np.bool_]":
        """Return who is Byzantine, shape (K,); refuse clients that two groups claim."""
        import numpy as np

        whose = np.full(num_clients, -1)
        for place, attack in enumerate(self.groups):
            mask = attack.byzantine_mask(num_clients, names)
            taken = np.flatnonzero(mask & (whose >= 0))
            if taken.size:
                field = f"attack[{place}].{'clients' if attack.clients else 'num_byzantine'}"
                value = list(attack.clients) if attack.clients else attack.num_byzantine
                allowed = (
                    f"clients that no other group has (client {taken[0]} belongs to attack[{whose[taken[0]]}]); name "
                    "the clients of each group in `clients`"
                )
                raise InvalidValueError(field, value, allowed)
            whose[mask] = place
        return whose >= 0

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed; only the groups themselves can be."""
        if set(changes) - {"groups"}:
            name = sorted(set(changes) - {"groups"})[0]
            raise InvalidValueError(f"attack.{name}", changes[name], "set in each group of attackers")
        return type(self)(groups=changes.get("groups", self.groups))

    def to_mapping(self) -> Any:
        """Return a list of the groups as in TOML."""
        return [attack.to_mapping() for attack in self.groups]


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
            allowed = f"one of {', '.join(names[:20])}" if names else "a number, because these clients have no names"
            raise InvalidValueError("attack.clients", client, allowed)
        return list(names).index(client)
    return check_integer("attack.clients", client, 0, num_clients - 1, "num_clients - 1")
