"""Built-in drifts, one file each, found by name: ``psofed.drifts.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.drifts.jump import Jump as Jump
    from psofed.parts.drifts.random_walk import RandomWalk as RandomWalk
    from psofed.parts.drifts.sinusoid import Sinusoid as Sinusoid
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("drift", name)


def __dir__() -> list[str]:
    return class_names("drift")
