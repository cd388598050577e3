"""Built-in defences, one file each, found by name: ``psofed.defences.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.defences.cusum import Cusum as Cusum
    from psofed.parts.defences.none import None_ as None_
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("defence", name)


def __dir__() -> list[str]:
    return class_names("defence")
