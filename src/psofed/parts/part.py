"""The base class of parts: frozen, validated values with a name."""

import dataclasses
import re
from collections import namedtuple
from collections.abc import Mapping
from typing import Any, ClassVar, Self, dataclass_transform

from psofed.common.errors import InvalidValueError, UnknownFieldError
from psofed.common.validation import names_its_arguments
from psofed.parts.options import Options, check_option, option


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Part:
    """Base class of all parts. Subclasses are frozen dataclasses with keyword arguments; their fields are options.

    Attributes
    ----------
    family : str
        What it is a part of a scenario as: ``"attack"``, ``"aggregation"``, ….
    table : str
        Where its options stand in TOML, for messages.
    kind : str
        Its name in TOML and on the command line; the class's name in kebab-case unless given.
    """

    family: ClassVar[str] = ""
    table: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    Fields: ClassVar[Any] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        names_its_arguments(dataclasses.dataclass(frozen=True, kw_only=True)(cls))
        if "kind" not in cls.__dict__:
            cls.kind = kebab_case(cls.__name__)
        # What compiled bodies take for `self`; it can be imported by name, as Numba's cache on disk wants it.
        fields: Any = namedtuple("Fields", list(cls.options()))  # type: ignore[misc]
        fields.__module__, fields.__qualname__ = cls.__module__, f"{cls.__qualname__}.Fields"
        cls.Fields = fields
        if cls.family and Part not in cls.__bases__:
            from psofed.parts.registry import register

            register(cls)

    def __post_init__(self) -> None:
        if type(self).family and Part in type(self).__bases__:
            name, family = type(self).__name__, type(self).family
            raise TypeError(
                f"psofed.{name} is the base class of every {family}; use one of its subclasses or define your own"
            )
        for field in self.options().values():
            value = check_option(f"{self.table}.{field.name}", field, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    @classmethod
    def options(cls) -> Options:
        """Return the fields of this kind by name (see :mod:`psofed.parts.options`)."""
        return {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def summary(cls) -> str:
        """Return the first sentence of its documentation, for tables."""
        return (cls.__doc__ or "").strip().split("\n")[0]

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Make the part from a mapping of its options, as in TOML."""
        known = cls.options()
        for name, value in values.items():
            if name not in known:
                cls._refuse(name, value)
        for name, field in known.items():
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            if required and name not in values:
                raise InvalidValueError(
                    f"{cls.table}.{name}", None, "a value must be given, it has no default"
                )
        return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """Return a mapping of its options, as in TOML; options that are None are omitted."""
        plain = {name: getattr(self, name) for name in self.options()}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in plain.items()
            if value is not None
        }

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with some options changed."""
        copy: Self = dataclasses.replace(self, **changes)  # type: ignore[type-var]
        return copy

    @classmethod
    def _refuse(cls, name: str, value: Any) -> None:
        from psofed.parts.registry import find_part, part_names

        field, known = f"{cls.table}.{name}", cls.options()
        elsewhere = (find_part(cls.family, other).options() for other in part_names(cls.family))
        if any(name in options for options in elsewhere):
            reads = ", ".join(cls.own_options()) or "no options"
            allowed = f'no value, since "{cls.kind}" does not read it; it reads {reads}'
            raise InvalidValueError(field, value, allowed)
        raise UnknownFieldError(field, tuple(known))

    @classmethod
    def own_options(cls) -> Options:
        """Return the fields that are specific to this kind."""
        base: Any = next(parent for parent in cls.__mro__ if Part in parent.__bases__)
        common = base.options()
        return {name: field for name, field in cls.options().items() if name not in common}


def kebab_case(name: str) -> str:
    """Return the kind of a class name: ``LittleIsEnough`` is ``"little-is-enough"``.

    Examples
    --------
    >>> kebab_case("ScaledUpdate"), kebab_case("RandomWalk2")
    ('scaled-update', 'random-walk2')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()
