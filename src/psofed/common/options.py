"""Declare settings: each is a dataclass field with its range, its meaning and its place on the command line.

A part, a scenario, the way data is read or a run proceeds: all are values whose fields are declared with
:func:`option`::

    class Alternating(Attack):
        size: float = option(default=1.0, low=0.0, text="how far each number is pushed")

The annotation says what a field holds: ``int``, ``float``, ``bool``, ``str`` (with `choices`), ``Path``,
``Sequence[str]`` or ``Sequence[Path]`` (kept as a tuple), or one of these ``| None``. Fields of other types bring
their own `check`.
:class:`psofed.common.settings.Settings` checks every field when a value is made.
"""

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, TypeVar, overload

from psofed.common.errors import InvalidValueError
from psofed.common.validation import check_boolean, check_choice, check_integer, check_number, describe_range

_METADATA = "psofed option"

Check = Callable[[str, Any], Any]
Completion = Callable[[str], Iterable[str]]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Option:
    """The declaration of one setting.

    Attributes
    ----------
    text : str
        Its meaning, in a few words that start in lower case and end without a full stop.
    low, high : float, or str
        Allowed range, ends included unless `open_low` or `open_high`. A `high` that is a name refers to another field
        of the same value: ``high="dimension"``.
    choices : tuple of str
        Allowed words.
    check : callable, optional
        Replaces the check by type and range: ``check(name, value)`` returns the clean value.
    strength : bool
        Whether ``attack.strength`` addresses it.
    flag : str, or None
        Its option on the command line, if that is not ``--`` and the field's name; None keeps it off the command line.
    metavar : str
        Placeholder for its value in ``--help``.
    positional : bool
        Whether the command line takes it as an argument instead of an option.
    repeat : bool
        Whether a tuple is given by repeating the option, instead of separating values by commas.
    group : str
        Heading in ``--help`` or in the explorer, if it is not that of its class.
    complete : callable, optional
        Completion in the shell: candidates for an incomplete word.
    label : str
        What charts and the explorer call it, if that is not its name.
    slider : tuple of float, optional
        Usual ends of its slider in the explorer, if these are not its range.
    log : bool
        Whether the slider is logarithmic.
    words : tuple of str
        What the explorer calls each of its `choices`, or true and false.
    absent : str
        What the explorer calls None.
    """

    text: str = ""
    low: float = -math.inf
    high: float | str = math.inf
    open_low: bool = False
    open_high: bool = False
    choices: tuple[str, ...] = ()
    check: Check | None = None
    strength: bool = False
    flag: str | None = ""
    metavar: str = ""
    positional: bool = False
    repeat: bool = False
    group: str = ""
    complete: Completion | None = None
    label: str = ""
    slider: tuple[float, float] | None = None
    log: bool = False
    words: tuple[str, ...] = ()
    absent: str = "none"


# Type checkers recognise a default only by its name, so pass it by name.
@overload
def option(*, default: T, kw_only: bool = ..., **declared: Any) -> T: ...
@overload
def option(*, default_factory: Callable[[], T], kw_only: bool = ..., **declared: Any) -> T: ...
@overload
def option(*, kw_only: bool = ..., **declared: Any) -> Any: ...
def option(default: Any = MISSING, *, default_factory: Any = MISSING, kw_only: Any = MISSING, **declared: Any) -> Any:
    """Declare a setting; without a `default` it is required. See :class:`Option` for the other arguments.

    Pass the default by keyword: type checkers do not see a positional one.

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
    psofed.common.errors.InvalidValueError: attack.size must be at least 0; got -1.
    """
    field: Any = dataclasses.field  # its overloads allow one kind of default at a time
    metadata = {_METADATA: Option(**declared)}
    return field(default=default, default_factory=default_factory, kw_only=kw_only, metadata=metadata)


def option_of(field: "dataclasses.Field[Any]") -> Option:
    """Return the declaration of a field; an empty one if it was declared without :func:`option`."""
    about: Option = field.metadata.get(_METADATA, _PLAIN)
    return about


def is_required(field: "dataclasses.Field[Any]") -> bool:
    """Whether a field has no default."""
    return field.default is MISSING and field.default_factory is MISSING


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """Return the default of a field that has one."""
    return field.default_factory() if callable(field.default_factory) else field.default


def check_option(name: str, field: "dataclasses.Field[Any]", value: Any, owner: Any = None) -> Any:
    """Return a clean `value` for a field, or raise an error that calls it `name`.

    Parameters
    ----------
    name : str
        What the error calls the setting.
    field : dataclasses.Field
        The setting.
    value : object
        The value to check.
    owner : object, optional
        The value that the field belongs to, for ranges that end at another field.
    """
    about, (kind, optional) = option_of(field), value_type(field)
    if value is None and optional:
        return None
    if about.check is not None:
        return about.check(name, value)
    return _check_type(name, about, kind, value, owner)


def value_type(field: "dataclasses.Field[Any]") -> tuple[str, bool]:
    """Return the name of a field's type (``"int"``, ``"float"``, …; the first of several) and whether it may be None.

    Examples
    --------
    >>> from psofed.parts.attacks import Gaussian
    >>> value_type(Gaussian.options()["variance"])
    ('float', False)
    """
    text = re.sub(r"\b(\w+\.)+", "", str(field.type.__name__ if isinstance(field.type, type) else field.type))
    kind, first = text.removesuffix(" | None"), text.partition(" | ")[0]
    return kind if "[" in first else first, kind != text


def describe(field: "dataclasses.Field[Any]") -> str:
    """Return the values that a field accepts, for tables and messages.

    Examples
    --------
    >>> from psofed.parts.attacks import Gaussian
    >>> describe(Gaussian.options()["variance"])
    'number, at least 0'
    """
    about, (kind, _) = option_of(field), value_type(field)
    if about.choices:
        return " or ".join(f'"{choice}"' for choice in about.choices)
    words = _KINDS.get(kind, "list" if "[" in kind else kind)
    if isinstance(about.high, str):
        return f"{words}, {about.low:g} to {about.high}"
    limits = describe_range(about.low, about.high, about.open_low, about.open_high).removeprefix("of ")
    return f"{words}, {limits}" if limits else words


def in_words(field: "dataclasses.Field[Any]") -> str:
    """Return the values that a field accepts, to follow *must be*: ``an integer of at least 1``."""
    words, (kind, _) = describe(field), value_type(field)
    if option_of(field).choices or kind not in ("int", "float", "str", "Path", "Uniform"):
        return words
    if kind == "Uniform":
        limits = words.partition(", ")[2]
        return f"one number {limits}, such a number per client, or {{uniform = [low, high]}}"
    return f"{'an' if kind == 'int' else 'a'} {words}".replace(", ", " of " if "least" in words else " ", 1)


def _check_type(name: str, about: Option, kind: str, value: Any, owner: Any) -> Any:
    if about.choices:
        return check_choice(name, value, about.choices)
    if kind == "bool":
        return check_boolean(name, value)
    if kind in ("int", "float"):
        bound = about.high if isinstance(about.high, str) else ""
        high = float(getattr(owner, bound)) if bound else float(about.high)
        if kind == "float":
            return check_number(name, value, about.low, high, open_low=about.open_low, open_high=about.open_high)
        low = -(2**63) if math.isinf(about.low) else math.ceil(about.low)
        return check_integer(name, value, low, None if math.isinf(high) else math.floor(high), bound)
    if kind == "str" and not isinstance(value, str):
        raise InvalidValueError(name, value, "a word")
    if kind == "Path":
        if not isinstance(value, str | Path):
            raise InvalidValueError(name, value, "a path")
        return Path(value)
    if kind in ("Sequence[str]", "Sequence[Path]"):
        of_paths = kind == "Sequence[Path]"
        is_list = isinstance(value, Iterable) and not isinstance(value, str)
        if not is_list or not all(isinstance(e, str | Path if of_paths else str) for e in value):
            example = f", such as [{str(value)!r}]" if isinstance(value, str | Path) else ""
            raise InvalidValueError(name, value, f"a list of {'paths' if of_paths else 'words'}{example}")
        return tuple(map(Path, value)) if of_paths else tuple(value)
    return value


_PLAIN = Option()
_KINDS = {
    "float": "number",
    "int": "integer",
    "bool": "true or false",
    "str": "word",
    "Path": "path",
    "Sequence[str]": "words",
    "Sequence[Path]": "paths",
    "Uniform": "number or numbers",
}

Options = Mapping[str, "dataclasses.Field[Any]"]
