"""Import a package's public names when they are first used, so that importing the package is instant.

The names are listed once, in the package's stub ``__init__.pyi``, which type checkers and editors read too.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import active_count
from types import MappingProxyType
from typing import Any

_IMPORT = re.compile(r"^from (\S+) import (\w+) as \2$", re.MULTILINE)


def lazy_names(
    file: str, moved: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of the package whose ``__init__.py`` is `file`.

    `moved` says what to use instead of names that are gone.
    """
    package = f"psofed.{Path(file).parent.name}".removesuffix(".psofed")
    stub = Path(file).with_suffix(".pyi").read_text("utf-8")
    homes = {name: module for module, name in _IMPORT.findall(stub)}

    def get(name: str) -> Any:
        if name not in homes:
            # With name and obj, Python suggests similar names.
            instead = f"; use {moved[name]}" if name in moved else ""
            text = f"module {package!r} has no attribute {name!r}{instead}"
            raise AttributeError(text, name=name, obj=sys.modules[package])
        return getattr(import_module(homes[name]), name)

    return get, lambda: sorted(homes), list(homes)


@contextmanager
def without_modules(*names: str) -> Iterator[None]:
    """Make imports of some modules fail, for packages that import them only if they are there.

    A module that is imported already stays. Nothing is hidden where other threads run, whose imports would fail too.
    """
    hidden = [name for name in names if name not in sys.modules and active_count() == 1]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            sys.modules.pop(name, None)
