"""Define a part: a frozen, checked value with a name, which every package accepts."""

import re
from collections import namedtuple
from collections.abc import Callable
from typing import Any, ClassVar, dataclass_transform

from psofed.common.errors import InvalidValueError, PsofedError
from psofed.common.options import Options, option
from psofed.common.settings import Settings


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
class Part(Settings):
    """Base of all parts. A subclass is a frozen dataclass with keyword arguments; its fields are its options.

    Attributes
    ----------
    family : str
        Its role in a scenario: ``"attack"``, ``"aggregation"``, …; the base class's name in snake_case unless given.
    table : str
        The TOML table that holds its options; the family unless given.
    kind : str
        Its name in TOML and on the command line; the class's name in kebab-case unless given.
    methods, also_needs : tuple of str
        Methods of which every part of the family has at least one, and others that it must have. A class without them
        is refused when it is made, unless its name begins with an underscore, which marks a custom base class.
    """

    family: ClassVar[str] = ""
    table: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    methods: ClassVar[tuple[str, ...]] = ()
    also_needs: ClassVar[tuple[str, ...]] = ()
    Fields: ClassVar[Any] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Part in cls.__bases__:
            cls.family = cls.family or kebab_case(cls.__name__).replace("-", "_")
            cls.table = cls.table or cls.family
        if "kind" not in cls.__dict__:
            cls.kind = kebab_case(cls.__name__)
        # Compiled bodies take this for `self`. Numba's cache on disk requires that it can be imported by name.
        fields: Any = namedtuple("Fields", list(cls.options()))  # type: ignore[misc]
        fields.__module__, fields.__qualname__ = cls.__module__, f"{cls.__qualname__}.Fields"
        cls.Fields = fields
        if cls.family and Part not in cls.__bases__ and not cls.__name__.startswith("_"):
            from psofed.parts.registry import register

            register(cls)

    def __post_init__(self) -> None:
        if type(self).family and Part in type(self).__bases__:
            from psofed.parts.registry import FAMILIES

            name, family = type(self).__name__, type(self).family
            built_in = f"use one of psofed.{FAMILIES[family]} or " if family in FAMILIES else ""
            raise TypeError(f"psofed.{name} is the base of every {family}; {built_in}derive your own from it")
        super().__post_init__()

    def to_mapping(self) -> dict[str, Any]:
        """Return the options as in TOML, with the kind where it stands in the same table."""
        plain = super().to_mapping()
        return {"kind": self.kind, **plain} if self.table == self.family else plain

    @classmethod
    def unknown_field(cls, name: str, value: Any) -> PsofedError:
        """Return the error that refuses an option that this kind does not have; another one may have it."""
        from psofed.parts.registry import find_part, part_names

        if not any(name in find_part(cls.family, other).options() for other in part_names(cls.family)):
            return super().unknown_field(name, value)
        reads = ", ".join(cls.own_options()) or "no options"
        allowed = f'left out: the {cls.family.replace("_", "-")} "{cls.kind}" has no such option (it has {reads})'
        return InvalidValueError(cls.full_name(name), value, allowed)

    @classmethod
    def check_methods(cls) -> None:
        """Refuse a class that has none of its family's methods, or lacks one that every part of the family needs."""
        what = f'{cls.family.replace("_", "-")} "{cls.kind}" ({cls.__qualname__}) needs a method'
        if cls.methods and not any(map(cls.defines, cls.methods)):
            raise PsofedError(f"{what} {' or '.join(cls.methods)}; it has none.")
        for name in cls.also_needs:
            if not cls.defines(name):
                raise PsofedError(f"{what} {name}.")

    @classmethod
    def defines(cls, method: str) -> bool:
        """Return whether it has its own method of this name, instead of the family's.

        Examples
        --------
        >>> from psofed.parts.attacks import Gaussian
        >>> Gaussian.defines("corrupt"), Gaussian.defines("poison")
        (True, False)
        """
        return getattr(cls, method) is not getattr(cls._family_base(), method)

    @classmethod
    def _family_base(cls) -> Any:
        return next(parent for parent in cls.__mro__ if Part in parent.__bases__)

    @classmethod
    def own_options(cls) -> Options:
        """Return the fields that are specific to this kind."""
        common = cls._family_base().options()
        return {name: field for name, field in cls.options().items() if name not in common}


def takes_memory(method: Callable[..., Any]) -> bool:
    """Return whether a part's method has an argument ``memory``: what it keeps of each client.

    Examples
    --------
    >>> takes_memory(lambda self, upload, memory: 0.0), takes_memory(lambda self, upload: 0.0)
    (True, False)
    """
    code = getattr(method, "__code__", None)
    return code is not None and "memory" in code.co_varnames[: code.co_argcount]


def call_with_memory(method: Callable[..., Any], seen: Any, memory: Any, *others: Any) -> Any:
    """Call a part's method on what it is shown, with the memory of a client if it takes one.

    Examples
    --------
    >>> call_with_memory(lambda upload, memory: upload + memory, 1.0, 0.5)
    1.5
    >>> call_with_memory(lambda upload: upload, 1.0, 0.5)
    1.0
    """
    return method(seen, memory, *others) if takes_memory(method) else method(seen, *others)


def kebab_case(name: str) -> str:
    """Return the kind of a class name: ``LittleIsEnough`` is ``"little-is-enough"``.

    Examples
    --------
    >>> kebab_case("ScaledUpdate"), kebab_case("RandomWalk2")
    ('scaled-update', 'random-walk2')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()
