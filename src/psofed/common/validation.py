"""Checks that return a clean value or raise an error naming field, value and what is allowed."""

import dataclasses
import functools
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any, TypeVar

from psofed.common.errors import InvalidValueError, UnknownArgumentError
from psofed.common.suggest import did_you_mean

T = TypeVar("T")


def check_integer(field: str, value: Any, minimum: int, maximum: int | None = None, bound: str = "") -> int:
    """Return `value` as an int within ``[minimum, maximum]``; `bound` names where the maximum comes from."""
    upper = "" if maximum is None else f" to {bound + ' = ' if bound else ''}{maximum}"
    allowed = f"an integer from {minimum}{upper}" if upper else f"an integer, at least {minimum}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidValueError(field, value, allowed)
    number = int(value)
    if number < minimum or (maximum is not None and number > maximum):
        raise InvalidValueError(field, value, allowed)
    return number


def check_number(
    field: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
) -> float:
    """Return `value` as a finite float between `low` and `high` (ends included unless said open)."""
    allowed = _describe_range(low, high, open_low, open_high)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValueError(field, value, allowed)
    number = float(value)
    too_low = number <= low if open_low else number < low
    too_high = number >= high if open_high else number > high
    if not math.isfinite(number) or too_low or too_high:
        raise InvalidValueError(field, value, allowed)
    return number


def check_tail(tail: Any, iterations: int) -> int:
    """Return how many iterations at the end count as steady state.

    Parameters
    ----------
    tail : int or float
        A number of iterations, or a fraction of them below 1, rounded down but at least one iteration.
    iterations : int
        Of the run.

    Examples
    --------
    >>> check_tail(0.2, 3000), check_tail(0.2, 4), check_tail(50, 3000)
    (600, 1, 50)
    """
    allowed = f"an integer from 1 to iterations = {iterations}, or a fraction between 0 and 1"
    number = math.nan if isinstance(tail, bool) or not isinstance(tail, Real) else float(tail)
    if 0 < number < 1:
        return max(math.floor(number * iterations + 1e-9), 1)
    if not (1 <= number <= iterations and number.is_integer()):
        raise InvalidValueError("tail", tail, allowed)
    return int(number)


def check_boolean(field: str, value: Any) -> bool:
    """Return `value` if it is true or false."""
    if not isinstance(value, bool):
        raise InvalidValueError(field, value, "true or false")
    return value


def check_choice(field: str, value: Any, choices: Iterable[str]) -> str:
    """Return `value` if it is one of the named `choices`."""
    names = tuple(choices)
    if not isinstance(value, str) or value not in names:
        allowed = "one of " + ", ".join(f'"{name}"' for name in names)
        raise InvalidValueError(field, value, allowed, did_you_mean(value, names))
    return value


def names_its_arguments(cls: type[T]) -> type[T]:
    """Have a dataclass refuse unknown keyword arguments by name, with the one that may have been meant."""
    plain: Any = cls.__init__

    @functools.wraps(plain)
    def init(self: Any, *arguments: Any, **named: Any) -> None:
        known = tuple(field.name for field in dataclasses.fields(cls) if field.init)  # type: ignore[arg-type]
        for name in named:
            if type(self) is cls and name not in known:
                raise UnknownArgumentError(name, known, f"an argument of {cls.__name__}")
        plain(self, *arguments, **named)

    cls.__init__ = init  # type: ignore[method-assign]
    return cls


def _describe_range(low: float, high: float, open_low: bool, open_high: bool) -> str:
    above = f"{'above' if open_low else 'at least'} {low:g}"
    below = f"{'below' if open_high else 'at most'} {high:g}"
    if math.isinf(low) and math.isinf(high):
        return "a finite number"
    if math.isinf(high):
        return f"a finite number {above}"
    if math.isinf(low):
        return f"a finite number {below}"
    return f"a number {above} and {below}"
