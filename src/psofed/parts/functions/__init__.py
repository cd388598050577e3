"""Built-in functions, one file each, found by name: ``psofed.functions.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.functions.root_sine import RootSine as RootSine
    from psofed.parts.functions.sinc import Sinc as Sinc
    from psofed.parts.functions.sine import Sine as Sine
    from psofed.parts.functions.sum import Sum as Sum
    from psofed.parts.functions.wiener import Wiener as Wiener
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("function", name)


def __dir__() -> list[str]:
    return class_names("function")
