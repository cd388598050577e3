"""Built-in streams, one file each, found by name: ``psofed.streams.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.streams.delay_line import DelayLine as DelayLine
    from psofed.parts.streams.independent import Independent as Independent
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("stream", name)


def __dir__() -> list[str]:
    return class_names("stream")
