"""Settings as values: frozen dataclasses that check themselves, and functions that take their fields as arguments."""

import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Concatenate, ParamSpec, Protocol, Self, TypeVar, dataclass_transform, overload

from psofed.common.errors import MissingArgumentError, PsofedError, UnknownArgumentError, UnknownFieldError
from psofed.common.options import Options, check_option, in_words, is_required, option, option_of, value_type
from psofed.common.per_client import plain_per_client


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Settings:
    """Base of values that hold settings.

    A subclass becomes a frozen dataclass. Making a value checks every field against its declaration; a subclass that
    relates fields to each other overrides ``__post_init__`` and calls ``super().__post_init__()`` first.

    Attributes
    ----------
    table : str
        Prefix of its fields in messages: the TOML table that holds them.
    group : str
        Heading of its options in ``--help``.
    advice : str
        What a message on an unknown field says; by default it suggests a similar one.

    Examples
    --------
    >>> class Pace(Settings):
    ...     '''How fast a run proceeds.'''
    ...     interval: float = option(default=0.0, low=0, text="seconds between the starts of two rounds")
    >>> Pace(interval=-1.0)
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: interval must be at least 0; got -1.0.
    >>> Pace(intervall=1.0)
    Traceback (most recent call last):
    psofed.common.errors.UnknownArgumentError: Unknown argument of Pace `intervall`. Did you mean `interval`?
    """

    table: ClassVar[str] = ""
    group: ClassVar[str] = ""
    advice: ClassVar[str] = ""

    def __init_subclass__(cls, *, kw_only: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _name_arguments(dataclasses.dataclass(frozen=True, kw_only=kw_only)(cls))

    def __post_init__(self) -> None:
        for name, field in self.options().items():
            value = check_option(self.full_name(name), field, getattr(self, name), self)
            object.__setattr__(self, name, value)

    @classmethod
    def options(cls) -> Options:
        """Return its fields by name (see :mod:`psofed.common.options`), those that may be positional first."""
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        return {field.name: field for field in sorted(fields, key=lambda field: bool(field.kw_only))}

    @classmethod
    def full_name(cls, field: str) -> str:
        """Return the name of a field in messages, with the table that holds it."""
        return f"{cls.table}.{field}" if cls.table else field

    @classmethod
    def summary(cls) -> str:
        """Return the first sentence of its documentation, for tables."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Make the value from its fields by name, as in TOML; unknown and missing ones are refused by name."""
        for name, value in values.items():
            if name not in cls.options():
                raise cls.unknown_field(name, value)
        return cls(**values)

    @classmethod
    def unknown_field(cls, name: str, value: Any) -> PsofedError:
        """Return the error that refuses a field that does not exist."""
        return UnknownFieldError(cls.full_name(name), tuple(cls.options()), hint=cls.advice)

    def to_mapping(self) -> dict[str, Any]:
        """Return its fields by name, as in TOML; fields that are None are left out."""
        values = {name: getattr(self, name) for name in self.options()}
        return {name: plain_per_client(value) for name, value in values.items() if value is not None}

    def shared_with(self, kind: type["S"]) -> "S":
        """Return settings of another kind with the fields that both have."""
        names = kind.options().keys() & self.options().keys()
        return kind(**{name: getattr(self, name) for name in names})

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed, checked like a new value."""
        copy: Self = dataclasses.replace(self, **changes)  # type: ignore[type-var]
        return copy


First = TypeVar("First")
Second = TypeVar("Second")
Third = TypeVar("Third")
S = TypeVar("S", bound=Settings)
R = TypeVar("R")
P = ParamSpec("P")


class SettingsFunction(Protocol[P]):
    """Decorates a function whose last argument is settings, so that it takes their fields as arguments."""

    @overload
    def __call__(self, function: Callable[[First, S], R], /) -> Callable[Concatenate[First, P], R]: ...
    @overload
    def __call__(self, function: Callable[[First, Second, S], R], /) -> Callable[Concatenate[First, Second, P], R]: ...
    @overload
    def __call__(
        self, function: Callable[[First, Second, Third, S], R], /
    ) -> Callable[Concatenate[First, Second, Third, P], R]: ...


def takes(settings: Callable[P, S]) -> SettingsFunction[P]:
    """Let a function whose last argument is settings take their fields as arguments.

    Type checkers, ``help()`` and :func:`inspect.signature` see the fields, with their types and defaults. Code that has
    a settings value calls :func:`call_with` instead.

    Examples
    --------
    >>> class Pace(Settings):
    ...     '''How fast a run proceeds.'''
    ...     interval: float = option(default=0.0, low=0, text="seconds between the starts of two rounds")
    >>> @takes(Pace)
    ... def describe(name: str, pace: Pace) -> str:
    ...     return f"{name}: {pace.interval}"
    >>> describe("slow", interval=2.0), call_with(describe, "fast", Pace(interval=0.5))
    ('slow: 2.0', 'fast: 0.5')
    >>> print(inspect.signature(describe))
    (name: str, *, interval: float = 0.0) -> str
    """

    def decorate(function: Callable[..., R]) -> Callable[..., R]:
        signature = inspect.signature(function)
        leading = list(signature.parameters.values())[:-1]
        fields = inspect.signature(settings).parameters
        names = tuple(fields)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> R:
            first = list(args[: len(leading)])
            for parameter in leading[len(first) :]:
                if parameter.name not in kwargs:
                    raise TypeError(f"{function.__name__}() needs the argument {parameter.name}")
                first.append(kwargs.pop(parameter.name))
            for name in kwargs:
                if name not in names:
                    # A scenario holds its clients: a table has no other way in.
                    is_table = name in ("data", "measured") and leading[0].name in ("scenario", "base")
                    hint = f"Make the scenario with psofed.Scenario.from_data({name}, …)." if is_table else ""
                    if name in ("metric", "metrics") and "metric" not in names:
                        hint = "Only psofed.simulate and psofed.sweep take metrics: the theory has its own."
                    what = f"argument of {function.__name__}()"
                    raise UnknownArgumentError(name, names, what, hint=hint)
            return function(*first, settings(*args[len(leading) :], **kwargs))

        call.__signature__ = signature.replace(parameters=[*leading, *fields.values()])  # type: ignore[attr-defined]
        call.__doc__ = _with_settings(function.__doc__ or "", settings)
        return call

    return decorate


def call_with(function: Callable[Concatenate[First, ...], R], first: First, settings: Settings) -> R:
    """Call a function that :func:`takes` decorates with a settings value."""
    plain: Callable[[First, Settings], R] = function.__wrapped__  # type: ignore[attr-defined]
    return plain(first, settings)


def document(settings: type[Settings]) -> str:
    """Return the entries of a docstring's *Parameters* section for the fields of some settings."""
    lines = []
    for name, field in settings.options().items():
        kind = field.type if isinstance(field.type, str) else getattr(field.type, "__name__", str(field.type))
        text = option_of(field).text
        lines += [f"{name} : {kind}", f"    {text[:1].upper()}{text[1:]}."]
    return "\n".join(lines)


def _with_settings(text: str, settings: Any) -> str:
    """Return a docstring whose *Parameters* section also lists the settings."""
    head, marker, tail = text.partition("\n    Returns\n")
    if not marker:
        return text
    return f"{head.rstrip()}\n{textwrap.indent(document(settings), '    ')}\n{marker}{tail}"


def _wanted(field: "dataclasses.Field[Any]") -> str:
    """Return what a required field should hold: its values, or what a word stands for."""
    return option_of(field).text if value_type(field)[0] == "str" else in_words(field)


def _name_arguments(cls: type[Settings]) -> None:
    """Have a dataclass refuse unknown and missing arguments by name, with a suggestion."""
    plain: Any = vars(cls)["__init__"]
    known = {name: field for name, field in cls.options().items() if field.init}
    positional = [name for name, field in known.items() if not field.kw_only]
    required = [name for name, field in known.items() if is_required(field)]

    @functools.wraps(plain)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        if type(self) is cls:
            for name in named:
                if name not in known:
                    raise UnknownArgumentError(name, tuple(known), f"argument of {cls.__name__}")
            if len(arguments) > len(positional):
                example = ", ".join(f"{name}=…" for name in sorted(known, key=lambda name: name not in required)[:2])
                raise TypeError(f"{cls.__name__} takes arguments by name: {cls.__name__}({example})")
            for name in required:
                if name not in named and name not in positional[: len(arguments)]:
                    raise MissingArgumentError(cls.full_name(name), _wanted(known[name]))
        plain(self, *arguments, **named)

    setattr(cls, "__init__", init)  # noqa: B010 - mypy rejects the assignment
