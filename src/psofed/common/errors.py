"""What can go wrong through a user's hands, as exceptions the command line turns into exit code 2."""

from collections.abc import Sequence
from typing import Any

from psofed.common.suggest import did_you_mean


class PsofedError(Exception):
    """A mistake the user can mend; its text says how."""


class InvalidValueError(PsofedError, ValueError):
    """A field holds a value it may not hold.

    Parameters
    ----------
    field : str
        The field's full name, as it stands in the TOML file (``attack.variance``).
    value : object
        What was given.
    allowed : str
        What would have been accepted.
    hint : str
        What else to say, such as the name that may have been meant.

    Examples
    --------
    >>> raise InvalidValueError("num_shared", 7, "an integer from 1 to dimension = 5")
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: num_shared = 7 is not allowed; allowed: an integer from 1 to dimension = 5
    """

    def __init__(self, field: str, value: Any, allowed: str, hint: str = "") -> None:
        super().__init__(f"{field} = {_short(value)} is not allowed; allowed: {allowed}{hint}")
        self.field: str = field
        self.value = value
        self.allowed = allowed
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.allowed, self.hint)


class UnknownFieldError(PsofedError, ValueError):
    """A table names a field that it does not have.

    Parameters
    ----------
    field : str
        The unknown field's full name.
    known : sequence of str
        The fields the table has.
    what : str
        What it should have been.
    elsewhere : sequence of str
        Fields of other tables, by their full names, that may have been meant.

    Examples
    --------
    >>> raise UnknownFieldError("attack.varianc", ("num_byzantine", "variance"))
    Traceback (most recent call last):
    psofed.common.errors.UnknownFieldError: attack.varianc is not a known field; allowed: num_byzantine, variance; did
    you mean attack.variance?
    """

    def __init__(
        self, field: str, known: Sequence[str], what: str = "a known field", elsewhere: Sequence[str] = ()
    ) -> None:
        table, dot, _ = field.rpartition(".")
        # Full names, as one would write them instead.
        full = [name if "." in name or what != "a known field" else f"{table}{dot}{name}" for name in known]
        hint = did_you_mean(field, elsewhere) or did_you_mean(field, full)
        super().__init__(f"{field} is not {what}; allowed: {', '.join(known) or 'no fields here'}{hint}")
        self.field = field
        self.known: tuple[str, ...] = tuple(known)
        self._arguments = (field, tuple(known), what, tuple(elsewhere))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._arguments


class UnknownArgumentError(UnknownFieldError, TypeError):
    """A keyword argument that a scenario, a table of it or a part does not take."""


class NotCoveredError(PsofedError):
    """A theory or command was asked for a case that it does not cover, and names the case."""


def _short(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
