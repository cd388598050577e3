"""Options: the fields of a part, each with its range and one line of documentation.

A part is a dataclass, and its fields are its options::

    class Alternating(Attack):
        size: float = option(default=1.0, low=0.0, text="how far each number is pushed")

What a field may hold follows from its annotation: ``int``, ``float``, ``bool``, ``str`` (with `choices`), or one of
these ``| None``.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from typing import Any, TypeVar, overload

from psofed.common.errors import InvalidValueError
from psofed.common.validation import check_boolean, check_choice, check_integer, check_number

_METADATA = "psofed option"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Option:
    """What is known of one field of a part.

    Attributes
    ----------
    text : str
        What it means, in a few words.
    low, high : float
        Allowed range, ends included unless `open_low` or `open_high`.
    choices : tuple of str
        Allowed words, for an option that is one.
    strength : bool
        Whether it is what ``attack.strength`` addresses.
    """

    text: str = ""
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    choices: tuple[str, ...] = ()
    strength: bool = False


# To type checkers a field has a default only where it is named, so that is how it is to be given.
@overload
def option(
    *,
    default: T,
    text: str = "",
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    choices: tuple[str, ...] = (),
    strength: bool = False,
) -> T: ...
@overload
def option(
    *,
    text: str = "",
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    choices: tuple[str, ...] = (),
    strength: bool = False,
) -> Any: ...
def option(
    default: Any = MISSING,
    *,
    text: str = "",
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
    choices: tuple[str, ...] = (),
    strength: bool = False,
) -> Any:
    """Declare a field of a part; without a `default` it must be given. See :class:`Option`.

    The default may be given without its name, but type checkers then take it for none.

    Examples
    --------
    >>> from psofed.parts import Attack
    >>> class Pushing(Attack):
    ...     '''Adds a constant.'''
    ...     size: float = option(default=1.0, low=0.0, text="how far each number is pushed", strength=True)
    ...     def corrupt(self, upload):
    ...         return upload.value + self.size
    >>> Pushing(num_byzantine=1, size=-1)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: attack.size = -1 is not allowed; allowed: a finite number at least 0
    """
    about = Option(
        text=text, low=low, high=high, open_low=open_low, open_high=open_high, choices=choices,
        strength=strength,
    )  # fmt: skip
    return dataclasses.field(default=default, metadata={_METADATA: about})


def option_of(field: "dataclasses.Field[Any]") -> Option:
    """Return what was said of a field; nothing in particular if it was declared without :func:`option`."""
    about: Option = field.metadata.get(_METADATA, _PLAIN)
    return about


def check_option(name: str, field: "dataclasses.Field[Any]", value: Any) -> Any:
    """Return a clean `value` for a field, or raise an error that calls it `name`."""
    about, (kind, optional) = option_of(field), value_type(field)
    if value is None and optional:
        return None
    if about.choices:
        return check_choice(name, value, about.choices)
    if kind == "bool":
        return check_boolean(name, value)
    if kind == "int":
        low = -(2**63) if math.isinf(about.low) else math.ceil(about.low)
        return check_integer(name, value, low, None if math.isinf(about.high) else math.floor(about.high))
    if kind == "float":
        return check_number(
            name, value, about.low, about.high, open_low=about.open_low, open_high=about.open_high
        )
    if kind == "str" and not isinstance(value, str):
        raise InvalidValueError(name, value, "a word")
    return value


def value_type(field: "dataclasses.Field[Any]") -> tuple[str, bool]:
    """Return the name of a field's type (``"int"``, ``"float"``, …) and whether it may be None.

    Examples
    --------
    >>> from psofed.parts.attacks import Gaussian
    >>> value_type(Gaussian.options()["variance"])
    ('float', False)
    """
    text = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
    if not isinstance(field.type, str) and not isinstance(field.type, type):
        text = str(field.type)  # int | None, and other generics
    parts = [part.strip() for part in text.split("|")] if "[" not in text else [text]
    optional = "None" in parts
    return next((part for part in parts if part != "None"), "None"), optional


def describe(field: "dataclasses.Field[Any]") -> str:
    """Return what a field may hold, for tables and messages.

    Examples
    --------
    >>> from psofed.parts.attacks import Gaussian
    >>> describe(Gaussian.options()["variance"])
    'number, at least 0'
    """
    about, (kind, _) = option_of(field), value_type(field)
    if about.choices:
        return " or ".join(f'"{choice}"' for choice in about.choices)
    words = {"float": "number", "int": "integer", "bool": "true or false", "str": "word"}.get(kind, kind)
    low = "" if math.isinf(about.low) else f", {'above' if about.open_low else 'at least'} {about.low:g}"
    high = "" if math.isinf(about.high) else f", {'below' if about.open_high else 'at most'} {about.high:g}"
    return words + low + high


_PLAIN = Option()

Options = Mapping[str, "dataclasses.Field[Any]"]
