"""Built-in pre-aggregations, one file each, found by name: ``psofed.pre_aggregations.…``, completed by editors.

The list for type checkers is written by ``make docs``.
"""

from typing import TYPE_CHECKING, Any

from psofed.parts.registry import class_in, class_names

if TYPE_CHECKING:
    from psofed.parts.pre_aggregations.arc import ARC as ARC
    from psofed.parts.pre_aggregations.bucketing import Bucketing as Bucketing
    from psofed.parts.pre_aggregations.nnm import NNM as NNM
else:  # to type checkers a name that is not there is an error

    def __getattr__(name: str) -> Any:
        return class_in("pre_aggregation", name)


def __dir__() -> list[str]:
    return class_names("pre_aggregation")
