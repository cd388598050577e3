"""Write TOML, and read TOML that may be hostile: bounded in size, depth and time, and refused in one line.

Python's `tomllib` accepts nesting until the interpreter's stack ends, takes time that grows with the square of a dotted
key's length, and raises different exceptions for syntax, recursion and long integers. All of psofed reads TOML here.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psofed.common.errors import PsofedError

MOST_BYTES = 64 << 20  # a fleet's covariance matrices may be given as numbers
_DEEPEST = 32
_LONGEST_KEY = 200
_MOST_BITS = 128  # of an integer: the size of the seeds that NumPy recommends
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
# A key begins a line, a table header or an entry of an inline table.
_DEEP_KEY = re.compile(rf"(?:^|[{{,])[ \t]*\[*[ \t]*(?:{_PART}[ \t]*\.[ \t]*){{{_DEEPEST}}}", re.MULTILINE)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises
    ------
    FileNotFoundError
        If there is none; callers know what to suggest.
    PsofedError
        If it cannot be read, is no TOML, or exceeds a bound. The message begins with the file's name.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        return parse_toml(content.decode("utf-8-sig"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise PsofedError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise PsofedError(f"{path}: not valid TOML (not UTF-8 text)") from None
    except PsofedError as error:
        raise PsofedError(f"{path}: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML text.

    Raises
    ------
    PsofedError
        If it is no TOML, or exceeds a bound.

    Examples
    --------
    >>> parse_toml("num_clients = 50")
    {'num_clients': 50}
    >>> parse_toml("a = " + 5000 * "[")
    Traceback (most recent call last):
    psofed.common.errors.PsofedError: not valid TOML: nested too deeply (limit: 32 levels)
    """
    if len(text) > MOST_BYTES:
        raise PsofedError(f"not valid TOML: too long (limit: {MOST_BYTES >> 20} MiB)")
    if _DEEP_KEY.search(text):
        raise _too_deep()
    try:
        values = tomllib.loads(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:  # TOMLDecodeError among them, and integers of more digits than Python reads
        raise PsofedError(f"not valid TOML: {error}") from None
    _check(values)
    return values


def toml_value(value: Any) -> str:
    """Write a value as TOML: the one place where psofed does.

    Examples
    --------
    >>> toml_value({"uniform": [0.2, 1.2]})
    '{uniform = [0.2, 1.2]}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {toml_value(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(entry) for entry in value) + "]"
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    return repr(value)


def _check(values: dict[str, Any]) -> None:
    """Refuse what would make later code slow or recurse too deeply."""
    level: list[Any] = [values]
    for _ in range(_DEEPEST):
        tables = [entry for entry in level if isinstance(entry, dict)]
        if any(len(key) > _LONGEST_KEY for table in tables for key in table):
            raise PsofedError(f"not valid TOML: a key is too long (limit: {_LONGEST_KEY} characters)")
        if any(isinstance(entry, int) and entry.bit_length() > _MOST_BITS for entry in level):
            raise PsofedError(f"not valid TOML: an integer is too large (limit: {_MOST_BITS} bits)")
        level = [inner for table in tables for inner in table.values()] + [
            inner for entry in level if isinstance(entry, list) for inner in entry
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> PsofedError:
    return PsofedError(f"not valid TOML: nested too deeply (limit: {_DEEPEST} levels)")
