"""Compile kernels with Numba and cache them on disk, in folders named by digests of their sources.

Numba's own cache looks only at the file that a function stands in, so a kernel would survive a change of a function
that it calls from elsewhere. The engine's kernels are kept in a folder named after the engine's code, and those that
hold a part's method (:mod:`psofed.engine.hooks`) in one named after that method's code as well.

Importing this module imports Numba: nothing that must start instantly may do so.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar, cast

from psofed.common.fingerprint import cache_folder, function_digest, source_digest
from psofed.common.lazy import without_modules

# Numba imports these to check SciPy's version, to read its configuration file, and to mark lines as covered.
_READS_YAML = Path(".numba_config.yaml").exists()
with without_modules("scipy", "coverage", *() if _READS_YAML else ("yaml",)):
    import numba
    from numba.extending import intrinsic

# A function of LLVM IR; callers omit the typing context.
instruction: Any = intrinsic

F = TypeVar("F", bound=Callable[..., Any])

# No fast-math flag: every operation rounds as IEEE 754 says, so bits do not depend on the machine.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True}

_SETTING_CACHE = Lock()


def compiled(function: F) -> F:
    """Compile `function`, which Python calls, releasing the GIL while it runs.

    The engine's kernels share one folder. Others are kept in one named after their code and that of all functions they
    call.
    """
    is_ours = function.__module__.startswith("psofed.engine.")
    with own_cache("" if is_ours else function_digest(function)):
        return cast("F", numba.njit(cache=True, **OPTIONS)(function))


def kernel_part(function: F) -> F:
    """Compile a function that kernels call; it is inlined there."""
    return cast("F", numba.njit(forceinline=True, **OPTIONS)(function))


@contextmanager
def own_cache(made_of: str = "") -> Iterator[Path]:
    """Let Numba cache what is decorated inside in psofed's folder; `made_of` is a digest of further sources."""
    config: Any = numba.config
    with _SETTING_CACHE:
        previous = config.CACHE_DIR
        folder = (Path(previous) / _folder_name() if previous else _cache_folder()) / made_of
        config.CACHE_DIR = str(folder)
        try:
            yield folder
        finally:
            config.CACHE_DIR = previous


def is_cold() -> bool:
    """Tell whether this version of the engine has yet to be compiled on this machine."""
    config: Any = numba.config
    with _SETTING_CACHE:  # another thread may be compiling
        folder = Path(config.CACHE_DIR) / _folder_name() if config.CACHE_DIR else _cache_folder()
    # Numba makes the folder when it decorates, so that it exists says nothing.
    return not any(folder.rglob("*.nbi"))


@cache
def _cache_folder() -> Path:
    return cache_folder() / _folder_name()


@cache
def _folder_name() -> str:
    return f"kernels-{source_digest('engine')}-{numba.__version__}"
