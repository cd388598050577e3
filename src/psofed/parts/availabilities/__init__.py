"""Built-in availabilities, one file each, found by name: ``psofed.availabilities.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.availabilities.bernoulli import Bernoulli as Bernoulli
    from psofed.parts.availabilities.markov import Markov as Markov
    from psofed.parts.availabilities.schedule import Schedule as Schedule
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("availability", name)


def __dir__() -> list[str]:
    return class_names("availability")
