"""Errors that a user can fix. The command line prints them on one line and exits with code 2."""

import copy
from collections.abc import Sequence
from typing import Any, Self

from psofed.common.suggest import did_you_mean


class PsofedError(Exception):
    """A mistake that the user can fix; the message says how."""

    def at(self, place: str) -> Self:
        """Return the same error with the place where the mistake was made in front of its message.

        Examples
        --------
        >>> print(PsofedError("Unknown field `a`.").at("scenario.toml"))
        scenario.toml: Unknown field `a`.
        """
        located = copy.copy(self)
        located.__dict__.update(self.__dict__)
        located.args = (f"{place}: {self}",)
        return located


class _FieldError(PsofedError, ValueError):
    """A mistake in one setting; its arguments make it again, under another name or in another process."""

    def __init__(self, text: str, field: str, *arguments: Any) -> None:
        super().__init__(text)
        self.field: str = field
        self._arguments = arguments

    def renamed(self, field: str) -> Self:
        """Return the same error about `field`: what the user typed, such as ``--trials``."""
        return type(self)(field, *self._arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.field, *self._arguments)


class InvalidValueError(_FieldError):
    """A setting has a value that it does not accept.

    Parameters
    ----------
    field : str
        Full name of the setting, as in a TOML file (``attack.variance``).
    value : object
        The value that was given.
    allowed : str
        Which values are accepted, to follow *must be*.
    hint : str
        A further sentence, such as a suggestion.

    Examples
    --------
    >>> raise InvalidValueError("num_shared", 9, "between 1 and 5 (the dimension)")
    Traceback (most recent call last):
    psofed.common.errors.InvalidValueError: num_shared must be between 1 and 5 (the dimension); got 9.
    """

    def __init__(self, field: str, value: Any, allowed: str, hint: str = "") -> None:
        text = f"{field} must be {allowed}; got {_short(value)}.{hint}"
        super().__init__(text, field, value, allowed, hint)
        self.value: Any = value
        self.allowed: str = allowed
        self.hint: str = hint


class MissingValueError(InvalidValueError):
    """A required setting was not given.

    Parameters
    ----------
    field : str
        Full name of the setting.
    allowed : str
        Which values it accepts.

    Examples
    --------
    >>> raise MissingValueError("num_clients", "an integer of at least 1")
    Traceback (most recent call last):
    psofed.common.errors.MissingValueError: num_clients is required: an integer of at least 1.
    """

    def __init__(self, field: str, allowed: str = "it has no default") -> None:
        _FieldError.__init__(self, f"{field} is required: {allowed}.", field, allowed)
        self.value: Any = None
        self.allowed: str = allowed
        self.hint: str = ""


class UnknownFieldError(_FieldError):
    """A name is not one of the settings.

    Parameters
    ----------
    field : str
        Full name of the unknown setting.
    known : sequence of str
        The settings at that place.
    what : str
        What it should have been.
    elsewhere : sequence of str
        Full names of settings in other tables, for suggestions.
    hint : str
        What to do instead; by default the setting that looks most like it, or all.

    Examples
    --------
    >>> raise UnknownFieldError("attack.varianc", ("num_byzantine", "variance"))
    Traceback (most recent call last):
    psofed.common.errors.UnknownFieldError: Unknown field `attack.varianc`. Did you mean `attack.variance`?
    """

    def __init__(
        self, field: str, known: Sequence[str], what: str = "field", elsewhere: Sequence[str] = (), hint: str = ""
    ) -> None:
        table, dot, _ = field.rpartition(".")
        # Full names, as the user would write them.
        full = [name if "." in name or what != "field" else f"{table}{dot}{name}" for name in known]
        advice = f" {hint}" if hint else did_you_mean(field, elsewhere) or did_you_mean(field, full)
        if not advice:
            advice = f" Known: {', '.join(known)}." if known else " None are accepted here."
        arguments = tuple(known), what, tuple(elsewhere), hint
        super().__init__(f"Unknown {what} `{field}`.{advice}", field, *arguments)
        self.known: tuple[str, ...] = tuple(known)


class UnknownArgumentError(UnknownFieldError, TypeError):
    """A keyword argument is not one of the settings of a value or function."""


class MissingArgumentError(MissingValueError, TypeError):
    """A value was made without an argument that it requires."""


class NotCoveredError(PsofedError):
    """A theory or command does not cover a case, and names the case."""


def missing_package(user: str, package: str, extra: str) -> PsofedError:
    """Return the error of a feature whose package is not installed.

    Examples
    --------
    >>> print(missing_package("--cluster", "Dask", "cluster"))
    --cluster needs Dask; install it from a clone of psofed with: pip install -e '.[cluster]'
    """
    return PsofedError(f"{user} needs {package}; install it from a clone of psofed with: pip install -e '.[{extra}]'")


class ImpossibleResultError(PsofedError):
    """A result that cannot be right: a mistake of psofed's own, which the user can only report."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"internal error: {problem}; please report it, with the scenario")


def _short(value: Any, limit: int = 80) -> str:
    text = " ".join(repr(value).split())  # on one line: a table would take many
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
