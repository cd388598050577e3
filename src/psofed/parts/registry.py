"""Finds the parts: every file of a parts package is one part, named after the file.

``patterns/round_robin.py`` is the pattern ``"round-robin"``. Names are read from the file system, so
listing them imports nothing; a part's module is imported when it is used.
"""

import importlib
import pkgutil
from functools import cache
from pathlib import Path
from types import ModuleType

from psofed.common.validation import check_choice

KINDS = ("patterns", "attacks", "aggregations", "algorithms", "models", "functions", "drifts")


@cache
def part_names(kind: str) -> tuple[str, ...]:
    """Names of all parts of one `kind` (a package of psofed), in alphabetical order.

    Examples
    --------
    >>> part_names("patterns")
    ('random', 'round-robin')
    """
    folder = Path(__file__).parent / kind
    names = (module.name for module in pkgutil.iter_modules([str(folder)]))
    return tuple(sorted(name.replace("_", "-") for name in names if not name.startswith("_")))


def load_part(kind: str, name: str) -> ModuleType:
    """Import the part `name` of `kind`.

    Examples
    --------
    >>> load_part("patterns", "round-robin").__name__
    'psofed.parts.patterns.round_robin'
    """
    check_choice(kind, name, part_names(kind))
    return importlib.import_module(f"psofed.parts.{kind}.{name.replace('-', '_')}")
