"""Interpret the fields of a table (numbers, missing values, client names), for simulation and federation alike."""

import math
import re
from collections.abc import Iterable
from typing import Any

# How a missing number is written, apart from leaving it out.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "-", "?"})
DELIMITERS = ",;\t"

_BOOLEANS = {"true": 1.0, "false": 0.0}
_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INFINITE = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
# 3,5 and 1.234,5 and 1.234.567,5; the groups of thousands are of three digits each.
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+)?,\d+([eE][+-]?\d+)?", re.ASCII)
# Could be thousands as well as a decimal comma: 1,234 but not 0,234.
_AMBIGUOUS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
_TIME = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?|\d{4}/\d{1,2}/\d{1,2}( .*)?|\d{1,2}[./-]\d{1,2}[./-]\d{2,4}( .*)?"
    r"|\d{1,2}:\d{2}(:\d{2}(\.\d*)?)?( ?[AaPp][Mm])?",
    re.ASCII,
)

_LONGEST_SHOWN = 40


class AmbiguousNumberError(ValueError):
    """An ambiguous number, such as 1,234."""


def number(value: Any, delimiter: str = ",") -> float:
    """Return a field as a number; NaN where it is missing.

    Parameters
    ----------
    value : object
        Text, or what a Parquet file or a data frame holds.
    delimiter : str
        What separates the fields. A comma inside a number is a decimal comma where fields are not separated by commas,
        and in a quoted field that could not be thousands.

    Raises
    ------
    ValueError
        With what is wrong.

    Examples
    --------
    >>> number(" 1.5 "), number("1.234,5", ";"), number("NA"), number("true")
    (1.5, 1234.5, nan, 1.0)
    >>> number("1,234")
    Traceback (most recent call last):
    psofed.data.values.AmbiguousNumberError: '1,234' could be 1.234 or 1234
    """
    if value is None:
        return math.nan
    if not isinstance(value, str):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"{shown(value)} is not a number") from None
    text = value.strip()
    if _PLAIN.fullmatch(text):
        return float(text)
    low = text.lower()
    if low in MISSING:
        return math.nan
    if low in _BOOLEANS:
        return _BOOLEANS[low]
    if _INFINITE.fullmatch(text):
        return float(text)
    if _DECIMAL_COMMA.fullmatch(text):
        if delimiter == "," and _AMBIGUOUS.fullmatch(text):
            whole, part = text.split(",")
            raise AmbiguousNumberError(f"{shown(value)} could be {whole}.{part} or {whole}{part}")
        return float(text.replace(".", "").replace(",", "."))
    raise ValueError(f"{shown(value)} is not a number")


def client_name(value: Any) -> str:
    """Return the client ID of a row; empty if it is missing.

    Examples
    --------
    >>> client_name(" S07 "), client_name(7), client_name(7.0), client_name(None), client_name(math.nan)
    ('S07', '7', '7', '', '')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        if value.is_integer():
            return str(int(value))
    return str(value).strip()


def delimiter_of(line: str) -> str:
    """Return the delimiter of a CSV file: the most frequent one in its header line."""
    return max(DELIMITERS, key=line.count)


def is_text(values: Iterable[Any], delimiter: str = ",") -> bool:
    """Tell whether a column holds text: fewer than half of its values are numbers.

    Examples
    --------
    >>> is_text(["red", "green", ""]), is_text(["1.5", "2", "x"]), is_text(["", "NA"])
    (True, False, False)
    """
    numbers = texts = 0
    for value in values:
        try:
            numbers += not math.isnan(number(value, delimiter))
        except AmbiguousNumberError:
            numbers += 1
        except ValueError:
            texts += 1
    return texts > numbers


def is_time(value: Any) -> bool:
    """Tell whether a field is a date or a time.

    Examples
    --------
    >>> is_time("2024-05-01 12:00"), is_time("1.5.2024"), is_time("12:30"), is_time("12.5"), is_time("north")
    (True, True, True, False, False)
    """
    return isinstance(value, str) and _TIME.fullmatch(value.strip()) is not None


def shown(value: Any) -> str:
    """Return a value in the short form that errors quote."""
    text = repr(value) if isinstance(value, str) else repr(str(value))
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 2]}…'"
