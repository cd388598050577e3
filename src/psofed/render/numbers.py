"""How numbers are written: a true minus, units, intervals, and words for what is not finite.

Errors are kept linear everywhere and become decibels only here.
"""

import math
from collections.abc import Sequence

from psofed.common.numbers import to_decibels

MINUS = "−"


def fixed(value: float, digits: int = 2, *, signed: bool = False) -> str:
    """Write a number with a fixed count of decimals, a true minus, and no sign before zero.

    Examples
    --------
    >>> fixed(-16.413), fixed(-0.001), fixed(0.5, 1, signed=True), fixed(-math.inf)
    ('−16.41', '0.00', '+0.5', '−∞')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:{'+' if signed else ''},.{digits}f}"
    return text.lstrip("+-") if float(text.replace(",", "")) == 0 else text.replace("-", MINUS)


def significant(value: float, digits: int = 4) -> str:
    """Write a number with some significant digits; very small and very large ones with a power of ten.

    Examples
    --------
    >>> significant(0.025851), significant(1234567.0), significant(2.5e-9), significant(150.0)
    ('0.02585', '1.235e+06', '2.5e−09', '150')
    """
    if not math.isfinite(value):
        return fixed(value)
    return f"{value:.{digits}g}".replace("-", MINUS)


def decibels(value: float, digits: int = 2) -> str:
    """Write a linear error in dB.

    Examples
    --------
    >>> decibels(0.02285), decibels(0.0), decibels(math.inf)
    ('−16.41 dB', '−∞ dB', 'diverged')
    """
    return "diverged" if value == math.inf else f"{fixed(to_decibels(value), digits)} dB"


def percent(share: float, digits: int | None = None, *, signed: bool = False) -> str:
    """Write a share in per cent, by default with a decimal more where it is small.

    Examples
    --------
    >>> percent(0.123), percent(0.0123), percent(12.0), percent(-0.05, 1, signed=True)
    ('12 %', '1.2 %', '1,200 %', '−5.0 %')
    """
    value = 100 * share
    if digits is None:
        digits = 1 if 0 < abs(value) < 9.95 and f"{value:.1f}"[-1] != "0" else 0
    return f"{fixed(value, digits, signed=signed)} %"


def count(number: float) -> str:
    """Write a whole number with separators.

    Examples
    --------
    >>> count(1250), count(12.5)
    ('1,250', '12.5')
    """
    return f"{int(number):,}" if float(number).is_integer() else f"{number:,g}"


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> counted(1, "trial"), counted(1250, "trial"), counted(2, "entry", "entries")
    ('1 trial', '1,250 trials', '2 entries')
    """
    return f"{count(number)} {singular if number == 1 else plural or singular + 's'}"


def listed(names: Sequence[str], most: int = 5) -> str:
    """Join names as in a sentence, some of them if there are many.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b", "c"]), listed(list("abcdefg"))
    ('a', 'a, b and c', 'a, b, c, d and 3 more')
    """
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def shortened(text: str, most: int) -> str:
    """Return a text, or as much of it as fits into `most` characters.

    Examples
    --------
    >>> shortened("a station", 12), shortened("a station far away", 12)
    ('a station', 'a station f…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def sentence_case(text: str) -> str:
    """Return a text whose first letter is a capital."""
    return text[:1].upper() + text[1:]
