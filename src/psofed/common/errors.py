"""What can go wrong through a user's hands, as exceptions the command line turns into exit code 2."""

from typing import Any


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

    Examples
    --------
    >>> raise InvalidValueError("num_shared", 7, "an integer from 1 to dimension = 5")
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: num_shared = 7 is not allowed; allowed: an integer from 1 to dimension = 5
    """

    def __init__(self, field: str, value: Any, allowed: str) -> None:
        super().__init__(f"{field} = {_short(value)} is not allowed; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.value, self.allowed)


class UnknownFieldError(PsofedError, ValueError):
    """A table names a field that it does not have.

    Parameters
    ----------
    field : str
        The unknown field's full name.
    known : sequence of str
        The fields the table has.
    """

    def __init__(self, field: str, known: tuple[str, ...]) -> None:
        super().__init__(f"{field} is not a known field; allowed: {', '.join(known) or 'no fields here'}")
        self.field = field
        self.known = known

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, self.known)


class NotCoveredError(PsofedError):
    """A theory or command was asked for a case that it does not cover, and names the case."""


def _short(value: Any, limit: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
