"""The attack on a fleet: who lies, how often, and how."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psofed.common.errors import UnknownFieldError
from psofed.common.validation import check_choice, check_integer, check_number
from psofed.parts.options import Options, OptionValue, declared_options, make_options
from psofed.parts.registry import part_names

BYZANTINE_SETS = ("fixed", "redrawn")
_FIELDS = ("num_byzantine", "kind", "probability", "byzantine_set")
_NO_OPTIONS = Options("", ())


@dataclass(frozen=True, init=False, repr=False)
class Attack:
    """Poisoning by Byzantine clients, each time with some probability.

    Parameters
    ----------
    num_byzantine : int
        |S_B|: how many clients are Byzantine.
    kind : str
        What a Byzantine client does, one of the parts in :mod:`psofed.parts.attacks`; ``"gaussian"`` adds noise to
        what it uploads.
    probability : float
        p_a: probability that a Byzantine client attacks in an iteration (if it participates at all).
    byzantine_set : str
        ``"fixed"``: clients 0 … num_byzantine − 1 are Byzantine, as in the paper. ``"redrawn"``: in each
        iteration a fresh choice of num_byzantine of the clients.
    **own : number or str
        Options of the kind, such as ``variance``, σ_B², of ``"gaussian"``. One that the kind does not read is
        refused.

    Examples
    --------
    >>> Attack(num_byzantine=15).variance
    0.5
    >>> Attack(num_byzantine=15, kind="sign-flip", scale=3)
    Attack(num_byzantine=15, kind='sign-flip', probability=0.2, byzantine_set='fixed', scale=3.0, of='update')
    >>> Attack(num_byzantine=15, kind="sign-flip", variance=0.5)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: attack.variance = 0.5 is not allowed; allowed: no value, since "sign-flip" \
does not read it; it reads scale, of
    """

    num_byzantine: int
    kind: str = "gaussian"
    probability: float = 0.2
    byzantine_set: str = "fixed"
    options: Options = _NO_OPTIONS

    def __init__(
        self,
        *,
        num_byzantine: int,
        kind: str = "gaussian",
        probability: float = 0.2,
        byzantine_set: str = "fixed",
        options: Mapping[str, OptionValue] = _NO_OPTIONS,
        **own: OptionValue,
    ) -> None:
        set_ = object.__setattr__
        set_(self, "num_byzantine", check_integer("attack.num_byzantine", num_byzantine, 0))
        set_(self, "kind", check_choice("attack.kind", kind, part_names("attacks")))
        set_(self, "probability", check_number("attack.probability", probability, 0, 1))
        set_(self, "byzantine_set", check_choice("attack.byzantine_set", byzantine_set, BYZANTINE_SETS))
        given = {**make_options("attacks", kind, options, "attack."), **own} if own else options
        try:
            set_(self, "options", make_options("attacks", kind, given, "attack."))
        except UnknownFieldError as error:
            raise UnknownFieldError(error.field, (*_FIELDS, *declared_options("attacks", kind))) from None

    def __getattr__(self, name: str) -> Any:
        # Only called for what is not a field: the kind's options read like fields, attack.variance.
        options = self.__dict__.get("options", {})
        if name in options:
            return options[name]
        raise AttributeError(f"this attack has no {name!r}; its options are {', '.join(options) or 'none'}")

    def __repr__(self) -> str:
        return f"Attack({', '.join(f'{name}={value!r}' for name, value in self.to_mapping().items())})"

    def to_mapping(self) -> dict[str, Any]:
        """Return fields and options side by side, as they stand in TOML."""
        return {**{name: getattr(self, name) for name in _FIELDS}, **self.options}
