"""Built-in delays, one file each, found by name: ``psofed.delays.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.delays.fixed import Fixed as Fixed
    from psofed.parts.delays.geometric import Geometric as Geometric
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("delay", name)


def __dir__() -> list[str]:
    return class_names("delay")
