"""Built-in channels, one file each, found by name: ``psofed.channels.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.channels.lossy import Lossy as Lossy
    from psofed.parts.channels.noisy import Noisy as Noisy
    from psofed.parts.channels.private import Private as Private
    from psofed.parts.channels.quantised import Quantised as Quantised
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("channel", name)


def __dir__() -> list[str]:
    return class_names("channel")
