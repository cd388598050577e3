"""Digests of code: of psofed's own sources, and of single functions with all that they call.

Of a function, comments, docstrings and layout do not count; everything that can change what it does, does.
"""

import hashlib
import os
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, GenericAlias, ModuleType
from typing import Any

_PACKAGE = Path(__file__).parent.parent
_LENGTH = 16

# Packages whose versions, and not whose code, are taken to decide what they do.
_KNOWN = ("psofed", "numpy", "math", "scipy", "numba")


@cache
def source_digest(*packages: str, without: tuple[str, ...] = (), root: Path = _PACKAGE) -> str:
    """Return a digest of the sources of some packages of psofed, of all if none is named.

    Parameters
    ----------
    packages : str
        Folders below psofed.
    without : tuple of str
        Folders to leave out, where all are taken; also those within another, such as ``"results/reports"``.
    root : path
        Where the folders are.
    """
    digest = hashlib.sha256()
    for package in packages or sorted(path.name for path in root.iterdir() if path.is_dir()):
        for file in sorted((root / package).rglob("*.py")):
            name = file.relative_to(root).as_posix()
            if not name.startswith(tuple(f"{folder}/" for folder in without)):
                digest.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:_LENGTH]


def cache_folder() -> Path:
    """Return psofed's folder in the user's cache, for what can be computed again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "psofed"


def function_digest(*functions: Any) -> str:
    """Return a digest of functions, of the functions and constants they use, and of theirs in turn.

    Examples
    --------
    >>> def f(x):
    ...     return x + 1
    >>> def g(x):
    ...     return x + 2
    >>> function_digest(f) == function_digest(g)
    False
    """
    digest, seen = hashlib.sha256(), set()
    waiting = list(functions)
    while waiting:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        digest.update(f"{function.__qualname__}{function.__defaults__}{function.__kwdefaults__}".encode())
        names = _add_code(digest, function.__code__, function.__doc__)
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        used = [function.__globals__[name] for name in names if name in function.__globals__]
        for value in [*cells, *used]:
            if isinstance(value, FunctionType):
                waiting.append(value)
            elif isinstance(value, ModuleType):
                digest.update(value.__name__.encode())
                if value.__name__.split(".")[0] not in _KNOWN:
                    members = [getattr(value, name) for name in names if hasattr(value, name)]
                    waiting += [member for member in members if isinstance(member, FunctionType)]
                    digest.update(b"".join(map(_content_of, members)))
            elif isinstance(value, type):
                digest.update(f"{value.__module__}.{value.__qualname__}{getattr(value, '_fields', '')}".encode())
            elif hasattr(value, "py_func"):  # compiled
                waiting.append(value.py_func)
            else:
                digest.update(_content_of(value))
    return digest.hexdigest()[:_LENGTH]


def class_digest(cls: type) -> str:
    """Return a digest of the methods and constants that a class and those it derives from add to psofed's own.

    What is psofed's own is in :func:`source_digest`; so a built-in class adds nothing.
    """
    functions, digest = [], hashlib.sha256()
    for parent in cls.__mro__[:-1]:
        if parent.__module__.split(".")[0] == _PACKAGE.name:
            continue
        for name, value in sorted(vars(parent).items()):
            if name.startswith("_"):  # what Python, dataclasses and the engine add
                continue
            raw = getattr(value, "__func__", value)
            raw = raw.fget if isinstance(raw, property) else raw
            if isinstance(raw, FunctionType):
                functions.append(raw)
            else:
                digest.update(name.encode() + _content_of(value))
    digest.update(function_digest(*functions).encode())
    return digest.hexdigest()[:_LENGTH]


def _content_of(value: Any) -> bytes:
    """Return bytes that tell a value from others, and are the same in every process."""
    if isinstance(value, int | float | str | bytes | bool | None):
        return repr(value).encode()
    if isinstance(value, tuple | list | frozenset):
        members = sorted(map(_content_of, value)) if isinstance(value, frozenset) else map(_content_of, value)
        return b"(" + b",".join(members) + b")"
    if isinstance(value, dict):
        return b"{" + b",".join(_content_of(key) + b":" + _content_of(member) for key, member in value.items()) + b"}"
    if isinstance(value, GenericAlias):  # such as NDArray[np.float64], which has all attributes of an array
        return repr(value).encode()
    if hasattr(value, "tobytes"):  # arrays
        return bytes(value.tobytes())
    return f"{type(value).__module__}.{type(value).__qualname__}".encode()


def _add_code(digest: Any, code: CodeType, docstring: str | None) -> list[str]:
    digest.update(code.co_code)
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _add_code(digest, constant, None)
        elif constant != docstring:
            digest.update(repr(constant).encode())
    digest.update(repr(code.co_names).encode())
    return names
