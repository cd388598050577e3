"""Compiles kernels with Numba and keeps them on disk, in folders named after what they are made of.

Numba's own cache looks only at the file a kernel stands in; a kernel would survive a change of a function it has
inlined from elsewhere. So the engine's kernels are kept in a folder named after the engine's code, and those that hold
a part's body (:mod:`psofed.engine.bodies`) in one named after that body's code as well: an edited attack recompiles
itself and nothing else, and a comment nothing at all. Importing this module imports Numba: nothing that must start
instantly may do so.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

import numba
from numba.core import config as numba_config

from psofed.common.fingerprint import source_digest

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
    with own_cache():
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)


@contextmanager
def own_cache(made_of: str = "") -> Iterator[Path]:
    """Let Numba keep what is compiled inside in psofed's folder; `made_of` is a digest of what else is in it."""
    # Numba reads the folder when it decorates, so setting it for that moment leaves other users of it alone.
    config: Any = numba_config
    with _SETTING_CACHE:
        previous = config.CACHE_DIR
        folder = Path(previous) if previous else _cache_folder() / made_of
        config.CACHE_DIR = str(folder)
        try:
            yield folder
        finally:
            config.CACHE_DIR = previous


@cache
def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "psofed" / f"kernels-{source_digest('engine')}-{numba.__version__}"
