"""Compiles kernels with Numba and keeps them on disk, under a name that changes with the kernels' sources.

Numba's own cache looks only at the file a kernel stands in; a kernel would survive a change of a function
it has inlined from another file. So the cache folder is named after a digest of all the sources that hold
kernels. Importing this module imports Numba: nothing that must start instantly may do so.
"""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numba
from numba.core import config as numba_config

# Modules and packages (below psofed) in which kernels stand.
_KERNEL_SOURCES = ("engine", "parts", "fleet", "simulation", "theory/windows.py")

_SETTING_CACHE = Lock()


def compiled(function: Callable[..., Any] | None = None, *, inline: bool = False) -> Callable[..., Any]:
    """Compile `function`, releasing the GIL while it runs.

    No fast-math flag is set: every operation rounds as IEEE 754 says, so a lane's bits do not depend on
    how many lanes run beside it, nor on the machine.

    Parameters
    ----------
    function : callable
        A module-level function, or the product of a factory whose free variables are numbers.
    inline : bool
        Inline it where it is called from other kernels.
    """
    if function is None:
        return lambda f: compiled(f, inline=inline)
    if inline:
        return numba.njit(inline="always")(function)
    with _own_cache():
        return numba.njit(cache=True, nogil=True)(function)


@dataclass(frozen=True)
class Hook:
    """A function to be handed to a kernel as an argument, compiled when it is first loaded.

    Every hook of one signature has the same type, so a kernel is compiled once for all of them, and both
    are kept on disk. (A plain jitted function has a type of its own, and would recompile its kernel in
    every process.)
    """

    function: Callable[..., Any]
    signature: Any

    @cache  # noqa: B019 (hooks live as long as their modules)
    def load(self) -> Any:
        """Return what kernels take."""
        with _own_cache():
            return numba.cfunc(self.signature, cache=True)(self.function)


def hook(signature: Any) -> Callable[[Callable[..., Any]], Hook]:
    """Make a function a :class:`Hook` of the given `signature` (see :mod:`psofed.engine.hooks`)."""
    return lambda function: Hook(function, signature)


@contextmanager
def _own_cache() -> Iterator[None]:
    # Numba reads the folder when it decorates, so setting it for that moment leaves other users of it alone.
    config: Any = numba_config
    with _SETTING_CACHE:
        previous = config.CACHE_DIR
        config.CACHE_DIR = previous or str(_cache_folder())
        try:
            yield
        finally:
            config.CACHE_DIR = previous


@cache
def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "psofed" / f"kernels-{_sources_digest()}"


def _sources_digest() -> str:
    package = Path(__file__).parent.parent
    digest = hashlib.sha256(numba.__version__.encode())
    for name in _KERNEL_SOURCES:
        path = package / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(file.relative_to(package).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
