"""Checks that return a clean value, or raise an error that names the setting, the value and what is accepted."""

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from psofed.common.errors import InvalidValueError
from psofed.common.suggest import did_you_mean


def check_integer(field: str, value: Any, minimum: int, maximum: int | None = None, bound: str = "") -> int:
    """Return `value` as an int within ``[minimum, maximum]``; `bound` names where the maximum comes from.

    Examples
    --------
    >>> check_integer("num_shared", 9, 1, 5, "dimension")
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: num_shared must be between 1 and 5 (the dimension); got 9.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        # "1" and 1.0 lie in the range: the type is what is wrong.
        raise InvalidValueError(field, value, f"an integer {_integers(minimum, maximum, bound)}".strip())
    number = int(value)
    if number < minimum or (maximum is not None and number > maximum):
        raise InvalidValueError(field, value, _integers(minimum, maximum, bound).removeprefix("of "))
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
    """Return `value` as a finite float between `low` and `high`, both included unless declared open."""
    number = _finite(value)
    if number is None:
        raise InvalidValueError(
            field, value, f"a finite number {describe_range(low, high, open_low, open_high)}".rstrip()
        )
    too_low = number <= low if open_low else number < low
    too_high = number >= high if open_high else number > high
    if too_low or too_high:
        raise InvalidValueError(field, value, describe_range(low, high, open_low, open_high).removeprefix("of "))
    return number


def check_tail(tail: Any, iterations: int) -> int:
    """Return how many iterations at the end count as steady state.

    Parameters
    ----------
    tail : int or float
        A number of iterations, or a fraction of them below 1, rounded down but at least one iteration.
    iterations : int
        Length of the run.

    Examples
    --------
    >>> check_tail(0.2, 3000), check_tail(0.2, 4), check_tail(50, 3000)
    (600, 1, 50)
    """
    allowed = f"an integer between 1 and {iterations} (the iterations) or a fraction below 1"
    number = _finite(tail) or 0.0
    if 0 < number < 1:
        return max(math.floor(number * iterations + 1e-9), 1)
    if not (1 <= number <= iterations and number.is_integer()):
        raise InvalidValueError("tail", int(number) if number.is_integer() and number else tail, allowed)
    return int(number)


def check_boolean(field: str, value: Any) -> bool:
    """Return `value` if it is true or false."""
    if not isinstance(value, bool):
        raise InvalidValueError(field, value, "true or false")
    return value


def check_executor(field: str, value: Any) -> Any:
    """Return `value` if work can be submitted to it."""
    if not hasattr(value, "submit"):
        raise InvalidValueError(field, value, "an executor, such as concurrent.futures.ProcessPoolExecutor()")
    return value


def check_choice(field: str, value: Any, choices: Iterable[str]) -> str:
    """Return `value` if it is one of the named `choices`."""
    names = tuple(choices)
    if not isinstance(value, str) or value not in names:
        allowed = "one of " + ", ".join(f'"{name}"' for name in names)
        raise InvalidValueError(field, value, allowed, did_you_mean(value, names))
    return value


def describe_range(low: float, high: float, open_low: bool = False, open_high: bool = False) -> str:
    """Describe a range of numbers, to follow *a number*.

    Examples
    --------
    >>> describe_range(0, math.inf), describe_range(0, 1), describe_range(0, 1, open_low=True)
    ('of at least 0', 'between 0 and 1', 'above 0 and at most 1')
    """
    above = f"above {low:g}" if open_low else f"of at least {low:g}"
    below = f"below {high:g}" if open_high else f"of at most {high:g}"
    if math.isinf(low) and math.isinf(high):
        return ""
    if math.isinf(high):
        return above
    if math.isinf(low):
        return below
    if open_low or open_high:
        return f"{above} and {below.removeprefix('of ')}"
    return f"between {low:g} and {high:g}"


def _integers(minimum: int, maximum: int | None, bound: str) -> str:
    if maximum is None:
        return "" if minimum <= -(2**63) else f"of at least {minimum}"
    source = f" (the {bound})" if bound.isalpha() else f" ({bound})" if bound else ""
    if minimum == maximum:
        return f"exactly {maximum}{source}"
    return f"between {minimum} and {maximum}{source}"


def _finite(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer of more than 308 digits
        return None
    return number if math.isfinite(number) else None
