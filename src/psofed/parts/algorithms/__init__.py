"""Built-in algorithms, one file each, found by name: ``psofed.algorithms.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.algorithms.cs_fed import CSFed as CSFed
    from psofed.parts.algorithms.demoa import DeMoA as DeMoA
    from psofed.parts.algorithms.online_fed import OnlineFed as OnlineFed
    from psofed.parts.algorithms.pso_fed import PsoFed as PsoFed
    from psofed.parts.algorithms.qs_fed import QSFed as QSFed
    from psofed.parts.algorithms.rosdhb import RoSDHB as RoSDHB
    from psofed.parts.algorithms.signsgd import SignSGD as SignSGD
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("algorithm", name)


def __dir__() -> list[str]:
    return class_names("algorithm")
