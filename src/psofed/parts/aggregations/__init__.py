"""Built-in aggregations, one file each, found by name: ``psofed.aggregations.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    pass


def __getattr__(name: str) -> Any:
    return class_in("aggregation", name)


def __dir__() -> list[str]:
    return class_names("aggregation")
