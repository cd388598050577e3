"""Built-in drifts, one file each: ``psofed.drifts.…``."""

from collections.abc import Callable
from typing import Any

from psofed.parts.registry import lazy_classes

__getattr__: Callable[[str], Any]
__dir__: Callable[[], list[str]]
__getattr__, __dir__ = lazy_classes("drift")
