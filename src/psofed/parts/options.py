"""The options of a part: declared in its file, checked when a scenario is made, kept with it.

A part declares what it reads as a literal ``OPTIONS`` in its file::

    OPTIONS = {"variance": {"default": 0.5, "low": 0.0, "text": "σ_B²: variance of the perturbation"}}

It is read from the source, so checking a scenario imports neither the part nor Numba. An option whose default
is an integer holds integers, one with ``choices`` holds one of them, any other holds numbers.
"""

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from psofed.common.errors import InvalidValueError, UnknownFieldError
from psofed.common.validation import check_choice, check_integer, check_number
from psofed.parts.registry import part_names

OptionValue = float | int | str


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a part.

    Attributes
    ----------
    default : number or str
        Its value if none is given; its type decides what is allowed.
    text : str
        What it means, in a few words.
    low, high : float
        Allowed range, ends included unless `open_low`.
    choices : tuple of str
        Allowed words, for an option that is one.
    """

    default: OptionValue
    text: str
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    choices: tuple[str, ...] = ()

    def check(self, field: str, value: Any) -> OptionValue:
        """Return a clean `value`, or raise an error that names `field`."""
        if self.choices:
            return check_choice(field, value, self.choices)
        if isinstance(self.default, int):
            return check_integer(
                field, value, int(self.low), None if math.isinf(self.high) else int(self.high)
            )
        return check_number(field, value, self.low, self.high, open_low=self.open_low)


class Options(Mapping[str, OptionValue]):
    """The checked options of one part; frozen, and hashable.

    Examples
    --------
    >>> options = make_options("attacks", "gaussian", {"variance": 1}, "attack.")
    >>> options, options["variance"]
    ({'variance': 1.0}, 1.0)
    """

    def __init__(self, part: str, items: tuple[tuple[str, OptionValue], ...]) -> None:
        self.part = part
        self._items = items

    def __getitem__(self, name: str) -> OptionValue:
        return dict(self._items)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict(self._items))

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Options):
            return (self.part, self._items) == (other.part, other._items)
        return dict(self._items) == other

    def __hash__(self) -> int:
        return hash((self.part, self._items))

    def __repr__(self) -> str:
        return repr(dict(self._items))


@cache
def declared_options(kind: str, name: str) -> dict[str, Option]:
    """Return what the part `name` of `kind` declares, without importing it.

    Examples
    --------
    >>> declared_options("attacks", "gaussian")["variance"].default
    0.5
    """
    check_choice(kind, name, part_names(kind))
    for node in _parse(kind, name).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["OPTIONS"]:
            return {option: Option(**fields) for option, fields in ast.literal_eval(node.value).items()}
    return {}


def make_options(kind: str, name: str, given: Mapping[str, Any], prefix: str) -> Options:
    """Check the options `given` to a part and fill in its defaults.

    Options that were made for another part and are at its defaults count as none given, so that changing a
    scenario's part alone will do.

    Parameters
    ----------
    kind, name : str
        The part.
    given : mapping
        Values by option.
    prefix : str
        What stands before the option in messages: ``attack.`` or ``aggregation_options.``.
    """
    declared = declared_options(kind, name)
    if isinstance(given, Options) and given.part not in ("", name) and given == _defaults(kind, given.part):
        given = {}
    for option, value in given.items():
        if option not in declared:
            _refuse(kind, name, f"{prefix}{option}", option, value)
    return Options(
        name,
        tuple(
            (option, about.check(f"{prefix}{option}", given.get(option, about.default)))
            for option, about in declared.items()
        ),
    )


@cache
def part_summary(kind: str, name: str) -> str:
    """Return the first sentence of the part's docstring, for tables.

    Examples
    --------
    >>> part_summary("aggregations", "mean")[:16]
    "The paper's rule"
    """
    return (ast.get_docstring(_parse(kind, name)) or "").split("\n")[0]


def _defaults(kind: str, name: str) -> Options:
    return make_options(kind, name, {}, "")


def _refuse(kind: str, name: str, field: str, option: str, value: Any) -> None:
    declared = tuple(declared_options(kind, name))
    if any(option in declared_options(kind, other) for other in part_names(kind)):
        reads = ", ".join(declared) or "no options"
        raise InvalidValueError(field, value, f'no value, since "{name}" does not read it; it reads {reads}')
    raise UnknownFieldError(field, declared)


def _parse(kind: str, name: str) -> ast.Module:
    path = Path(__file__).parent / kind / name.replace("-", "_")
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))
