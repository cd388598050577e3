"""Several groups of Byzantine clients, each with its own attack."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

from psofed.common.errors import InvalidValueError
from psofed.common.options import option
from psofed.parts.base import Attack

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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

    @property
    def has_names(self) -> bool:
        """Whether some clients are named instead of numbered; then only your own data can tell who they are."""
        return any(isinstance(client, str) for attack in self.groups for client in attack.clients)

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
