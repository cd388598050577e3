"""Built-in models, one file each, found by name: ``psofed.models.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.models.linear import Linear as Linear
    from psofed.parts.models.rff import Rff as Rff
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("model", name)


def __dir__() -> list[str]:
    return class_names("model")
